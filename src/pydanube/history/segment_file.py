"""Segments as files: made of runs, described from their bytes alone, verified."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.convert_job import Converted, ConvertJob
from pydanube.history.entry_columns import columns_of, memory_bytes
from pydanube.history.read_ahead import read_ahead
from pydanube.history.run_entries import Entries, read_entries
from pydanube.history.segment import (
    FORMAT_VERSION,
    KEY_CHECKSUM,
    KEY_CREATED,
    KEY_END_OFFSET,
    KEY_EPOCH,
    KEY_FORMAT,
    KEY_LEDGER,
    KEY_PAYLOAD_BYTES,
    KEY_REMOVED,
    KEY_START_OFFSET,
    KEY_TOPIC,
    KEY_TOPIC_ID,
    SegmentDescriptor,
    segment_id,
)
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName

ROW_GROUP_BYTES_MAX: Final = 256 << 20
"""Well within what Arrow's 32-bit positions reach, whatever a job asks for."""
CHECK_BYTES: Final = 1 << 20
FOOTER_BYTES_MAX: Final = 64 << 20
"""More than a segment of a million row groups has."""

Source: TypeAlias = str | Path | bytes | pa.Buffer
"""A file, or all bytes of one."""

_TAIL_BYTES: Final = 8
_MAGIC: Final = b"PAR1"
_TIMES: Final = ("append_time", "publish_time")


def write_segment(job: ConvertJob) -> Converted:
    """Make one segment of the runs of a job; memory is bounded by a few row groups, however large they are.

    Raises:
        Corrupt: a run is damaged or does not continue the one before; its file and the byte are named.
        Unavailable: the disk failed or has no room.
        Rejected: the runs are of several topics.
    """
    last = job.runs[-1].descriptor
    topic_ids = {run.descriptor.topic_id for run in job.runs}
    if len(topic_ids) > 1:
        raise Rejected(
            f"runs of topics {sorted(topic_ids)} cannot become one segment: convert each for itself"
        )
    row_group_bytes = min(job.row_group_bytes, ROW_GROUP_BYTES_MAX)
    try:
        with (
            closing(read_ahead(job.runs)) as runs,
            SegmentWriter(
                Path(job.spool),
                topic=job.topic,
                topic_id=last.topic_id,
                epoch=last.epoch,
                created_ms=job.created_ms,
                row_group_bytes=row_group_bytes,
            ) as writer,
        ):
            for run in runs:
                for entries in read_entries(run, bytes_wanted=row_group_bytes):
                    for window in _windows(entries, writer):
                        writer.add(columns_of(window))
            return writer.finish()
    except OSError as error:
        raise Unavailable(
            f"a segment of {job.topic} cannot be written to {job.spool}: {error.strerror or error}: make room on the "
            "disk or see to it, it is tried again",
            ErrorCode.STORAGE_FAILED,
        ) from error


def _windows(entries: Entries, writer: SegmentWriter) -> Iterator[Entries]:
    """The entries in parts that fill row groups; an entry is never divided."""
    sizes = np.concatenate([[0], np.cumsum(memory_bytes(entries))])
    messages = np.concatenate([[0], np.cumsum(entries.messages)])
    first = 0
    while first < len(entries):
        size_max, messages_max = writer.room
        end = min(
            int(np.searchsorted(sizes, sizes[first] + size_max, "right")) - 1,
            int(np.searchsorted(messages, messages[first] + messages_max, "right")) - 1,
        )
        end = max(end, first + 1)
        yield entries.part(first, end)
        first = end


def read_facts(source: Source) -> SegmentDescriptor:
    """The descriptor of a segment, from its bytes alone: a file, or what was read of one.

    All bytes are read once for their checksum; columns are not.

    Raises:
        Corrupt: it is not a segment, or says of itself what is not so.
        Unavailable: the disk cannot read it.
    """
    with _opened(source) as file:
        return _describe(file)


def topic_of(source: Source) -> TopicName:
    """The topic a segment says it belongs to; nothing but its footer is read."""
    with _opened(source) as file:
        return _topic(_Facts(_read_footer(file), file.name))


@dataclass(frozen=True, slots=True)
class Findings:
    """What verifying a segment brought to light."""

    place: str
    descriptor: SegmentDescriptor | None
    """None if not even that can be told."""
    row_groups: int
    """Read wholly and found good."""
    messages: int
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


