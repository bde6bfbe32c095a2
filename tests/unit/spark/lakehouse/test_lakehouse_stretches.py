"""What goes into the next commit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.history import StoredSegment
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.lakehouse.stretches import CommitBounds, next_stretch


def segment(start: int, end: int, payload_bytes: int) -> StoredSegment:
    return StoredSegment("s", start, end - 1, 1, "", 0, 0, 0, 0, payload_bytes, "")


def none(name: str, offset: int) -> list[StoredSegment]:
    return []


def test_everything_within_bounds_is_taken_at_once() -> None:
    stretch = next_stretch({"/d/a": 3}, {"/d/a": range(10), "/d/b": range(2, 4)}, CommitBounds(), none)
    assert dict(stretch.ranges) == {"/d/a": range(3, 10), "/d/b": range(2, 4)}
    assert not stretch.is_full


def test_nothing_new_is_nothing() -> None:
    assert not next_stretch({"/d/a": 10}, {"/d/a": range(10)}, CommitBounds(), none)


def test_bytes_bound_what_segments_hold() -> None:
    def segments(name: str, offset: int) -> list[StoredSegment]:
        return [segment(0, 100, 1_000), segment(100, 200, 100_000)]

    there = {"/d/a": range(300)}
    full = next_stretch({}, there, CommitBounds(payload_bytes=3_000), segments)
    assert dict(full.ranges) == {"/d/a": range(102)}
    assert full.is_full
    # A message larger than the bound goes by itself.
    assert dict(next_stretch({"/d/a": 150}, there, CommitBounds(payload_bytes=1), segments).ranges) == {
        "/d/a": range(150, 151)
    }


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 500),
)
def test_stretches_follow_each_other_without_gap_or_overlap_to_the_end(
    sizes: list[tuple[int, int]], rows: int, payload_bytes: int
) -> None:
    there = {f"/d/t-part-{n}": range(start, start + count) for n, (start, count) in enumerate(sizes)}
    position: dict[str, int] = {}
    bounds = CommitBounds(rows, payload_bytes)

    def segments(name: str, offset: int) -> list[StoredSegment]:
        kept = there[name]
        middle = (kept.start + kept.stop) // 2
        return [segment(kept.start, middle, 10 * (middle - kept.start))] if middle > kept.start else []

    for _ in range(500):
        stretch = next_stretch(position, there, bounds, segments)
        if not stretch:
            break
        assert len(stretch) <= max(rows, len(there))
        for name, taken in stretch.ranges.items():
            assert taken.start == position.get(name, there[name].start)
            assert taken.stop > taken.start
            position[name] = taken.stop
        assert stretch.is_full == any(position.get(n, k.start) < k.stop for n, k in there.items())
    assert all(position.get(name, kept.start) == kept.stop for name, kept in there.items())


def test_messages_that_are_gone_stop_it_unless_that_is_allowed() -> None:
    position, there = {"/d/a": 3}, {"/d/a": range(7, 10)}
    with pytest.raises(Rejected, match=r"4 messages of /d/a are gone.*--on-loss skip") as gone:
        next_stretch(position, there, CommitBounds(), none)
    assert gone.value.code is ErrorCode.OFFSET_GONE
    stretch = next_stretch(position, there, CommitBounds(), none, skip_lost=True)
    assert (dict(stretch.ranges), stretch.lost) == ({"/d/a": range(7, 10)}, 4)


def test_a_topic_that_was_made_again_is_noticed() -> None:
    with pytest.raises(Rejected, match="made again"):
        next_stretch({"/d/a": 30}, {"/d/a": range(10)}, CommitBounds(), none)
