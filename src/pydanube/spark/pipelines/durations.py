"""Lengths of time as people write them: 10s, 5 minutes, 1h."""

import re
from dataclasses import dataclass
from typing import Final

from pydanube.kernel.errors import Rejected

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_WRITTEN: Final = re.compile(r"\s*(\d{1,9})\s*([a-z]+)\s*")
MS_MAX: Final = 3_650 * _UNITS_MS["d"]


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in whole milliseconds."""

    ms: int

    @property
    def interval(self) -> str:
        """In Spark's words."""
        return f"{self.ms} milliseconds"


def parse_duration(text: str) -> Duration:
    """Raises Rejected if the text is none, or one longer than ten years."""
    found = _WRITTEN.fullmatch(text.lower())
    if found is None or found[2] not in _WORDS:
        raise Rejected(
            f"invalid duration {text!r}: write a number and a unit, such as 10s, 5 minutes, 1h or 2d"
        )
    ms = int(found[1]) * _UNITS_MS[_WORDS[found[2]]]
    if ms > MS_MAX:
        raise Rejected(f"invalid duration {text!r}: ten years is the longest")
    return Duration(ms)
