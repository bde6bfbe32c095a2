"""What filters spare, and what Spark still has to look at."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pydanube.client.history import StoredSegment
from pydanube.spark.source.filters import understand
from pydanube.spark.topics import TopicPart

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_767_225_600_000
OFFSET = ("offset",)

comparisons = st.builds(
    lambda kind, value: kind(OFFSET, value),
    st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    st.integers(-5, 50),
)


def holds(filter_: Filter, offset: int) -> bool:
    value = filter_.value
    return {
        EqualTo: offset == value,
        GreaterThan: offset > value,
        GreaterThanOrEqual: offset >= value,
        LessThan: offset < value,
        LessThanOrEqual: offset <= value,
    }[type(filter_)]


@given(st.lists(comparisons, max_size=4))
def test_comparisons_of_offsets_are_exact(filters: list[Filter]) -> None:
    narrowing, rest = understand(filters)
    available = range(3, 40)
    assert rest == []
    wanted = [offset for offset in available if all(holds(one, offset) for one in filters)]
    assert list(narrowing.offsets(available)) == wanted


def test_topics_and_partitions_are_exact() -> None:
    narrowing, rest = understand([In(("topic",), ("/default/a", "/default/b")), EqualTo(("partition",), 1)])
    assert rest == []
    parts = [TopicPart(f"/default/{name}", number, "") for name in "ac" for number in (0, 1)]
    assert [narrowing.keeps_part(part) for part in parts] == [False, True, False, False]


@pytest.mark.parametrize(
    ("filter_", "is_kept"),
    [
        (GreaterThanOrEqual(("append_time",), MOMENT), True),
        (GreaterThan(("append_time",), MOMENT), False),
        (LessThan(("append_time",), MOMENT - timedelta(milliseconds=1)), False),
        (LessThanOrEqual(("append_time",), MOMENT - timedelta(milliseconds=1)), True),
        (EqualTo(("publish_time",), MOMENT), True),
        (EqualTo(("publish_time",), MOMENT + timedelta(microseconds=1)), False),
        (GreaterThan(("append_time",), "not a time"), True),
    ],
)
def test_times_spare_segments_and_spark_looks_at_rows(filter_: Filter, is_kept: bool) -> None:
    """Of a segment whose last message was appended, and published, at the moment."""
    narrowing, rest = understand([filter_])
    segment = StoredSegment("s", 0, 9, 1, "", MS - 1, MS, MS - 1, MS, 1, "")
    assert (narrowing.keeps_segment(segment), rest) == (is_kept, [filter_])


def test_what_is_not_understood_is_left_to_spark() -> None:
    filters = [Not(EqualTo(OFFSET, 1)), EqualTo(("payload",), b""), In(OFFSET, (1, 5)), IsNotNull(OFFSET)]
    narrowing, rest = understand(filters)
    assert rest == filters[:3]
    assert list(narrowing.offsets(range(10))) == [1, 2, 3, 4, 5]
