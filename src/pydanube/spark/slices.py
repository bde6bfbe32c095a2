"""What a read consists of: stretches of segments, and what only a broker has."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from pydanube.client.history import StoredSegment
from pydanube.spark.topics import TopicPart


@dataclass(frozen=True)
class Slice(InputPartition):
    """Offsets of one part that one task reads."""

    part: TopicPart
    start: int
    end: int
    """The first one behind it."""
    segment: StoredSegment | None = None
    """That holds all of them; None if only a broker has them."""

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def stored_bytes(self) -> int:
        """Of the file, in proportion."""
        if self.segment is None:
            return 0
        messages = self.segment.end_offset + 1 - self.segment.start_offset
        return self.segment.size * len(self) // messages


@dataclass(frozen=True, slots=True)
class SliceBounds:
    """The most one task reads."""

    messages: int = 1_000_000
    stored_bytes: int = 64 << 20

    def allow(self, piece: Slice) -> bool:
        return len(piece) <= self.messages and piece.stored_bytes <= self.stored_bytes


DEFAULT_BOUNDS: Final = SliceBounds()


def cover(part: TopicPart, segments: Iterable[StoredSegment], wanted: range) -> Iterator[Slice]:
    """The range cut along the segments: nothing missing and nothing twice, whatever segments there are."""
    next_offset = wanted.start
    for segment in sorted(segments, key=lambda segment: segment.start_offset):
        start = max(segment.start_offset, next_offset)
        end = min(segment.end_offset + 1, wanted.stop)
        if start >= end:
            continue
        if start > next_offset:
            yield Slice(part, next_offset, start)
        yield Slice(part, start, end, segment)
        next_offset = end
    if next_offset < wanted.stop:
        yield Slice(part, next_offset, wanted.stop)


GroupStarts = Callable[[StoredSegment], Sequence[int]]
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
