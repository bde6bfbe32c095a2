"""How a table is divided, as files say it: a column, days(column), bucket(16, column)."""

import re
from dataclasses import dataclass
from typing import Final

from pydanube.kernel.errors import Rejected

_WRITTEN: Final = re.compile(
    r"(?P<column>\w+)"
    r"|(?P<transform>years|months|days|hours)\(\s*(?P<time>\w+)\s*\)"
    r"|bucket\(\s*(?P<count>\d{1,5})\s*,\s*(?P<key>\w+)\s*\)"
)


@dataclass(frozen=True, slots=True)
class Partitioning:
    column: str
    transform: str | None = None
    """years, months, days, hours or bucket; None: each value is a partition."""
    buckets: int = 0


def parse_partitioning(text: str) -> Partitioning:
    """Raises Rejected if the text says none."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or found["count"] == "0":
        raise Rejected(
            f"invalid partitioning {text!r}: write a column, years|months|days|hours(column) or bucket(16, column)"
        )
    if found["column"]:
        return Partitioning(found["column"])
    if found["key"]:
        return Partitioning(found["key"], "bucket", int(found["count"]))
    return Partitioning(found["time"], found["transform"])
