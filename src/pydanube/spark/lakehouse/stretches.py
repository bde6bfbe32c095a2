"""How much goes into the next commit: as much as there is, within bounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydanube.client.history import StoredSegment
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.lakehouse.commits import Position


@dataclass(frozen=True, slots=True)
class CommitBounds:
    """The most that one commit holds; a single message may have more bytes."""

    rows: int = 1_000_000
    payload_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """What one commit is made of."""

    ranges: Mapping[str, range]
    is_full: bool
    """There is more, which need not be waited for."""
    lost: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.ranges.values()))


Segments = Callable[[str, int], Sequence[StoredSegment]]
"""The segments of a part from an offset on."""


def next_stretch(
    position: Position,
    there: Mapping[str, range],
    bounds: CommitBounds,
    segments: Segments,
    *,
    skip_lost: bool = False,
) -> Stretch:
    """From a position on, over all parts alike.

    Raises:
        Rejected: OFFSET_GONE if retention was faster and not `skip_lost`, or the topic is not what it was.
    """
    waiting: dict[str, range] = {}
    lost = 0
    for name, kept in there.items():
        start = position.get(name, kept.start)
        if start > kept.stop:
            raise Rejected(
                f"the table holds {name} up to offset {start - 1}, but the topic ends at {kept.stop - 1}: it was "
                "deleted and made again; sync it into another table",
                ErrorCode.OFFSET_GONE,
            )
        if start < kept.start:
            if not skip_lost:
                raise Rejected(
                    f"{kept.start - start} messages of {name} are gone: the table needs offset {start} next, the "
                    f"oldest one kept is {kept.start}; keep messages longer, or go on without them by --on-loss skip",
                    ErrorCode.OFFSET_GONE,
                )
            lost += kept.start - start
            start = kept.start
        if start < kept.stop:
            waiting[name] = range(start, kept.stop)
    if not waiting:
        return Stretch({}, is_full=False, lost=lost)
    rows_each = max(1, bounds.rows // len(waiting))
    bytes_each = max(1, bounds.payload_bytes // len(waiting))
    taken: dict[str, range] = {}
    for name, wanted in waiting.items():
        end = min(wanted.stop, wanted.start + rows_each)
        end = _within_bytes(segments(name, wanted.start), range(wanted.start, end), bytes_each)
        taken[name] = range(wanted.start, end)
    return Stretch(taken, is_full=any(taken[name].stop < waiting[name].stop for name in waiting), lost=lost)


def _within_bytes(segments: Sequence[StoredSegment], wanted: range, bytes_max: int) -> int:
    """Where to end, by what segments say their messages have on average; what is not sealed yet is one segment at most."""
    left = bytes_max
    for segment in segments:
        count = segment.end_offset + 1 - segment.start_offset
        start, end = max(segment.start_offset, wanted.start), min(segment.end_offset + 1, wanted.stop)
        if start >= end:
            continue
        each = max(1, segment.payload_bytes // count)
        if (end - start) * each >= left:
            return max(wanted.start + 1, start + left // each)
        left -= (end - start) * each
    return wanted.stop
