"""Writes one segment: tables of `SEGMENT_SCHEMA` in, a Parquet file out, whole and synced or not there at all."""

import os
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.convert_job import Converted
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
    unfinished_name,
)
from pydanube.kernel.errors import Corrupt, ErrorCode

ROW_GROUP_ROWS_MAX: Final = 131_072
SYNC_EVERY_BYTES: Final = 4 << 20
"""The file is synced piece by piece, so that the journal's own syncs never wait for a whole one."""
COMPRESSION_LEVEL: Final = 1
SAMPLE_PIECES: Final = 32
SAMPLE_PIECE_BYTES: Final = 8 << 10
WORTH_COMPRESSING: Final = 0.9
"""Payloads that shrink less are stored as they are: written and read in half the time."""

_SMALL_NUMBER_STEPS: Final = (
    "offset",
    "publish_time",
    "append_time",
    "schema_id",
    "schema_version",
    "producer_id",
    "request_id",
)
_FEW_VALUES: Final = ("producer_name", "attributes.key_value.key", "broker_addr", "subscription_name")
_OTHERS: Final = ("routing_key", "attributes.key_value.value")


class SegmentWriter:
    """Takes messages in the order of their offsets. Leaving its `with` before `finish` leaves no file behind."""

    def __init__(
        self, spool: Path, *, topic: str, topic_id: int, epoch: int, created_ms: int, row_group_bytes: int
    ) -> None:
        self._spool = spool
        self._topic = topic
        self._topic_id = topic_id
        self._epoch = epoch
        self._created_ms = created_ms
        self._row_group_bytes = row_group_bytes
        self._waiting: list[pa.Table] = []
        """The next row group, as far as it has come."""
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._file: _CheckedFile | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._bounds = _Bounds()
        self._removed = 0

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        self._file.abandon()
        if self._parquet is not None:
            self._parquet.close()

    @property
    def room(self) -> tuple[int, int]:
        """Bytes and messages that still fit into the row group; never none."""
        return self._row_group_bytes - self._waiting_bytes, ROW_GROUP_ROWS_MAX - self._waiting_rows

    def add(self, table: pa.Table, *, removed: int = 0) -> None:
        """Take the next messages, of which so many were removed; they are written once they fill a row group."""
        self._bounds.include(table)
        self._removed += removed
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self._waiting_rows += table.num_rows
        if self._waiting_bytes >= self._row_group_bytes or self._waiting_rows >= ROW_GROUP_ROWS_MAX:
            self._write_row_group()

    def finish(self) -> Converted:
        """Write what is left and give the file its name. At least one message was added."""
        self._write_row_group()
        assert self._file is not None
        assert self._parquet is not None
        bounds = self._bounds
        facts = {
            KEY_FORMAT: FORMAT_VERSION,
            KEY_TOPIC: self._topic,
            KEY_TOPIC_ID: self._topic_id,
            KEY_LEDGER: f"{self._topic_id}/{self._epoch}",
            KEY_EPOCH: self._epoch,
            KEY_START_OFFSET: bounds.start_offset,
            KEY_END_OFFSET: bounds.next_offset - 1,
            KEY_CREATED: self._created_ms,
            KEY_PAYLOAD_BYTES: bounds.payload_bytes,
            KEY_REMOVED: self._removed,
            # Row groups are out when they are written, so the footer is all that is missing.
            KEY_CHECKSUM: f"{self._file.checksum:08x}",
        }
        self._parquet.add_key_value_metadata({key: str(value) for key, value in facts.items()})
        self._parquet.close()
        name = segment_id(self._topic_id, bounds.start_offset, bounds.next_offset - 1, self._created_ms)
        descriptor = SegmentDescriptor(
            segment_id=name,
            topic_id=self._topic_id,
            epoch=self._epoch,
            start_offset=bounds.start_offset,
            end_offset=bounds.next_offset - 1,
            size=self._file.size,
            checksum=f"{self._file.checksum:08x}",
            created_at=self._created_ms // 1000,
            min_append_ms=bounds.append_ms[0],
            max_append_ms=bounds.append_ms[1],
            min_publish_ms=bounds.publish_ms[0],
            max_publish_ms=bounds.publish_ms[1],
            payload_bytes=bounds.payload_bytes,
            removed_messages=self._removed,
        )
        path = self._spool / name
        self._file.finish(path)
        self._file = None
        return Converted(path=str(path), descriptor=descriptor)

    def _write_row_group(self) -> None:
        if not self._waiting:
            return
        table = pa.concat_tables(self._waiting).unify_dictionaries()
        self._waiting.clear()
        self._waiting_bytes = self._waiting_rows = 0
        if self._parquet is None:
            name = unfinished_name(self._topic_id, self._bounds.start_offset, self._created_ms)
            self._file = _CheckedFile(self._spool / name)
            self._parquet = _open_parquet(self._file, is_worth_compressing(table.column("payload")))
        self._parquet.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)


