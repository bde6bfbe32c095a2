"""Which segments are made anew together, and whether those there are follow each other."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.history.segment import SegmentDescriptor
from pydanube.spark.maintenance.auditing import check_order
from pydanube.spark.maintenance.placed_segment import PlacedSegment
from pydanube.spark.maintenance.rewrite_plan import SEGMENTS_AT_ONCE_MAX, group_segments, plan_groups


def segment(start: int, end: int, size: int = 10, topic_id: int = 1) -> PlacedSegment:
    """Offsets from `start` up to `end`, not included."""
    return PlacedSegment(
        SegmentDescriptor(
            segment_id=f"s{start}", topic_id=topic_id, epoch=1, start_offset=start, end_offset=end - 1, size=size,
            checksum="", created_at=0, min_append_ms=0, max_append_ms=0, min_publish_ms=0, max_publish_ms=0,
            payload_bytes=0,
        ),
        f"place of {start}",
    )  # fmt: skip


def chain(*sizes: int) -> list[PlacedSegment]:
    return [segment(number, number + 1, size) for number, size in enumerate(sizes)]


def starts(segments: list[PlacedSegment], **settings: object) -> list[list[int]]:
    wanted = {"small_bytes": 50, "segment_bytes": 100, **settings}
    groups = group_segments(segments, **wanted)  # type: ignore[arg-type]
    return [[each.descriptor.start_offset for each in group] for group in groups]


def test_small_neighbours_are_merged_up_to_a_size() -> None:
    assert starts(chain(40, 40, 40, 40, 40)) == [[0, 1], [2, 3]]


def test_a_large_one_parts_its_neighbours_and_stays() -> None:
    assert starts(chain(10, 10, 60, 10, 60)) == [[0, 1]]


def test_what_is_changed_is_made_anew_whatever_its_size() -> None:
    assert starts(chain(60, 10, 60, 10), changed={"s2", "s3"}) == [[2], [3]]
    assert starts(chain(60, 60), small_bytes=0, segment_bytes=0, changed={"s1"}) == [[1]]


def test_groups_of_all_parts_have_numbers_of_their_own() -> None:
    groups = plan_groups(
        {"a": chain(1, 1), "b": chain(1, 1, 99)}, small_bytes=50, segment_bytes=100, changed=()
    )
    assert [(each.number, each.topic, each.start_offset, each.end_offset, each.size) for each in groups] == [
        (0, "a", 0, 1, 2),
        (1, "b", 0, 1, 2),
    ]


@given(
    st.lists(st.integers(1, 120), max_size=200),
    st.integers(0, 130),
    st.integers(0, 500),
    st.sets(st.integers(0, 200)),
)
def test_groups_are_neighbours_in_order_and_within_their_bounds(
    sizes: list[int], small: int, largest: int, changed: set[int]
) -> None:
    names = {f"s{number}" for number in changed}
    groups = starts(chain(*sizes), small_bytes=small, segment_bytes=largest, changed=names)
    flat = [number for group in groups for number in group]
    assert flat == sorted(set(flat))
    for group in groups:
        assert group == list(range(group[0], group[-1] + 1))
        assert len(group) <= SEGMENTS_AT_ONCE_MAX
        assert len(group) == 1 or sum(sizes[number] for number in group) <= largest
        assert len(group) > 1 or group[0] in changed
    assert changed & set(range(len(sizes))) <= set(flat)


def test_segments_that_follow_each_other_are_in_order() -> None:
    assert list(check_order("t", 0, [segment(0, 5), segment(5, 9)])) == []
    assert list(check_order("t", 3, [segment(0, 5), segment(5, 9)])) == []
    assert list(check_order("t", 3, [])) == []


def test_gaps_overlaps_and_strangers_are_told_with_their_place() -> None:
    (gap,) = check_order("t", 0, [segment(0, 5), segment(7, 9)])
    assert (gap.place, "offsets 5 to 6 are missing" in gap.what) == ("place of 7", True)
    (overlap,) = check_order("t", 0, [segment(0, 5), segment(4, 9)])
    assert "begins at offset 4" in overlap.what
    (first,) = check_order("t", 0, [segment(2, 5)])
    assert "offsets 0 to 1 are missing" in first.what
    (stranger,) = check_order("t", 0, [segment(0, 5), segment(5, 9, topic_id=2)])
    assert stranger.what == "it belongs to another topic"
