"""Which routing keys a consumer wants: globs over the bytes of the whole key."""

from collections.abc import Sequence

_STAR = ord("*")
_QUESTION = ord("?")


class KeyFilters:
    """Accepts a key if there are no filters, or if at least one matches."""

    __slots__ = ("_patterns",)

    def __init__(self, filters: Sequence[str]) -> None:
        self._patterns = [text.encode("utf-8", "surrogatepass") for text in filters]

    def accept(self, key: str | bytes) -> bool:
        if not self._patterns:
            return True
        subject = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
        for pattern in self._patterns:  # noqa: SIM110 - a generator would be an allocation per new key
            if glob_matches(pattern, subject):
                return True
        return False


def glob_matches(pattern: bytes, key: bytes) -> bool:
    """`*` is any run of bytes, `?` exactly one, everything else itself.

    Filters come from clients, so no regular expression: this never goes back further than to the last
    star, and a hostile pattern costs at most len(pattern) * len(key) steps.
    """
    at_pattern = 0
    at_key = 0
    star = -1
    star_key = 0
    while at_key < len(key):
        if at_pattern < len(pattern) and pattern[at_pattern] == _STAR:
            star = at_pattern
            star_key = at_key
            at_pattern += 1
        elif at_pattern < len(pattern) and (
            pattern[at_pattern] == _QUESTION or pattern[at_pattern] == key[at_key]
        ):
            at_pattern += 1
            at_key += 1
        elif star >= 0:
            star_key += 1
            at_key = star_key
            at_pattern = star + 1
        else:
            return False
    while at_pattern < len(pattern) and pattern[at_pattern] == _STAR:
        at_pattern += 1
    return at_pattern == len(pattern)
