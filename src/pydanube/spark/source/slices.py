"""What a read consists of: stretches of segments, and what only a broker has."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from pydanube.spark.topics import TopicPart

if TYPE_CHECKING:
    from pydanube.client.history import StoredSegment


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What is needed to read a segment, or to leave it out; travels to tasks, which load no client for it."""

    place: str
    start_offset: int
    end_offset: int
    """The last one in it."""
    size: int
    payload_bytes: int
    min_append_ms: int
    max_append_ms: int
    min_publish_ms: int
    max_publish_ms: int
    may_have_removed: bool
    """Whether messages may be left out of which only the offset is left."""

    @classmethod
    def of(cls, stored: "StoredSegment") -> "SegmentFile":
        return cls(
            stored.place,
            stored.start_offset,
            stored.end_offset,
            stored.size,
            stored.payload_bytes,
            stored.min_append_ms,
            stored.max_append_ms,
            stored.min_publish_ms,
            stored.max_publish_ms,
            stored.removed_messages != 0,
        )

    @property
    def messages(self) -> int:
        return self.end_offset + 1 - self.start_offset


@dataclass(frozen=True)
class Slice(InputPartition):
    """Offsets of one part that one task reads."""

    part: TopicPart
    start: int
    end: int
    """The first one behind it."""
    segment: SegmentFile | None = None
    """That holds all of them; None if only a broker has them."""

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def stored_bytes(self) -> int:
        """Of the file, in proportion."""
        if self.segment is None:
            return 0
        return self.segment.size * len(self) // self.segment.messages


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """The most one task reads."""

    messages: int = 1_000_000
    stored_bytes: int = 64 << 20

    def allow(self, piece: Slice) -> bool:
        return len(piece) <= self.messages and piece.stored_bytes <= self.stored_bytes


DEFAULT_BOUNDS: Final = SliceBounds()


def cover(part: TopicPart, segments: Iterable["StoredSegment"], wanted: range) -> Iterator[Slice]:
    """The range cut along the segments: nothing missing and nothing twice, whatever segments there are."""
    next_offset = wanted.start
    for segment in sorted(segments, key=lambda segment: segment.start_offset):
        start = max(segment.start_offset, next_offset)
        end = min(segment.end_offset + 1, wanted.stop)
        if start >= end:
            continue
        if start > next_offset:
            yield Slice(part, next_offset, start)
        yield Slice(part, start, end, SegmentFile.of(segment))
        next_offset = end
    if next_offset < wanted.stop:
        yield Slice(part, next_offset, wanted.stop)


GroupStarts = Callable[[SegmentFile], Sequence[int]]
"""The first offsets of the row groups of a segment; empty if they cannot be told."""


def cut(pieces: Iterable[Slice], bounds: SliceBounds, group_starts: GroupStarts) -> Iterator[Slice]:
    """Pieces within bounds, large segments divided along their row groups where these are known."""
    for piece in pieces:
        if bounds.allow(piece):
            yield piece
            continue
        starts = group_starts(piece.segment) if piece.segment is not None else ()
        yield from _divide(piece, bounds, starts)


def _divide(piece: Slice, bounds: SliceBounds, starts: Sequence[int]) -> Iterator[Slice]:
    step = max(1, min(bounds.messages, len(piece) * bounds.stored_bytes // max(piece.stored_bytes, 1)))
    start = piece.start
    while start < piece.end:
        end = min(start + step, piece.end)
        # The last border of a row group within the step, if there is one.
        at = bisect_left(starts, end + 1) - 1
        if end < piece.end and at >= 0 and starts[at] > start:
            end = starts[at]
        yield Slice(piece.part, start, end, piece.segment)
        start = end
