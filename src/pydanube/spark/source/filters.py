"""What the filters of a query say about topics, partitions, offsets and times: what need not be read at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pydanube.spark.source.slices import SegmentFile
from pydanube.spark.topics import TopicPart

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBERS: Final = ("offset", "partition", "append_time", "publish_time")
_EXACT: Final = frozenset({"topic", "partition", "offset"})
"""Columns where nothing that a filter excludes is ever read."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends included; times in microseconds."""

    low: int = _LOWEST
    high: int = _HIGHEST

    def overlap(self, other: Self) -> "Interval":
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def meets(self, low: int, high: int) -> bool:
        return self.low <= high and low <= self.high


@dataclass(frozen=True, slots=True)
class Narrowing:
    """All filters that were understood, together."""

    numbers: dict[str, Interval] = field(default_factory=dict)
    """By column."""
    topics: frozenset[str] | None = None
    """None: any."""

    def of(self, column: str) -> Interval:
        return self.numbers.get(column, Interval())

    def keeps_part(self, part: TopicPart) -> bool:
        if self.topics is not None and part.topic not in self.topics:
            return False
        return self.of("partition").meets(part.partition, part.partition)

    def offsets(self, available: range) -> range:
        wanted = self.of("offset")
        start, stop = max(available.start, wanted.low), min(available.stop, wanted.high + 1)
        return range(start, max(start, stop))

    def keeps_segment(self, segment: SegmentFile) -> bool:
        """Whether some of its messages may be wanted, by their times."""
        return self.of("append_time").meets(
            segment.min_append_ms * 1000, segment.max_append_ms * 1000
        ) and self.of("publish_time").meets(segment.min_publish_ms * 1000, segment.max_publish_ms * 1000)


def understand(filters: Sequence[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What the filters narrow a read to, and those that Spark has to apply all the same."""
    numbers: dict[str, Interval] = {}
    topics: frozenset[str] | None = None
    rest: list[Filter] = []
    for filter_ in filters:
        column = _column(filter_)
        interval = _interval(filter_) if column in _NUMBERS else None
        names = _names(filter_) if column == "topic" else None
        if interval is not None:
            numbers[column] = numbers.get(column, Interval()).overlap(interval)
        elif names is not None:
            topics = names if topics is None else topics & names
        # A list is narrowed to its bounds only; a time narrows segments and row groups, not rows.
        is_exact = column in _EXACT and (names is not None or interval is not None)
        if not is_exact or (isinstance(filter_, In) and column != "topic"):
            rest.append(filter_)
    return Narrowing(numbers, topics), rest


def _column(filter_: Filter) -> str:
    path: tuple[str, ...] = getattr(filter_, "attribute", ())
    return path[0] if len(path) == 1 else ""


def _names(filter_: Filter) -> frozenset[str] | None:
    match filter_:
        case EqualTo(value=str(name)) | EqualNullSafe(value=str(name)):
            return frozenset({name})
        case In(value=names):
            return frozenset(name for name in names if isinstance(name, str))
        case _:
            return None


def _interval(filter_: Filter) -> Interval | None:
    """None if the filter says nothing that can be used."""
    if isinstance(filter_, IsNotNull):
        # Spark adds it to every comparison, and none of these columns is ever null.
        return Interval()
    values = _values(filter_)
    if not values:
        return None
    low, high = min(values), max(values)
    match filter_:
        case EqualTo() | EqualNullSafe() | In():
            return Interval(low, high)
        case GreaterThan():
            return Interval(low=low + 1)
        case GreaterThanOrEqual():
            return Interval(low=low)
        case LessThan():
            return Interval(high=high - 1)
        case LessThanOrEqual():
            return Interval(high=high)
        case _:
            return None


def _values(filter_: Filter) -> list[int]:
    """What is compared with, as numbers; empty if something is not one."""
    given: Any = getattr(filter_, "value", None)
    several: Iterable[Any] = given if isinstance(filter_, In) else (given,)
    numbers: list[int] = []
    for value in several:
        if value is None and isinstance(filter_, In):
            continue  # never equal to anything
        number = _number(value)
        if number is None:
            return []
        numbers.append(number)
    return numbers


def _number(value: object) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