def _open_parquet(file: "_CheckedFile", compress_payload: bool) -> pq.ParquetWriter:
    compressed = [*_SMALL_NUMBER_STEPS, *_FEW_VALUES, *_OTHERS]
    if compress_payload:
        compressed.append("payload")
    codecs = dict.fromkeys(compressed, "ZSTD")
    codecs.setdefault("payload", "NONE")
    return pq.ParquetWriter(
        file,
        SEGMENT_SCHEMA,
        compression=codecs,
        compression_level=dict.fromkeys(compressed, COMPRESSION_LEVEL),
        use_dictionary=list(_FEW_VALUES),
        column_encoding=dict.fromkeys(_SMALL_NUMBER_STEPS, "DELTA_BINARY_PACKED"),
        write_statistics=["offset", "publish_time", "append_time"],
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(0)],
    )


def is_worth_compressing(payloads: pa.ChunkedArray) -> bool:
    """Whether a sample of these payloads, taken evenly, shrinks enough."""
    chunk = max(payloads.chunks, key=len)
    _, offsets, data = chunk.buffers()
    edges = np.frombuffer(offsets, np.int32)
    start, end = int(edges[chunk.offset]), int(edges[chunk.offset + len(chunk)])
    if start == end:
        return False
    step = max((end - start) // SAMPLE_PIECES, SAMPLE_PIECE_BYTES)
    values = memoryview(data)[start:end]
    sample = b"".join([values[at : at + SAMPLE_PIECE_BYTES] for at in range(0, end - start, step)])
    shrunk = pa.Codec("zstd", compression_level=COMPRESSION_LEVEL).compress(sample)
    return bool(shrunk.size < WORTH_COMPRESSING * len(sample))


class _Bounds:
    """What a descriptor says of the messages, gathered on the way."""

    def __init__(self) -> None:
        self.start_offset = -1
        self.next_offset = -1
        self.append_ms = (0, 0)
        self.publish_ms = (0, 0)
        self.payload_bytes = 0

    def include(self, table: pa.Table) -> None:
        offsets = table.column("offset").to_numpy()
        first = int(offsets[0])
        append_ms, publish_ms = _min_max(table, "append_time"), _min_max(table, "publish_time")
        if self.start_offset < 0:
            self.start_offset = self.next_offset = first
            self.append_ms, self.publish_ms = append_ms, publish_ms
        if first != self.next_offset or (np.diff(offsets) != 1).any():
            raise Corrupt(
                f"messages from offset {first} on do not continue a segment that has come to {self.next_offset}: "
                "make it of contiguous runs",
                ErrorCode.SEGMENT_CORRUPT,
            )
        self.next_offset = int(offsets[-1]) + 1
        self.append_ms = _widened(self.append_ms, append_ms)
        self.publish_ms = _widened(self.publish_ms, publish_ms)
        self.payload_bytes += pc.sum(pc.binary_length(table.column("payload"))).as_py()


def _min_max(table: pa.Table, name: str) -> tuple[int, int]:
    # As numbers: times may lie beyond what Python's own type can say.
    bounds = pc.min_max(table.column(name).cast(pa.int64()))
    return bounds["min"].as_py(), bounds["max"].as_py()


def _widened(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])


class _CheckedFile:
    """The sink of the Parquet writer: knows the checksum of what went through it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._synced = 0
        self._abandoned = False
        self.size = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        if self._abandoned:
            return len(data)
        self.checksum = crc32c(data, self.checksum)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        self.size += len(data)
        if self.size - self._synced >= SYNC_EVERY_BYTES:
            os.fdatasync(self._fd)
            self._synced = self.size
        return len(data)

    def flush(self) -> None:
        """Every write goes to the file at once."""

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        """The Parquet writer is done with it; the name comes with `finish`."""

    def finish(self, path: Path) -> None:
        os.fsync(self._fd)
        os.close(self._fd)
        os.rename(self._path, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def abandon(self) -> None:
        self._abandoned = True
        os.close(self._fd)
        self._path.unlink(missing_ok=True)
