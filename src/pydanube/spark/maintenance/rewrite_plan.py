"""Which neighbouring segments become one. Pure."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydanube.spark.maintenance.placed_segment import PlacedSegment

SEGMENTS_AT_ONCE_MAX: Final = 48
"""The most a broker replaces in one transaction."""


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Neighbouring segments of one topic, or of one partition, that are made anew together."""

    number: int
    topic: str
    """As the broker knows it."""
    segments: tuple[PlacedSegment, ...]

    @property
    def start_offset(self) -> int:
        return self.segments[0].descriptor.start_offset

    @property
    def end_offset(self) -> int:
        """The last one in it."""
        return self.segments[-1].descriptor.end_offset

    @property
    def size(self) -> int:
        return sum(segment.descriptor.size for segment in self.segments)


def plan_groups(
    parts: Mapping[str, Sequence[PlacedSegment]],
    *,
    small_bytes: int,
    segment_bytes: int,
    changed: Container[str],
) -> list[RewriteGroup]:
    """What is to be made anew of topics, or partitions, by their names."""
    chosen = [
        (part, group)
        for part, segments in parts.items()
        for group in group_segments(
            segments, small_bytes=small_bytes, segment_bytes=segment_bytes, changed=changed
        )
    ]
    return [RewriteGroup(number, part, group) for number, (part, group) in enumerate(chosen)]


def group_segments(
    segments: Sequence[PlacedSegment],
    *,
    small_bytes: int,
    segment_bytes: int,
    changed: Container[str] = (),
) -> Iterator[tuple[PlacedSegment, ...]]:
    """Neighbours that are each smaller than `small_bytes`, up to `segment_bytes` together; and all that are changed.

    A small segment without a small neighbour stays as it is, unless it is changed.
    """
    group: list[PlacedSegment] = []
    for segment in segments:
        size = segment.descriptor.size
        if size >= small_bytes:
            yield from _wanted(group, changed)
            yield from _wanted([segment], changed)
            group = []
            continue
        together = size + sum(each.descriptor.size for each in group)
        if group and (together > segment_bytes or len(group) == SEGMENTS_AT_ONCE_MAX):
            yield from _wanted(group, changed)
            group = []
        group.append(segment)
    yield from _wanted(group, changed)


def _wanted(group: list[PlacedSegment], changed: Container[str]) -> Iterator[tuple[PlacedSegment, ...]]:
    if len(group) > 1 or any(each.descriptor.segment_id in changed for each in group):
        yield tuple(group)
