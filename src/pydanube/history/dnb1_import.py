"""The history of a topic of a Danube broker, made into segments of ours.

First every frame of every file is looked at (`dnb1_source.py`), so that what cannot be imported is refused before
anything is written. Then the files are read side by side in the order of offsets: an offset that lies in several files
with the same bytes is taken once, and every message keeps its offset. Where that cannot be, because an offset has two
different messages or none, the import is refused with the reason, unless the caller allows new offsets.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.dnb1_source import (
    SourceFile,
    Stretch,
    find_files,
    in_file,
    read_stretch,
    survey_file,
)
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol.dnb1 import HEADER_BYTES, DamagedFrame, Frame, Message, decode_message
from pydanube.protocol.native.timing import TIME_MS_MAX, TIMING_ATTRIBUTES

BATCH_MESSAGES: Final = 4096
BATCH_BYTES: Final = 8 << 20
SEGMENT_BYTES: Final = 128 << 20
"""Payload bytes of one segment, about."""
ROW_GROUP_BYTES: Final = 8 << 20
OPEN_FILES_MAX: Final = 256
RENAMED_PREFIX: Final = "imported-"
"""Put before attributes that would delay or expire messages here and meant nothing where they come from."""

_OFFSET_MAX: Final = (1 << 63) - 1
_PLAUSIBLE_MAX: Final = 1 << 40
"""No checksum covers the offset of a frame: one above this is damage."""
_NEW_OFFSETS: Final = "allow new offsets (renumber) to import every message in the order of the files"

Progress = Callable[[int], None]
"""Called with the bytes done since the last call: those of every file once, then those of the frames taken."""


@dataclass(slots=True)
class ImportReport:
    """What an import found and made."""

    source_topic: str = ""
    """The topic the messages say they were published to."""
    start_offset: int = 0
    next_offset: int = 0
    messages: int = 0
    payload_bytes: int = 0
    frame_bytes: int = 0
    """Of the frames taken."""
    kept: int = 0
    """Messages that have the offset they had."""
    renumbered: int = 0
    """Messages that have another one."""
    duplicates: int = 0
    """Frames left out because another file, or another place of the same one, has the very same."""
    out_of_order: int = 0
    """Messages that lay behind one of a higher offset."""
    renamed_attributes: int = 0
    skipped_bytes: int = 0
    """Bytes in the middle of files that are no frames."""
    skipped_messages: int = 0
    """Frames whose checksum is right, but that hold no message."""
    torn_bytes: int = 0
    """Bytes cut off at the ends of files."""
    files: list[SourceFile] = field(default_factory=list)
    identical_files: list[Path] = field(default_factory=list)
    """Files left out because another one holds the same bytes."""
    segments: list[SegmentDescriptor] = field(default_factory=list)


def import_dnb1(
    directory: Path,
    spool: Path,
    *,
    topic: TopicName,
    created_ms: int,
    renumber: bool = False,
    skip_damaged: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    on_progress: Progress | None = None,
) -> ImportReport:
    """Make segments of `topic` in the folder `spool`, which exists, of the files in `directory`.

    Args:
        renumber: where offsets are missing or were given twice, give new ones in the order of the files.
        skip_damaged: leave out damaged frames; the messages behind them close ranks.

    Raises:
        Rejected: the directory holds no files of a Danube topic.
        Corrupt: they cannot be imported as asked; file and byte are named. Nothing stays in `spool`.
        Unavailable: a file cannot be read or written.
    """
    report = survey(directory, on_progress=on_progress)
    batches = read_batches(report, renumber=renumber, skip_damaged=skip_damaged)
    frame_bytes_told = 0
    with ExitStack() as undo:
        undo.callback(_remove, spool, report.segments)
        try:
            pending = next(batches, None)
            while pending is not None:
                with SegmentWriter(
                    spool,
                    topic=str(topic),
                    topic_id=0,  # The broker that takes the segments knows what it will be.
                    epoch=0,
                    created_ms=created_ms,
                    row_group_bytes=ROW_GROUP_BYTES,
                ) as writer:
                    room = segment_bytes
                    while pending is not None and room > 0:
                        writer.add(pa.Table.from_batches([pending]))
                        room -= pending.column("payload").nbytes
                        if on_progress:
                            on_progress(report.frame_bytes - frame_bytes_told)
                            frame_bytes_told = report.frame_bytes
                        pending = next(batches, None)
                    report.segments.append(writer.finish().descriptor)
        except OSError as error:
            raise Unavailable(
                f"segments cannot be written to {spool}: {error.strerror or error}; make room and import again",
                ErrorCode.STORAGE_FAILED,
            ) from error
        undo.pop_all()
    return report


def survey(directory: Path, *, on_progress: Progress | None = None) -> ImportReport:
    """Look at every frame in the directory, without decoding messages."""
    report = ImportReport()
    seen: dict[tuple[int, bytes], Path] = {}
    for path in find_files(directory):
        file = survey_file(path)
        if on_progress:
            on_progress(file.size)
        if file.size and seen.setdefault((file.size, file.digest), path) is not path:
            report.identical_files.append(path)
            continue
        report.files.append(file)
        report.torn_bytes += file.torn_bytes
        report.out_of_order += file.out_of_order
        report.skipped_bytes += sum([damage.size for damage in file.damages])
    return report


def read_batches(report: ImportReport, *, renumber: bool, skip_damaged: bool) -> Iterator[pa.RecordBatch]:
    """The messages of the files surveyed as record batches of SEGMENT_SCHEMA, counted in `report`."""
    if not skip_damaged:
        _refuse_damage(report.files)
    stretches = [stretch for file in report.files for stretch in file.stretches]
    if not stretches:
        raise Corrupt(
            "the files hold no whole message: there is nothing to import", ErrorCode.SEGMENT_CORRUPT
        )
    if renumber:
        frames = _in_file_order(stretches)
    else:
        stretches.sort(key=lambda stretch: stretch.first)
        _refuse_gaps(stretches, skip_damaged=skip_damaged)
        frames = _in_offset_order(stretches, report)
    first = stretches[0].first
    report.start_offset = report.next_offset = first if first <= _PLAUSIBLE_MAX else 0
    columns = _Columns(report)
    for stretch, frame in frames:
        try:
            message = decode_message(frame.body, frame.position)
        except DamagedFrame as error:
            if not skip_damaged:
                raise in_file(stretch.path, error) from error
            report.skipped_messages += 1
            continue
        _check_topic(report, stretch, frame, message)
        columns.add(frame, message)
        if columns.is_full:
            yield columns.take()
    if columns.messages:
        yield columns.take()


def _remove(spool: Path, segments: list[SegmentDescriptor]) -> None:
    for segment in segments:
        (spool / segment.segment_id).unlink(missing_ok=True)


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


def _refuse_gaps(stretches: list[Stretch], *, skip_damaged: bool) -> None:
    """Sorted by their first offsets, they must reach from the first to the last."""
    reached = stretches[0]
    for stretch in stretches:
        if stretch.first > _PLAUSIBLE_MAX:
            raise Corrupt(
                f"{stretch.path}: offset {stretch.first} at byte {stretch.position} cannot be: {_NEW_OFFSETS}",
                ErrorCode.SEGMENT_CORRUPT,
            )
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


def _in_file_order(stretches: list[Stretch]) -> Iterator[tuple[Stretch, Frame]]:
    for stretch in stretches:
        for frame in read_stretch(stretch):
            yield stretch, frame


def _in_offset_order(stretches: list[Stretch], report: ImportReport) -> Iterator[tuple[Stretch, Frame]]:
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
        while heads and heads[0][0] == offset:
            _, other_number, other, other_stretch, other_frames = heappop(heads)
            if other.body != frame.body:
                raise _two_messages(stretch, frame, other_stretch, other)
            report.duplicates += 1
            advance(other_number, other_stretch, other_frames)
        yield stretch, frame
        advance(number, stretch, frames)


def _two_messages(stretch: Stretch, frame: Frame, other_stretch: Stretch, other: Frame) -> Corrupt:
    return Corrupt(
        f"offset {frame.offset} has two different messages: {stretch.path} at byte {frame.position} and "
        f"{other_stretch.path} at byte {other.position}. A Danube broker that was not stopped cleanly numbers from 0 "
        f"again; {_NEW_OFFSETS}",
        ErrorCode.SEGMENT_CORRUPT,
    )


def _check_topic(report: ImportReport, stretch: Stretch, frame: Frame, message: Message) -> None:
    if not report.source_topic:
        report.source_topic = message.topic_name
    if message.topic_name != report.source_topic:
        raise Corrupt(
            f"{stretch.path}: the message at byte {frame.position} is of topic {message.topic_name[:255]}, those before "
            f"it of {report.source_topic[:255]}: import one topic at a time",
            ErrorCode.SEGMENT_CORRUPT,
        )


class _Columns:
    """Messages by column, until there are enough for a record batch; gives offsets and counts in the report."""

    def __init__(self, report: ImportReport) -> None:
        self._report = report
        self._first = report.next_offset
        self._rows: list[tuple[Any, ...]] = []
        self._payload_bytes = 0

    @property
    def messages(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= BATCH_MESSAGES or self._payload_bytes >= BATCH_BYTES

    def add(self, frame: Frame, message: Message) -> None:
        report = self._report
        if frame.offset == report.next_offset:
            report.kept += 1
        else:
            report.renumbered += 1
        report.messages += 1
        report.frame_bytes += HEADER_BYTES + len(frame.body)
        report.next_offset += 1
        report.payload_bytes += len(message.payload)
        self._payload_bytes += len(message.payload)
        self._rows.append(
            (
                min(message.publish_time, TIME_MS_MAX),
                message.producer_name,
                message.routing_key,
                self._attributes(message) if message.attributes else None,
                None if message.schema_id is None else _signed(message.schema_id),
                message.schema_version,
                message.payload,
                _signed(message.producer_id),
                _signed(message.request_id),
                message.broker_addr,
                message.subscription_name,
            )
        )

    def take(self) -> pa.RecordBatch:
        """All messages since the last call, of which there is at least one."""
        offsets = range(self._first, self._report.next_offset)
        times, *others = zip(*self._rows, strict=True)
        # When the broker took a message is not written down: its publish time is the nearest there is.
        columns = [offsets, times, times, *others]
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, SEGMENT_SCHEMA, strict=True)]
        self._rows.clear()
        self._payload_bytes = 0
        self._first = self._report.next_offset
        return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)

    def _attributes(self, message: Message) -> list[tuple[str, str]]:
        attributes = []
        for name, value in message.attributes:
            if name in TIMING_ATTRIBUTES:
                self._report.renamed_attributes += 1
                name = RENAMED_PREFIX + name
            attributes.append((name, value))
        return attributes


def _signed(number: int) -> int:
    """The signed 64-bit number of the same bits."""
    return number - (1 << 64) if number > _OFFSET_MAX else number
