"""The messages of a row group as entries of the log: batches where they came in batches, rows where they came as rows.

A segment does not keep the borders of batches, and nobody needs them: a consumer sees messages, their offsets and
times. Messages in a row that a batch can hold together (one producer, one time of append, one delivery time) become
one batch, cut where a reader wants no more. Whole columns at a time: no loop here is one over messages.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.damage import DamagedSegmentError
from pydanube.history.reserved_attributes import find_reserved
from pydanube.history.stream_messages import stream_messages
from pydanube.protocol.native.batch import (
    ATTRIBUTES,
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    BATCH_MESSAGES_MAX,
    COMPACTION_KEY,
    PAYLOAD,
    PUBLISH_TIME,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    SHARED_BYTES_MAX,
)
from pydanube.protocol.native.columns import encode_record_batch, schema_of
from pydanube.protocol.native.timing import TIMING_ATTRIBUTES
from pydanube.protocol.native_pb2 import BatchHead

Row = tuple[int, bytes, int, bool]
"""Base offset and body of an entry, when it was appended, and whether it is timed; as in the log."""

BATCH_RUN_MIN: Final = 16
"""Fewer messages than this go as rows: a batch costs 55 µs to make, a row 1 µs to make and a few to deliver."""

_ARROW_OVERHEAD_BYTES: Final = 2048
"""More than what an Arrow message needs beside its values: its description, and padding of up to 15 buffers."""
_HEAD_FIELDS_BYTES: Final = 128
"""More than the numbers in a head take."""
_UNSIGNED_64: Final = (1 << 64) - 1

Numbers = npt.NDArray[np.int64]


class RowGroup:
    """Decoded messages with consecutive offsets. Immutable, so that threads and readers share it."""

    def __init__(self, batch: pa.RecordBatch, first_offset: int, topic: str) -> None:
        """Take rows of SEGMENT_SCHEMA, at least one, of which the first has to have that offset.

        Raises:
            DamagedSegmentError: the values are none a writer writes.
        """
        _check_values(batch, first_offset)
        self.first_offset: Final = first_offset
        self.next_offset: Final = first_offset + batch.num_rows
        self._batch = batch
        self._topic = topic
        self._append_ms = _numbers(batch.column("append_time"))
        self._publish_ms = _numbers(batch.column("publish_time"))
        self._reserved = find_reserved(batch.column("attributes"))
        self._is_timed: npt.NDArray[np.bool_] | None = None
        if self._reserved is not None:
            self._is_timed = np.logical_or.reduce(self._reserved.timing)
        names = batch.column("producer_name")
        self._names: list[str] = names.dictionary.to_pylist()
        self._name_numbers = names.indices.to_numpy()
        self._producer_ids = _numbers(batch.column("producer_id"))
        self._optional_columns = self._find_optional_columns()
        self._run_ends, self._run_is_rows = self._find_runs()
        self._bytes_before = self._measure()
        self.memory_bytes: Final[int] = batch.nbytes + 48 * batch.num_rows

    @property
    def append_bounds(self) -> tuple[int, int]:
        """The earliest and the latest time of append."""
        return int(self._append_ms.min()), int(self._append_ms.max())

    def first_from_time(self, append_ms: int) -> int | None:
        """The first offset appended at that moment or later."""
        later = self._append_ms >= append_ms
        number = int(later.argmax())
        return self.first_offset + number if later[number] else None

    def rows(self, offset: int, *, messages_max: int, bytes_max: int) -> list[Row]:
        """Entries from that offset on, one at least, then no more than these messages and bytes."""
        rows: list[Row] = []
        start = offset - self.first_offset
        stop = min(start + max(messages_max, 1), self._batch.num_rows)
        run = int(np.searchsorted(self._run_ends, start, side="right"))
        room = bytes_max
        while start < stop:
            run_end = int(self._run_ends[run])
            is_rows = self._run_is_rows[run]
            end = self._fitting_end(start, min(run_end, stop), room, is_rows=is_rows)
            if end == start:
                if rows:
                    break
                end = start + 1
            if is_rows:
                made, made_bytes = self._as_rows(start, end, room)
                start += len(made)
            else:
                made, made_bytes = self._as_batch(start, end)
                start = end
            if made_bytes > room and rows:
                break
            rows += made
            room -= made_bytes
            if start == run_end:
                run += 1
        return rows

    def _as_rows(self, start: int, end: int, room: int) -> tuple[list[Row], int]:
        """These messages as rows, as many as fit but one at least, and the bytes of their bodies."""
        messages = stream_messages(self._batch.slice(start, end - start), self._topic)
        sizes = np.cumsum(pc.binary_length(messages).to_numpy())
        count = max(int(np.searchsorted(sizes, room, side="right")), 1)
        end = start + count
        is_timed = [False] * count if self._is_timed is None else self._is_timed[start:end].tolist()
        offset = self.first_offset + start
        bodies = messages.slice(0, count).to_pylist()
        times = self._append_ms[start:end].tolist()
        rows = list(zip(range(offset, offset + count), bodies, times, is_timed, strict=True))
        return rows, int(sizes[count - 1])

    def _as_batch(self, start: int, end: int) -> tuple[list[Row], int]:
        """These messages, of one run, as one batch, or as a row if one alone does not fit; and the body's bytes."""
        if end - start == 1 and self._estimated_bytes(start, end) > BATCH_BYTES_MAX:
            # Its head held what is now in columns, so it grew beyond what a batch may have.
            return self._as_rows(start, end, 0)
        count = end - start
        head = self._head_of_run(start)
        columns = PAYLOAD
        arrays = [self._batch.column("payload").slice(start, count)]
        times = self._publish_ms[start:end]
        if times.min() == times.max():
            head.publish_time = int(times[0])
        else:
            columns |= PUBLISH_TIME
            arrays.append(self._batch.column("publish_time").slice(start, count))
        for column, values in self._optional_columns:
            own = values.slice(start, count)
            if own.null_count < count:
                columns |= column
                arrays.append(own)
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))
        is_timed = self._is_timed is not None and bool(self._is_timed[start])
        body = encode_record_batch(batch, head)
        return [(self.first_offset + start, body, int(self._append_ms[start]), is_timed)], len(body)

    def _head_of_run(self, start: int) -> BatchHead:
        """What all messages of the run that begins at or before `start` share."""
        head = BatchHead(
            producer_id=int(self._producer_ids[start]) & _UNSIGNED_64,
            producer_name=self._names[self._name_numbers[start]],
        )
        if self._reserved is not None:
            for name, value in zip(_TIMING_FIELDS, self._reserved.timing[:, start].tolist(), strict=True):
                if value:
                    setattr(head, name, value)
        return head

    def _find_optional_columns(self) -> list[tuple[int, pa.Array]]:
        """Columns in which some message has a value and a batch may do without, in the order batches have them."""
        column = self._batch.column
        reserved = self._reserved
        columns = [
            (ROUTING_KEY, column("routing_key")),
            (ATTRIBUTES, column("attributes") if reserved is None else reserved.others),
            (SCHEMA_ID, column("schema_id").view(pa.uint64())),
            (SCHEMA_VERSION, column("schema_version").cast(pa.uint32())),
        ]
        if reserved is not None:
            columns.append((COMPACTION_KEY, reserved.compaction_keys))
        return [(name, values) for name, values in columns if values.null_count < len(values)]

    def _fitting_end(self, start: int, end: int, room: int, *, is_rows: bool) -> int:
        """How far bodies from `start` on may reach; `start` if the first message does not fit."""
        if not is_rows:
            end = min(end, start + self._messages_max(start))
            room = min(room, BATCH_BYTES_MAX) - self._fixed_bytes(start)
        reach = self._bytes_before[start] + max(room, 0)
        return min(int(np.searchsorted(self._bytes_before, reach, side="right")) - 1, end)

    def _messages_max(self, start: int) -> int:
        """Messages a batch with the head of that run may have."""
        return min(BATCH_MESSAGES_MAX, SHARED_BYTES_MAX // self._head_bytes(start))

    def _fixed_bytes(self, start: int) -> int:
        return _ARROW_OVERHEAD_BYTES + BATCH_HEADER_BYTES + self._head_bytes(start)

    def _head_bytes(self, start: int) -> int:
        return _HEAD_FIELDS_BYTES + 4 * len(self._names[self._name_numbers[start]])

    def _estimated_bytes(self, start: int, end: int) -> int:
        return int(self._bytes_before[end] - self._bytes_before[start]) + self._fixed_bytes(start)

    def _find_runs(self) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Where messages end that make one batch, or that all go as rows; and which of both."""
        came_as_row = self._batch.column("request_id").is_valid().to_numpy(zero_copy_only=False)
        shared = [self._append_ms, self._producer_ids, self._name_numbers]
        if self._reserved is not None:
            shared += list(self._reserved.timing)
        differs = came_as_row[1:] != came_as_row[:-1]
        for values in shared:
            differs |= values[1:] != values[:-1]
        ends = np.append(np.flatnonzero(differs) + 1, len(came_as_row))
        sizes = np.diff(ends, prepend=0)
        is_rows = came_as_row[ends - 1] | (sizes < BATCH_RUN_MIN)
        # Rows share nothing, so neighbours are one run.
        last = np.append(~(is_rows[1:] & is_rows[:-1]), True)
        return ends[last], is_rows[last]

    def _measure(self) -> Numbers:
        """Bytes of all messages before each one, and of all; no less than a batch of them needs."""
        column = self._batch.column
        attributes = column("attributes")
        before = _ends(column("payload"))
        each = 12  # where the payload ends, and a time
        for name, size in (("routing_key", 5), ("schema_id", 9), ("schema_version", 5)):
            if column(name).null_count < len(attributes):
                each += size
        if column("routing_key").null_count < len(attributes):
            before += _ends(column("routing_key"))
        if attributes.null_count < len(attributes):
            entries = _ends(attributes.keys) + _ends(attributes.items)
            entries += 9 * np.arange(len(entries))
            before += entries[attributes.offsets.to_numpy()]
            # Twice the place where it ends: a compaction key is among the attributes here.
            each += 10
        before += each * np.arange(len(before))
        return before


_TIMING_FIELDS: Final = tuple([name.removeprefix("x-").replace("-", "_") for name in TIMING_ATTRIBUTES])
"""What a head calls them."""


def _check_values(batch: pa.RecordBatch, first_offset: int) -> None:
    """Refuse what the types alone would allow."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DamagedSegmentError(f"its columns do not hold what they should ({error})") from error
    for field in SEGMENT_SCHEMA:
        if not field.nullable and batch.column(field.name).null_count:
            raise DamagedSegmentError(f"a value of column {field.name} is missing")
    offsets = _numbers(batch.column("offset"))
    if not np.array_equal(offsets, np.arange(first_offset, first_offset + len(offsets))):
        raise DamagedSegmentError(
            f"its offsets are not {first_offset} to {first_offset + len(offsets) - 1}, one after the other"
        )
    if _numbers(batch.column("publish_time")).min() < 0:
        raise DamagedSegmentError("a message was published before 1970")
    if batch.column("attributes").items.null_count:
        raise DamagedSegmentError("the value of an attribute is missing")
    versions = pc.min_max(batch.column("schema_version"))
    if versions["max"].is_valid and not 0 <= versions["min"].as_py() <= versions["max"].as_py() < 1 << 32:
        raise DamagedSegmentError("a schema version is none")


def _numbers(column: pa.Array) -> Numbers:
    """The values of a column without nulls; not copied."""
    numbers: Numbers = column.view(pa.int64()).to_numpy()
    return numbers


def _ends(column: pa.Array) -> Numbers:
    """Bytes of all values before each one, and of all."""
    if len(column) == 0:
        return np.zeros(1, np.int64)  # Arrow may leave out the buffer
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets.astype(np.int64) - int(offsets[0])
