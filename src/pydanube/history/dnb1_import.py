"""The history of a topic of a Danube broker, made into segments of ours.

First every frame of every file is looked at (`dnb1_source.py`), so that what cannot be imported is refused before
anything is written. Then the files are read side by side in the order of offsets: an offset that lies in several files
with the same bytes is taken once, and every message keeps its offset. Where that cannot be, because an offset has two
different messages or none, the import is refused with the reason, unless the caller allows new offsets. Files whose
frames are out of order are refused too, unless the caller allows to sort them.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.dnb1_order import in_order, late_stretches
from pydanube.history.dnb1_source import Progress, SourceFile, Stretch, find_files, in_file, survey_file
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol.dnb1 import HEADER_BYTES, DamagedFrame, Frame, Message, decode_message
from pydanube.protocol.native.head_scan import TIME_MS_MAX
from pydanube.protocol.native.timing import TIMING_ATTRIBUTES

BATCH_MESSAGES: Final = 4096
BATCH_BYTES: Final = 8 << 20
SEGMENT_BYTES: Final = 128 << 20
"""Payload bytes of one segment, about."""
ROW_GROUP_BYTES: Final = 8 << 20
RENAMED_PREFIX: Final = "imported-"
"""Put before attributes that would delay or expire messages here and meant nothing where they come from."""

_I64_MAX: Final = (1 << 63) - 1


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
    out_of_order: list[Stretch] = field(default_factory=list)
    """Frames that lay behind those of higher offsets."""
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
    topic_id: int,
    created_ms: int,
    reorder: bool = False,
    renumber: bool = False,
    skip_damaged: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
    on_progress: Progress | None = None,
) -> ImportReport:
    """Make segments of `topic` in the folder `spool`, which exists, of the files in `directory`.

    Args:
        topic_id: the id that the broker will give the topic.
        reorder: sort frames that are out of order by their offsets, which they keep.
        renumber: where offsets are missing or were given twice, give new ones in the order of the files.
        skip_damaged: leave out damaged frames; the messages behind them close ranks.
        on_progress: told of the bytes of every file as it is surveyed, then of those of the frames taken.

    Raises:
        Rejected: the directory holds no files of a Danube topic, or the options exclude each other.
        Corrupt: they cannot be imported as asked; file and byte are named. Nothing stays in `spool`.
        Unavailable: a file cannot be read or written.
    """
    if reorder and renumber:
        raise Rejected("reorder keeps every offset and renumber gives new ones: choose one of them")
    report = survey(directory, on_progress=on_progress)
    batches = read_batches(report, reorder=reorder, renumber=renumber, skip_damaged=skip_damaged)
    frame_bytes_told = 0
    with ExitStack() as undo:
        undo.callback(_remove, spool, report.segments)
        try:
            pending = next(batches, None)
            while pending is not None:
                with SegmentWriter(
                    spool,
                    topic=str(topic),
                    topic_id=topic_id,
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
        file = survey_file(path, on_progress)
        if file.size and seen.setdefault((file.size, file.digest), path) is not path:
            report.identical_files.append(path)
            continue
        report.files.append(file)
        report.torn_bytes += file.torn_bytes
        report.skipped_bytes += sum([damage.size for damage in file.damages])
    report.out_of_order = late_stretches(report.files)
    return report


def read_batches(
    report: ImportReport, *, reorder: bool, renumber: bool, skip_damaged: bool
) -> Iterator[pa.RecordBatch]:
    """The messages of the files surveyed as record batches of SEGMENT_SCHEMA, counted in `report`."""
    first, frames = in_order(report.files, reorder=reorder, renumber=renumber, skip_damaged=skip_damaged)
    report.start_offset = report.next_offset = first
    columns = _Columns(report)
    for stretch, frame, copies in frames:
        report.duplicates += copies
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
    return number - (1 << 64) if number > _I64_MAX else number
