"""What can be said about SQL without Spark: quotes and parentheses that have no other end."""

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      --[^\n]* | /\*.*?\*/
    | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*`
    | (?P<edge> /\* | ['"`()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENED_BY: Final = {")": "(", "]": "[", "}": "{"}


def unbalanced(text: str) -> str | None:
    """What is wrong with a piece of SQL as far as its brackets and quotes tell, or None."""
    if not text.strip():
        return "it is empty"
    opened: list[str] = []
    for found in _TOKEN.finditer(text):
        edge = found["edge"]
        if edge is None:
            continue
        if edge in _OPENED_BY:
            if not opened or opened.pop() != _OPENED_BY[edge]:
                return f"{edge!r} at position {found.start() + 1} closes nothing"
        elif edge in "([{":
            opened.append(edge)
        else:
            return f"{edge!r} at position {found.start() + 1} has no end"
    return f"{opened[-1]!r} is not closed" if opened else None


def words(text: str) -> set[str]:
    """The names that may stand in it: outside of texts and comments, in lower case."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", " ", text, flags=re.DOTALL)
    return {word.lower() for word in re.findall(r"\w+", bare)}
