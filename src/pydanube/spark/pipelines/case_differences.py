"""Rows that were expected against rows that came, in any order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from pydanube.spark.pipelines.case_rows import plain

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is missing, one that nobody expected, or both where they resemble each other."""

    expected: Row | None
    found: Row | None

    def __str__(self) -> str:
        if self.found is None:
            return f"missing: {_shown(self.expected or {})}"
        if self.expected is None:
            return f"not expected: {_shown(self.found)}"
        wrong = [
            f"{name} is {_text(self.found.get(name))}, expected {_text(value)}"
            for name, value in self.expected.items()
            if name not in self.found or not _equal(value, self.found[name])
        ]
        return f"{_shown(self.expected)}: {'; '.join(wrong)}"


def differences(expected: Sequence[Row], found: Sequence[Row]) -> list[Difference]:
    """None, if each expected row can be given one of its own that has all it names."""
    wanted = [plain(dict(row)) for row in expected]
    taken: dict[int, int] = {}
    """By the number of a found row: that of the one expected."""
    for number in range(len(wanted)):
        _assign(number, wanted, found, taken, set())
    missing = [row for number, row in enumerate(wanted) if number not in taken.values()]
    left = [row for number, row in enumerate(found) if number not in taken]
    result = []
    for row in missing:
        near = max(left, key=lambda other: _alike(row, other), default=None)
        if near is not None and _alike(row, near):
            left.remove(near)
        else:
            near = None
        result.append(Difference(row, near))
    return result + [Difference(None, row) for row in left]


def _assign(
    number: int, wanted: Sequence[Row], found: Sequence[Row], taken: dict[int, int], tried: set[int]
) -> bool:
    """Find a row for an expected one, moving others to other rows if they have some."""
    for place, row in enumerate(found):
        if place in tried or not _matches(wanted[number], row):
            continue
        tried.add(place)
        if place not in taken or _assign(taken[place], wanted, found, taken, tried):
            taken[place] = number
            return True
    return False


def _matches(expected: Row, found: Row) -> bool:
    return all(name in found and _equal(value, found[name]) for name, value in expected.items())


def _alike(expected: Row, found: Row) -> int:
    return sum(name in found and _equal(value, found[name]) for name, value in expected.items())


def _equal(expected: Any, found: Any) -> bool:
    match found:
        case datetime():
            return _moment(expected) == (found if found.tzinfo else found.replace(tzinfo=UTC))
        case date():
            return bool(expected == found.isoformat())
        case bytes() | bytearray():
            return isinstance(expected, str) and expected.encode() == bytes(found)
        case Decimal():
            return isinstance(expected, (int, float, str)) and Decimal(str(expected)) == found
        case float() if isinstance(expected, (int, float)):
            return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12)
        case dict() if isinstance(expected, dict):
            return expected.keys() == found.keys() and all(
                _equal(expected[name], found[name]) for name in found
            )
        case list() | tuple() if isinstance(expected, list):
            return len(expected) == len(found) and all(map(_equal, expected, found))
    return bool(expected == found) and isinstance(expected, bool) == isinstance(found, bool)


def _moment(expected: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(expected)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _shown(row: Row) -> str:
    return "{" + ", ".join(f"{name}: {_text(value)}" for name, value in row.items()) + "}"


def _text(value: Any) -> str:
    match value:
        case datetime() | date():
            return value.isoformat()
        case bytes() | bytearray():
            return repr(bytes(value).decode(errors="replace"))
    return repr(value)