def verify_segment(source: Source) -> Findings:
    """Read everything: checksums of file and pages, offsets, times, counts.

    Damage is told, not raised, and one damaged row group does not hide the next.

    Raises:
        Unavailable: the disk cannot read it.
    """
    problems: list[str] = []
    descriptor = None
    row_groups = messages = payload_bytes = 0
    with _opened(source) as file:
        try:
            descriptor = _describe(file)
        except Corrupt as error:
            problems.append(error.text)
        try:
            parquet = pq.ParquetFile(file.file, page_checksum_verification=True)
            next_offset = _Facts(parquet.metadata, file.name).number(KEY_START_OFFSET)
            for number in range(parquet.metadata.num_row_groups):
                count = parquet.metadata.row_group(number).num_rows
                problem, size = _verify_row_group(parquet, number, next_offset, descriptor)
                if problem:
                    problems.append(f"row group {number} of segment {file.name}: {problem}")
                else:
                    row_groups += 1
                    messages += count
                    payload_bytes += size
                next_offset += count
        except Corrupt as error:
            problems.append(error.text)
        except (pa.ArrowException, OSError) as error:
            _raise_if_of_disk(error)
            problems.append(f"segment {file.name} cannot be read as Parquet: {error}")
        if descriptor is not None and not problems and payload_bytes != descriptor.payload_bytes:
            problems.append(
                f"segment {file.name} has {payload_bytes} bytes of payloads, it says {descriptor.payload_bytes}"
            )
    return Findings(file.name, descriptor, row_groups, messages, tuple(dict.fromkeys(problems)))


def _verify_row_group(
    parquet: pq.ParquetFile, number: int, offset: int, descriptor: SegmentDescriptor | None
) -> tuple[str, int]:
    """What is wrong with a row group that begins at that offset, and the bytes of its payloads."""
    size = 0
    for name in SEGMENT_SCHEMA.names:
        try:
            column = parquet.read_row_group(number, columns=[name], use_threads=False).column(0)
            column.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            _raise_if_of_disk(error)
            return f"column {name} is damaged ({error})", 0
        if name == "offset":
            expected = np.arange(offset, offset + len(column))
            if not np.array_equal(column.to_numpy(), expected):
                return f"offsets do not run from {offset} to {offset + len(column) - 1}", 0
        elif name == "payload":
            size = pc.sum(pc.binary_length(column)).as_py() or 0
        elif name in _TIMES and descriptor is not None and len(column):
            bounds = pc.min_max(column.cast(pa.int64()))
            low, high = _time_bounds(descriptor, name)
            if bounds["min"].as_py() < low or bounds["max"].as_py() > high:
                return f"{name} is not always between {low} and {high}", 0
    return "", size


def _time_bounds(descriptor: SegmentDescriptor, name: str) -> tuple[int, int]:
    if name == "append_time":
        return descriptor.min_append_ms, descriptor.max_append_ms
    return descriptor.min_publish_ms, descriptor.max_publish_ms


@dataclass(frozen=True, slots=True)
class _Opened:
    """A segment that can be read at any position, and what to call it."""

    file: pa.NativeFile
    name: str
    size: int


@contextmanager
def _opened(source: Source) -> Iterator[_Opened]:
    name = str(source) if isinstance(source, (str, Path)) else "in memory"
    try:
        with pa.OSFile(name) if isinstance(source, (str, Path)) else pa.BufferReader(source) as file:
            yield _Opened(file, name, file.size())
    except FileNotFoundError as error:
        raise Corrupt(
            f"segment {name} is missing: restore it from a copy", ErrorCode.SEGMENT_CORRUPT
        ) from error
    except OSError as error:
        raise Unavailable(
            f"segment {name} cannot be read: {error.strerror or error}: see to the disk and try again",
            ErrorCode.STORAGE_FAILED,
        ) from error


def _describe(file: _Opened) -> SegmentDescriptor:
    metadata = _read_footer(file)
    facts = _Facts(metadata, file.name)
    if facts.number(KEY_FORMAT) != FORMAT_VERSION:
        raise facts.wrong(
            f"it is of format version {facts.text(KEY_FORMAT)}: this release knows {FORMAT_VERSION}"
        )
    _topic(facts)
    if _plain_types(metadata.schema.to_arrow_schema()) != _plain_types(SEGMENT_SCHEMA):
        raise facts.wrong("its columns are not those of a segment")
    topic_id, epoch = facts.number(KEY_TOPIC_ID), facts.number(KEY_EPOCH)
    if facts.text(KEY_LEDGER) != f"{topic_id}/{epoch}":
        raise facts.wrong(f"its ledger is {facts.text(KEY_LEDGER)}, not {topic_id}/{epoch}")
    start, end = facts.number(KEY_START_OFFSET), facts.number(KEY_END_OFFSET)
    if start > end or metadata.num_rows != end - start + 1:
        raise facts.wrong(f"it has {metadata.num_rows} messages for offsets {start} to {end}")
    _check_offsets(metadata, facts, start)
    created_ms = facts.number(KEY_CREATED)
    append_ms, publish_ms = (
        _statistics(metadata, facts, "append_time"),
        _statistics(metadata, facts, "publish_time"),
    )
    return SegmentDescriptor(
        segment_id=segment_id(topic_id, start, end, created_ms),
        topic_id=topic_id,
        epoch=epoch,
        start_offset=start,
        end_offset=end,
        size=file.size,
        checksum=_checksum(file, facts),
        created_at=created_ms // 1000,
        min_append_ms=min(append_ms)[0],
        max_append_ms=max(high for _, high in append_ms),
        min_publish_ms=min(publish_ms)[0],
        max_publish_ms=max(high for _, high in publish_ms),
        payload_bytes=facts.number(KEY_PAYLOAD_BYTES),
        removed_messages=facts.number(KEY_REMOVED) if facts.has(KEY_REMOVED) else None,
    )


