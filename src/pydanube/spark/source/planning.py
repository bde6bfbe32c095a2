"""From options to exact ranges of offsets, and from these to slices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.kernel.errors import Rejected
from pydanube.spark.source.data_loss import check_loss
from pydanube.spark.source.filters import Narrowing
from pydanube.spark.source.offsets import Wanted
from pydanube.spark.source.options import Ranges, ReadOptions
from pydanube.spark.source.segment_files import OutOfReach, open_segment
from pydanube.spark.source.slice_reader import is_direct, row_groups
from pydanube.spark.source.slices import SegmentFile, Slice, cover, cut
from pydanube.spark.topics import TopicPart, matching, resolve, storage_of


def parts_of(client: blocking.Client, options: ReadOptions) -> list[TopicPart]:
    """What there is now of the topics asked for."""
    if options.pattern is not None:
        return matching(client, options.pattern)
    return resolve(client, options.topics)


def available(client: blocking.Client, parts: Iterable[TopicPart]) -> dict[str, range]:
    """The offsets that can be read now, by the names of parts."""
    return {
        name: range(storage.start_offset, storage.next_offset)
        for name, storage in storage_of(client, parts).items()
    }


def fix_ranges(client: blocking.Client, options: ReadOptions) -> dict[str, tuple[range, ...]]:
    """The offsets that the options mean at this moment; what is appended later is not among them.

    Raises:
        Rejected: an offset was asked for that is not there yet, or is no more.
    """
    parts = parts_of(client, options)
    there = available(client, parts)
    starts = _offsets(client, parts, there, options.start, what="startingOffsets")
    ends = _offsets(client, parts, there, options.end, what="endingOffsets")
    fail = options.fail_on_data_loss
    return {
        part.name: (check_loss(part, range(starts[part.name], ends[part.name]), there[part.name], fail=fail),)
        for part in parts
    }


def fix_position(
    client: blocking.Client, options: ReadOptions, wanted: Wanted, *, what: str
) -> dict[str, int]:
    """The offset that a position means at this moment in each part."""
    parts = parts_of(client, options)
    return _offsets(client, parts, available(client, parts), wanted, what=what)


def _offsets(
    client: blocking.Client,
    parts: Sequence[TopicPart],
    there: Mapping[str, range],
    wanted: Wanted,
    *,
    what: str,
) -> dict[str, int]:
    wanted.check(parts, what=what)
    offsets: dict[str, int] = {}
    for part in parts:
        kept = there[part.name]
        offset = wanted.offset(part, kept, partial(first_appended_at, client, part, kept))
        if offset > kept.stop:
            raise Rejected(
                f"{what}: offset {offset} of {part.name} is not there yet, the next one will be {kept.stop}"
            )
        offsets[part.name] = offset
    return offsets


def first_appended_at(client: blocking.Client, part: TopicPart, kept: range, append_ms: int) -> int:
    """The first offset appended at or after a moment, or the end."""
    if not kept:
        return kept.stop
    start, end = Position.timestamp(append_ms), Position.offset(kept.stop)
    with client.reader(part.name, start=start, end=end, prefetch_messages=1) as reader:
        for batch in reader.batches():
            offset: int = batch.column("offset")[0].as_py()
            return offset
    return kept.stop


@dataclass(frozen=True, slots=True)
class Planner:
    """Cuts ranges into slices."""

    options: ReadOptions
    narrowing: Narrowing

    def slices(self, client: blocking.Client, ranges: Ranges) -> list[Slice]:
        """Those that may hold a message wanted; each within bounds."""
        found: list[Slice] = []
        for name, several in ranges.items():
            part = TopicPart.of_name(name)
            if not self.narrowing.keeps_part(part):
                continue
            for wanted in map(self.narrowing.offsets, several):
                if wanted:
                    pieces = cover(part, client.history.segments(name, wanted.start), wanted)
                    kept = filter(self._is_kept, pieces)
                    found += cut(kept, self.options.slice_bounds, self._group_starts)
        return found

    def _is_kept(self, piece: Slice) -> bool:
        return piece.segment is None or self.narrowing.keeps_segment(piece.segment)

    def _group_starts(self, segment: SegmentFile) -> list[int]:
        if not is_direct(segment, self.options):
            return []
        try:
            with open_segment(segment, self.options.store) as file:
                groups = row_groups(pq.read_metadata(file), segment.start_offset)
                return [group.start for _, group in groups]
        except (OutOfReach, OSError, pa.ArrowException):
            # Whoever reads it will tell; until then any cut is as good.
            return []
