"""How far one micro-batch goes: limits shared among the parts in proportion to what each has."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Stretch(NamedTuple):
    """Neighbouring messages and the bytes of their payloads."""

    messages: int
    size: int


def share_messages(waiting: Mapping[str, int], messages_max: int) -> dict[str, int]:
    """How many messages to take of each part; as many as allowed, and one at least while some wait."""
    total = sum(waiting.values())
    if total <= messages_max:
        return dict(waiting)
    shares = {name: count * messages_max // total for name, count in waiting.items()}
    rest = messages_max - sum(shares.values())
    for name, count in waiting.items():
        more = min(rest, 1, count - shares[name])
        shares[name] += more
        rest -= more
    return shares


def share_bytes(waiting: Mapping[str, Iterable[Stretch]], bytes_max: int) -> dict[str, int]:
    """The same by bytes, which are known on average only: one message at least of each part that has some."""
    stretches = {name: list(several) for name, several in waiting.items()}
    sizes = {name: sum(one.size for one in several) for name, several in stretches.items()}
    total = max(sum(sizes.values()), 1)
    return {
        name: _messages_within(several, min(bytes_max, total) * sizes[name] // total)
        for name, several in stretches.items()
    }


def _messages_within(stretches: Iterable[Stretch], size_max: int) -> int:
    taken = 0
    for messages, size in stretches:
        if size > size_max:
            return max(taken + messages * size_max // size, min(messages, 1))
        taken += messages
        size_max -= size
    return taken
