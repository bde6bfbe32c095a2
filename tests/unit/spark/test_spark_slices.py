"""Cutting ranges of offsets along segments: nothing missing, nothing twice."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.history import StoredSegment
from pydanube.spark.source.slices import SegmentFile, Slice, SliceBounds, cover, cut
from pydanube.spark.topics import TopicPart

PART = TopicPart("/default/t", 0, "/default/t")


def segment(start: int, end: int, *, size: int = 1000) -> StoredSegment:
    return StoredSegment(f"s{start}", start, end, size, "", 0, 0, 0, 0, size, f"/segments/{start}")


segments = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda pair: segment(pair[0], pair[0] + pair[1])),
    max_size=8,
)
ranges = st.tuples(st.integers(0, 80), st.integers(0, 40)).map(lambda pair: range(pair[0], pair[0] + pair[1]))


def offsets(pieces: list[Slice]) -> list[int]:
    return [offset for piece in pieces for offset in range(piece.start, piece.end)]


@given(segments, ranges)
def test_a_range_is_covered_exactly_whatever_segments_there_are(
    known: list[StoredSegment], wanted: range
) -> None:
    pieces = list(cover(PART, known, wanted))
    assert offsets(pieces) == list(wanted)
    for piece in pieces:
        assert len(piece) > 0
        if piece.segment is None:
            held = {offset for one in known for offset in range(one.start_offset, one.end_offset + 1)}
            assert held.isdisjoint(range(piece.start, piece.end)), "what is in a segment is read from there"
        else:
            assert piece.segment.start_offset <= piece.start < piece.end <= piece.segment.end_offset + 1


@given(segments, ranges, st.integers(1, 20), st.integers(1, 2000), st.integers(1, 10))
def test_pieces_within_bounds_are_still_everything(
    known: list[StoredSegment], wanted: range, messages: int, size: int, group: int
) -> None:
    bounds = SliceBounds(messages, size)
    pieces = list(
        cut(
            cover(PART, known, wanted), bounds, lambda one: range(one.start_offset, one.end_offset + 1, group)
        )
    )
    assert offsets(pieces) == list(wanted)
    assert all(len(piece) <= messages for piece in pieces)


def test_a_large_segment_is_cut_along_its_row_groups() -> None:
    pieces = cut(
        [Slice(PART, 5, 100, SegmentFile.of(segment(0, 99)))],
        SliceBounds(messages=35),
        lambda _: [0, 30, 60, 90],
    )
    assert [(piece.start, piece.end) for piece in pieces] == [(5, 30), (30, 60), (60, 90), (90, 100)]


def test_bytes_bound_a_slice_too() -> None:
    pieces = cut(
        [Slice(PART, 0, 100, SegmentFile.of(segment(0, 99, size=1000)))],
        SliceBounds(stored_bytes=500),
        lambda _: [],
    )
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 50), (50, 100)]