def _read_footer(file: _Opened) -> pq.FileMetaData:
    tail = file.file.read_at(min(_TAIL_BYTES, file.size), max(file.size - _TAIL_BYTES, 0))
    if len(tail) < _TAIL_BYTES or tail[4:] != _MAGIC:
        raise _not_a_segment(
            file.name, f"no Parquet footer ends at byte {file.size}: it is cut short or no Parquet file"
        )
    if _footer_bytes(file) > min(file.size - 2 * len(_MAGIC), FOOTER_BYTES_MAX):
        raise _not_a_segment(
            file.name, f"its footer of {_footer_bytes(file)} bytes does not fit {file.size} bytes"
        )
    try:
        return pq.ParquetFile(file.file).metadata
    except (pa.ArrowException, OSError) as error:
        _raise_if_of_disk(error)
        raise _not_a_segment(file.name, f"its footer cannot be read ({error})") from error


def _raise_if_of_disk(error: Exception) -> None:
    """Arrow tells damaged bytes by OSError too, but then without a number of the operating system."""
    if isinstance(error, OSError) and error.errno:
        raise error


def _footer_bytes(file: _Opened) -> int:
    return int.from_bytes(file.file.read_at(4, file.size - _TAIL_BYTES), "little")


def _topic(facts: "_Facts") -> TopicName:
    try:
        return TopicName.parse(facts.text(KEY_TOPIC))
    except Rejected as error:
        raise facts.wrong(error.text) from error


def _plain_types(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """Names and types as other programs see them: dictionaries are a matter of how Arrow keeps text."""
    return [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    ]


def _check_offsets(metadata: pq.FileMetaData, facts: "_Facts", start: int) -> None:
    """Row groups must continue each other, as far as their statistics say."""
    for number, bounds in enumerate(_statistics(metadata, facts, "offset")):
        end = start + metadata.row_group(number).num_rows
        if bounds != (start, end - 1):
            raise facts.wrong(
                f"row group {number} has offsets {bounds[0]} to {bounds[1]}, not {start} to {end - 1}"
            )
        start = end


def _statistics(metadata: pq.FileMetaData, facts: "_Facts", name: str) -> list[tuple[int, int]]:
    """Smallest and largest value of a column in each row group."""
    column = SEGMENT_SCHEMA.get_field_index(name)
    bounds: list[tuple[int, int]] = []
    for number in range(metadata.num_row_groups):
        # The columns before the first nested one are numbered alike by Arrow and Parquet.
        statistics: Any = metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            raise facts.wrong(f"row group {number} does not say between which values {name} is")
        # As numbers: times may lie beyond what Python's own type can say.
        bounds.append((statistics.min_raw, statistics.max_raw))
    return bounds


def _checksum(file: _Opened, facts: "_Facts") -> str:
    """Of the whole file, after that of all before the footer was found right."""
    footer_at = file.size - _TAIL_BYTES - _footer_bytes(file)
    checksum = _continued(0, file, 0, footer_at)
    if f"{checksum:08x}" != facts.text(KEY_CHECKSUM):
        raise facts.wrong(
            f"bytes 0 to {footer_at - 1} have checksum {checksum:08x}, its footer says {facts.text(KEY_CHECKSUM)}"
        )
    return f"{_continued(checksum, file, footer_at, file.size):08x}"


def _continued(checksum: int, file: _Opened, start: int, end: int) -> int:
    for position in range(start, end, CHECK_BYTES):
        checksum = crc32c(file.file.read_at(min(CHECK_BYTES, end - position), position), checksum)
    return checksum


class _Facts:
    """The key/value metadata of a segment's footer."""

    def __init__(self, metadata: pq.FileMetaData, name: str) -> None:
        self._values: dict[bytes, bytes] = metadata.metadata or {}
        self._name = name

    def has(self, key: str) -> bool:
        return key.encode() in self._values

    def text(self, key: str) -> str:
        value = self._values.get(key.encode())
        if value is None:
            raise self.wrong(f"its footer lacks {key}, so another program made it")
        return value.decode(errors="replace")

    def number(self, key: str) -> int:
        text = self.text(key)
        if not (text.isascii() and text.isdecimal() and len(text) <= 20):
            raise self.wrong(f"{key} is {text[:40]!r}, not a number")
        return int(text)

    def wrong(self, why: str) -> Corrupt:
        return _not_a_segment(self._name, why)


def _not_a_segment(name: str, why: str) -> Corrupt:
    return Corrupt(f"segment {name}: {why}: restore it from a copy", ErrorCode.SEGMENT_CORRUPT)
