"""In which order the frames of a Danube broker's files are taken, and what is refused instead of guessed."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Final, NamedTuple

from pydanube.history.dnb1_source import SourceFile, Stretch, read_stretch
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol.dnb1 import Frame

OPEN_FILES_MAX: Final = 256
OFFSET_MAX: Final = 1 << 40
"""No checksum covers the offset of a frame: one above this is damage."""

_NEW_OFFSETS: Final = "allow new offsets (renumber) to import every message in the order of the files"


class Taken(NamedTuple):
    stretch: Stretch
    frame: Frame
    copies: int
    """Frames of the same offset and the same bytes that were left out."""


def in_order(
    files: list[SourceFile], *, reorder: bool, renumber: bool, skip_damaged: bool
) -> tuple[int, Iterator[Taken]]:
    """The offset to number from, and the frames: each offset once and ascending, or with `renumber` as they lie.

    Raises:
        Corrupt: that cannot be without one of the options. The iterator raises it too, for an offset of two messages.
    """
    if not skip_damaged:
        _refuse_damage(files)
    stretches = [stretch for file in files for stretch in file.stretches]
    if not stretches:
        raise Corrupt(
            "the files hold no whole message: there is nothing to import", ErrorCode.SEGMENT_CORRUPT
        )
    if renumber:
        first = stretches[0].first
        return first if first <= OFFSET_MAX else 0, _in_file_order(stretches)
    _refuse_offsets(stretches)
    if not reorder:
        _refuse_disorder(late_stretches(files))
    stretches.sort(key=lambda stretch: stretch.first)
    _refuse_gaps(stretches, skip_damaged=skip_damaged)
    return stretches[0].first, _in_offset_order(stretches)


def late_stretches(files: list[SourceFile]) -> list[Stretch]:
    """Frames that are out of order. Log files continue each other; segments may lie in any order."""
    chains = [file.stretches for file in files if not file.is_log]
    chains.append(tuple([stretch for file in files if file.is_log for stretch in file.stretches]))
    return [stretch for chain in chains for stretch in _late(chain)]


def _late(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Those that bring an offset below one that came before them and was passed over until now.

    An offset that comes once more is not out of order: it is a copy, or another message of the same number.
    """
    late: list[Stretch] = []
    passed_over: list[tuple[int, int]] = []
    """Ranges of offsets, ascending, both ends included."""
    highest = -1
    for stretch in stretches:
        if stretch.first > highest + 1:
            passed_over.append((highest + 1, stretch.first - 1))
        else:
            begin = end = bisect_right(passed_over, stretch.last, key=itemgetter(0))
            while begin and passed_over[begin - 1][1] >= stretch.first:
                begin -= 1
            if begin < end:
                late.append(stretch)
                below = (passed_over[begin][0], stretch.first - 1)
                above = (stretch.last + 1, passed_over[end - 1][1])
                passed_over[begin:end] = [part for part in (below, above) if part[0] <= part[1]]
        highest = max(highest, stretch.last)
    return late


def _refuse_damage(files: list[SourceFile]) -> None:
    damaged = [(file, damage) for file in files for damage in file.damages]
    if damaged:
        file, damage = damaged[0]
        others = f" There are {len(damaged) - 1} more such places." if len(damaged) > 1 else ""
        raise Corrupt(
            f"{file.path}: the frame at byte {damage.position} is damaged: {damage.why}; whole frames go on at byte "
            f"{damage.position + damage.size}.{others} Restore the file from a copy, or allow the import to leave out "
            "damaged frames (skip_damaged)",
            ErrorCode.SEGMENT_CORRUPT,
        )


def _refuse_offsets(stretches: list[Stretch]) -> None:
    for stretch in stretches:
        if stretch.last > OFFSET_MAX:
            raise Corrupt(
                f"{stretch.path}: offset {stretch.first} at byte {stretch.position} cannot be: restore the file from a "
                f"copy, or {_NEW_OFFSETS}",
                ErrorCode.SEGMENT_CORRUPT,
            )


def _refuse_disorder(late: list[Stretch]) -> None:
    if late:
        first = late[0]
        raise Corrupt(
            f"{first.path}: offset {first.first} at byte {first.position} comes behind higher ones, and so do "
            f"{sum([stretch.messages for stretch in late]) - 1} other messages. A Danube broker leaves frames so when "
            "several publish at the same time, or when its numbering began anew. Allow to sort them (reorder): every "
            f"message keeps its offset, and it is refused if two have the same. Or {_NEW_OFFSETS}",
            ErrorCode.SEGMENT_CORRUPT,
        )


def _refuse_gaps(stretches: list[Stretch], *, skip_damaged: bool) -> None:
    """Sorted by their first offsets, they must reach from the first to the last."""
    reached = stretches[0]
    for stretch in stretches:
        is_gap = stretch.first > reached.last + 1
        is_explained = skip_damaged and (reached.before_damage or stretch.after_damage)
        if is_gap and not is_explained:
            torn = " which ends in a torn frame," if reached.before_damage else ""
            raise Corrupt(
                f"offsets {reached.last + 1} to {stretch.first - 1} are missing between {reached.path},{torn} and "
                f"{stretch.path}: copy the file that holds them into the folder, or {_NEW_OFFSETS}",
                ErrorCode.SEGMENT_CORRUPT,
            )
        if stretch.last > reached.last:
            reached = stretch


def _in_file_order(stretches: list[Stretch]) -> Iterator[Taken]:
    for stretch in stretches:
        for frame in read_stretch(stretch):
            yield Taken(stretch, frame, 0)


def _in_offset_order(stretches: list[Stretch]) -> Iterator[Taken]:
    """Each offset once, of stretches sorted by their first offsets.

    Raises:
        Corrupt: two frames have the same offset and differ.
    """
    waiting = deque(stretches)
    heads: list[tuple[int, int, Frame, Stretch, Iterator[Frame]]] = []
    """The next frame of each stretch being read, lowest offset first; the number keeps frames from being compared."""
    opened = 0

    def advance(number: int, stretch: Stretch, frames: Iterator[Frame]) -> None:
        frame = next(frames, None)
        if frame is not None:
            heappush(heads, (frame.offset, number, frame, stretch, frames))

    while heads or waiting:
        while waiting and (not heads or waiting[0].first <= heads[0][0]):
            stretch = waiting.popleft()
            advance(opened, stretch, read_stretch(stretch))
            opened += 1
            if len(heads) > OPEN_FILES_MAX:
                raise Corrupt(
                    f"offset {stretch.first} lies in more than {OPEN_FILES_MAX} places: import fewer files at a time, "
                    f"or {_NEW_OFFSETS}",
                    ErrorCode.SEGMENT_CORRUPT,
                )
        offset, number, frame, stretch, frames = heappop(heads)
        copies = 0
        while heads and heads[0][0] == offset:
            _, other_number, other, other_stretch, other_frames = heappop(heads)
            if other.body != frame.body:
                raise _two_messages(stretch, frame, other_stretch, other)
            copies += 1
            advance(other_number, other_stretch, other_frames)
        yield Taken(stretch, frame, copies)
        advance(number, stretch, frames)


def _two_messages(stretch: Stretch, frame: Frame, other_stretch: Stretch, other: Frame) -> Corrupt:
    return Corrupt(
        f"offset {frame.offset} has two different messages: {stretch.path} at byte {frame.position} and "
        f"{other_stretch.path} at byte {other.position}. A Danube broker that was not stopped cleanly numbers from 0 "
        f"again; {_NEW_OFFSETS}",
        ErrorCode.SEGMENT_CORRUPT,
    )
