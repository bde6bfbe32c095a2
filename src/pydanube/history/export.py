"""Sealed history in the forms other programs take: JSON lines, Parquet, or frames as a Danube broker keeps them.

A segment becomes one file, written under another name until it is whole. Memory holds a few thousand messages, however
large the segment is.
"""

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from pydanube.history.columns import MESSAGE_COLUMNS, SEGMENT_SCHEMA
from pydanube.history.dnb1_export import dnb1_frames
from pydanube.history.segment import SegmentDescriptor, segment_id
from pydanube.history.segment_file import topic_of
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected, Unavailable

BATCH_ROWS: Final = 4096
"""Messages in memory at a time, and never more than a row group of them."""
ROW_GROUP_BYTES: Final = 8 << 20
COPY_BYTES: Final = 1 << 20

_PARTIAL: Final = ".part"
_U64_MASK: Final = (1 << 64) - 1


class Exported(NamedTuple):
    path: Path
    first_offset: int
    last_offset: int
    size: int

    @property
    def messages(self) -> int:
        return self.last_offset - self.first_offset + 1


class ExportedMessage(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A message as a line of JSON; what it does not have is left out. Times are Unix milliseconds."""

    offset: int
    publish_time: int
    append_time: int
    producer_name: str
    routing_key: str | None = None
    attributes: dict[str, str] | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    payload_encoding: str | None = None
    """`base64` if the payload is no UTF-8 text; else it is that text."""
    payload: str


def export_segment(
    file: Path,
    segment: SegmentDescriptor,
    folder: Path,
    *,
    form: str,
    from_offset: int = 0,
    to_offset: int | None = None,
) -> Exported:
    """Write the messages of a segment that lie in the range, both ends included, into a new file in the folder.

    Raises:
        Conflict: the folder has a file of that name.
        Corrupt: the segment is not what was written.
        Unavailable: the file cannot be written.
    """
    first = max(from_offset, segment.start_offset)
    last = segment.end_offset if to_offset is None else min(to_offset, segment.end_offset)
    if first > last:
        raise Rejected(
            f"{segment.segment_id} has offsets {segment.start_offset} to {segment.end_offset}: none of them is in the "
            "range asked for"
        )
    try:
        # Before anything else looks at it: Arrow trusts the footer of a file more than is good.
        checksum = file_checksum(file)
        if checksum != segment.checksum:
            raise _damaged(file, f"its checksum is {checksum}, not {segment.checksum}")
        target = _WRITERS[form](file, segment, folder, first, last)
        return Exported(target, first, last, target.stat().st_size)
    except OSError as error:
        raise Unavailable(
            f"an export to {folder} failed: {error.strerror or error}; make room or choose another folder",
            ErrorCode.STORAGE_FAILED,
        ) from error


def file_checksum(file: Path) -> str:
    """CRC-32C of all bytes, in hexadecimal, as a descriptor has it."""
    checksum = 0
    with file.open("rb") as source:
        while data := source.read(COPY_BYTES):
            checksum = crc32c(data, checksum)
    return f"{checksum:08x}"


def json_lines(batch: pa.RecordBatch) -> bytes:
    """A line of JSON for each message."""
    column = {name: batch.column(name) for name in MESSAGE_COLUMNS}
    for name in ("publish_time", "append_time"):
        # As numbers: times may lie beyond what Python's own type can say.
        column[name] = column[name].cast(pa.int64())
    rows = zip(*(column[name].to_pylist() for name in MESSAGE_COLUMNS), strict=True)
    lines: list[bytes] = []
    for offset, published, appended, producer, key, attributes, schema_id, schema_version, payload in rows:
        text, encoding = _payload_text(payload)
        message = ExportedMessage(
            offset=offset,
            publish_time=published,
            append_time=appended,
            producer_name=producer,
            routing_key=key,
            attributes=dict(attributes) if attributes else None,
            schema_id=None if schema_id is None else schema_id & _U64_MASK,
            schema_version=schema_version,
            payload_encoding=encoding,
            payload=text,
        )
        lines.append(msgspec.json.encode(message) + b"\n")
    return b"".join(lines)


def read_messages(file: Path, segment: SegmentDescriptor, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The messages with these offsets, both ends included, a part of a row group at a time; pages are verified."""
    with (
        _damage_named(file),
        pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False) as source,
    ):
        offset = segment.start_offset
        for number in range(source.num_row_groups):
            end = offset + source.metadata.row_group(number).num_rows
            if end <= first or offset > last:
                offset = end
                continue
            for batch in source.iter_batches(BATCH_ROWS, row_groups=[number]):
                if batch.column("offset")[0].as_py() != offset:
                    raise _damaged(file, f"offset {offset} is not where it belongs")
                skip = max(first - offset, 0)
                wanted = batch.slice(skip, max(last + 1 - offset - skip, 0))
                offset += batch.num_rows
                if wanted.num_rows:
                    yield wanted
        if offset != segment.next_offset:
            raise _damaged(file, f"it ends with offset {offset - 1}, not with {segment.end_offset}")


def _payload_text(payload: bytes) -> tuple[str, str | None]:
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def _to_json_lines(file: Path, segment: SegmentDescriptor, folder: Path, first: int, last: int) -> Path:
    target = folder / f"data-{first}-{segment.created_at}.jsonl"
    with _new_file(target) as sink:
        for batch in read_messages(file, segment, first, last):
            sink.write(json_lines(batch))
    return target


def _to_dnb1(file: Path, segment: SegmentDescriptor, folder: Path, first: int, last: int) -> Path:
    target = folder / f"data-{first}-{segment.created_at}.dnb1"
    topic = str(topic_of(file))
    with _new_file(target) as sink:
        for batch in read_messages(file, segment, first, last):
            sink.write(dnb1_frames(batch, topic))
    return target


def _to_parquet(file: Path, segment: SegmentDescriptor, folder: Path, first: int, last: int) -> Path:
    """A segment again, for everything that reads segments: the same bytes if all of it is wanted."""
    if (first, last) == (segment.start_offset, segment.end_offset):
        target = folder / segment.segment_id
        with _new_file(target) as sink, file.open("rb") as source:
            shutil.copyfileobj(source, sink, COPY_BYTES)
        return target
    created_ms = segment.created_at * 1000
    target = folder / segment_id(segment.topic_id, first, last, created_ms)
    _check_is_new(target)
    with SegmentWriter(
        folder,
        topic=str(topic_of(file)),
        topic_id=segment.topic_id,
        epoch=segment.epoch,
        created_ms=created_ms,
        row_group_bytes=ROW_GROUP_BYTES,
    ) as writer:
        for batch in read_messages(file, segment, first, last):
            writer.add(pa.Table.from_batches([batch]).cast(SEGMENT_SCHEMA))
        return Path(writer.finish().path)


_WRITERS: Final = {"jsonl": _to_json_lines, "dnb1": _to_dnb1, "parquet": _to_parquet}


@contextmanager
def _new_file(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears whole or not at all."""
    _check_is_new(target)
    partial = target.with_name(target.name + _PARTIAL)
    try:
        with partial.open("wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _check_is_new(target: Path) -> None:
    if target.exists():
        raise Conflict(f"{target} exists: export into an empty folder")


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    """What Arrow finds wrong with a file, as our own error."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise _damaged(file, str(error).partition("\n")[0]) from error


def _damaged(file: Path, why: str) -> Corrupt:
    return Corrupt(f"segment {file} is damaged: {why}; restore it from a copy", ErrorCode.SEGMENT_CORRUPT)
