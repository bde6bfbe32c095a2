"""The messages of a row group as entries of the log: batches where they came in batches, rows where they came as rows.

A segment does not keep the borders of batches, and nobody needs them: a consumer sees messages, their offsets and
times. Messages in a row that a batch can hold together (one producer, one time of append, one delivery time) become
one batch, cut where a reader wants no more. The others are rows, or for clients that know them merged batches, in
which every message has a time of append and a publisher of its own; those with delivery times stay rows. Whole columns
at a time: no loop here is one over messages.
"""

from functools import cached_property
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.damage import DamagedSegmentError
from pydanube.history.publishers import GroupPublishers
from pydanube.history.reserved_attributes import find_reserved
from pydanube.history.stream_messages import StreamMessages
from pydanube.protocol.native.batch import (
    APPEND_TIME,
    ATTRIBUTES,
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    BATCH_MESSAGES_MAX,
    COMPACTION_KEY,
    NONE,
    PAYLOAD,
    PUBLISH_TIME,
    PUBLISHER,
    REQUEST_ID,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    SHARED_BYTES_MAX,
    batch_front,
    encode_batch,
)
from pydanube.protocol.native.columns import schema_of
from pydanube.protocol.native.ipc_message import binary_front
from pydanube.protocol.native.timing import TIMING_ATTRIBUTES
from pydanube.protocol.native_pb2 import BatchHead

Row = tuple[int, bytes, int, bool]
"""Base offset and body of an entry, when it was appended, and whether it is timed; as in the log."""

BATCH_RUN_MIN: Final = 16
"""Fewer messages than this go as rows: a batch costs 30 to 55 µs to make, a row 1 µs to make and a few to deliver."""

READY_BYTES_MAX: Final = 1 << 20
"""Of rows that are made by who asks for them: a quarter of a millisecond, and a thread would cost as much."""

MERGED_MESSAGES_MAX: Final = 4096
MERGED_BYTES_MAX: Final = 512 * 1024
"""Of a merged batch: as large as its fixed cost does not tell, and no larger, since it is sent and credited whole."""

_ARROW_OVERHEAD_BYTES: Final = 2048
"""More than what an Arrow message needs beside its values: its description, and padding of up to 22 buffers."""
_MERGED_BYTES: Final = 19
"""What a message has in the columns of merged batches."""
_HEAD_FIELDS_BYTES: Final = 128
"""More than the numbers in a head take."""
_UNSIGNED_64: Final = (1 << 64) - 1

Numbers = npt.NDArray[np.int64]

# What messages become that lie side by side.
ROWS: Final = 0
BATCH: Final = 1
MERGED: Final = 2


class Runs(NamedTuple):
    """Messages that become the same, run by run."""

    ends: Numbers
    kinds: npt.NDArray[np.int8]

    def joined(self) -> "Runs":
        """Neighbours of one kind as one run, but for batches, which share something with nobody else."""
        kinds = self.kinds
        last = np.append((kinds[1:] != kinds[:-1]) | (kinds[1:] == BATCH), True)
        return Runs(self.ends[last], kinds[last])


class RowGroup:
    """Decoded messages with consecutive offsets. Threads and readers share it, nothing of it changes."""

    def __init__(
        self, batch: pa.RecordBatch, first_offset: int, topic: str, *, for_rows: bool = False
    ) -> None:
        """Take rows of SEGMENT_SCHEMA, at least one, of which the first has to have that offset.

        `for_rows` prepares what would be rows without merging, so that `ready_rows` has them.

        Raises:
            DamagedSegmentError: the values are none a writer writes.
        """
        _check_values(batch, first_offset)
        self.first_offset: Final = first_offset
        self.next_offset: Final = first_offset + batch.num_rows
        self._batch = batch
        self._topic = topic
        self._payloads = batch.column("payload")
        self._publish_times = batch.column("publish_time")
        self._append_times = batch.column("append_time")
        self._request_ids = batch.column("request_id").view(pa.uint64())
        self._append_ms = _numbers(self._append_times)
        self._publish_ms = _numbers(self._publish_times)
        self._reserved = find_reserved(batch.column("attributes"))
        self._is_timed: npt.NDArray[np.bool_] | None = None
        if self._reserved is not None:
            self._is_timed = np.logical_or.reduce(self._reserved.timing)
        names = batch.column("producer_name")
        self._names: list[str] = names.dictionary.to_pylist()
        self._name_numbers = names.indices.to_numpy()
        self._producer_ids = _numbers(batch.column("producer_id"))
        self._optional_columns = self._find_optional_columns()
        self._pieces = self._find_pieces()
        self._runs = self._pieces.joined()
        self._messages: StreamMessages | None = None
        memory_bytes = batch.nbytes + 48 * batch.num_rows
        if for_rows and (self._runs.kinds == ROWS).any():
            self._messages = StreamMessages(batch, topic)
            memory_bytes += self._messages.memory_bytes
        self.memory_bytes: Final[int] = memory_bytes

    @property
    def append_bounds(self) -> tuple[int, int]:
        """The earliest and the latest time of append."""
        return int(self._append_ms.min()), int(self._append_ms.max())

    def first_from_time(self, append_ms: int) -> int | None:
        """The first offset appended at that moment or later."""
        later = self._append_ms >= append_ms
        number = int(later.argmax())
        return self.first_offset + number if later[number] else None

    def ready_rows(self, offset: int, *, messages_max: int, bytes_max: int, merged_max: int = 0) -> list[Row]:
        """What of `rows` is prepared: perhaps nothing, but that in no time."""
        messages, start = self._messages, offset - self.first_offset
        if messages is None or merged_max >= BATCH_RUN_MIN:
            return []
        run = int(np.searchsorted(self._runs.ends, start, side="right"))
        if self._runs.kinds[run] != ROWS:
            return []
        end = min(start + max(messages_max, 1), int(self._runs.ends[run]))
        count, size = messages.fitting(start, end, bytes_max)
        return self._made(start, messages.bodies(start, count)) if size <= READY_BYTES_MAX else []

    def rows(self, offset: int, *, messages_max: int, bytes_max: int, merged_max: int = 0) -> list[Row]:
        """Entries from that offset on, one at least, then no more than these messages and bytes.

        Messages that would be rows are merged, up to `merged_max` in one batch, if that is worth it.
        """
        rows: list[Row] = []
        runs = self._runs if merged_max < BATCH_RUN_MIN else self._merging_runs
        start = offset - self.first_offset
        stop = min(start + max(messages_max, 1), self._batch.num_rows)
        run = int(np.searchsorted(runs.ends, start, side="right"))
        room = bytes_max
        while start < stop:
            run_end = int(runs.ends[run])
            kind = int(runs.kinds[run])
            if kind == MERGED:
                end = self._fitting_end(start, min(run_end, stop, start + merged_max), room, kind)
                if end - start < BATCH_RUN_MIN:
                    if rows and end < run_end:
                        break  # the next read has room for a batch
                    kind = ROWS
            if kind != MERGED:
                end = self._fitting_end(start, min(run_end, stop), room, kind)
            if end == start:
                if rows:
                    break
                end = start + 1
            if kind == ROWS:
                made, made_bytes = self._as_rows(start, end, room)
                start += len(made)
            elif kind == BATCH:
                made, made_bytes = self._as_batch(start, end)
                start = end
            else:
                made, made_bytes, start = self._as_merged(start, end)
            if made_bytes > room and rows:
                break
            rows += made
            room -= made_bytes
            if start == run_end:
                run += 1
        return rows

    def _as_rows(self, start: int, end: int, room: int) -> tuple[list[Row], int]:
        """These messages as rows, as many as fit but one at least, and the bytes of their bodies."""
        messages, first = self._messages, start
        if messages is None:
            messages, first = StreamMessages(self._batch.slice(start, end - start), self._topic), 0
        count, size = messages.fitting(first, first + end - start, room)
        return self._made(start, messages.bodies(first, count)), size

    def _made(self, start: int, bodies: list[bytes]) -> list[Row]:
        end = start + len(bodies)
        is_timed = repeat(False) if self._is_timed is None else self._is_timed[start:end].tolist()
        offset = self.first_offset + start
        times = self._append_ms[start:end].tolist()
        return list(zip(range(offset, offset + len(bodies)), bodies, times, is_timed, strict=False))

    def _as_batch(self, start: int, end: int) -> tuple[list[Row], int]:
        """These messages, of one run, as one batch, or as a row if one alone does not fit; and the body's bytes."""
        if end - start == 1 and self._estimated_bytes(start, end) > BATCH_BYTES_MAX:
            # Its head held what is now in columns, so it grew beyond what a batch may have.
            return self._as_rows(start, end, 0)
        head = self._head_of_run(start)
        columns, arrays = self._own_columns(start, end, head)
        is_timed = self._is_timed is not None and bool(self._is_timed[start])
        body = _encoded(columns, arrays, head)
        return [(self.first_offset + start, body, int(self._append_ms[start]), is_timed)], len(body)

    def _as_merged(self, start: int, end: int) -> tuple[list[Row], int, int]:
        """These messages, none of them timed, as one batch; the body's bytes, and the end if a head takes no more."""
        publishers, numbers, end = self._publishers.named(start, end)
        head = BatchHead(publishers=publishers)
        columns, arrays = self._own_columns(start, end, head)
        times = self._append_ms[start:end]
        if not _are_equal(times):
            columns |= APPEND_TIME
            arrays.append(self._append_times.slice(start, end - start))
        if numbers is not None:
            columns |= PUBLISHER
            arrays.append(pa.array(numbers))
        request_ids = self._request_ids.slice(start, end - start)
        if request_ids.null_count < end - start:
            columns |= REQUEST_ID
            arrays.append(request_ids)
        body = _encoded(columns, arrays, head)
        return [(self.first_offset + start, body, int(times[0]), False)], len(body), end

    def _own_columns(self, start: int, end: int, head: BatchHead) -> tuple[int, list[Any]]:
        """What these messages have each for itself; a publish time that all share goes to the head."""
        count = end - start
        columns = PAYLOAD
        arrays = [self._payloads.slice(start, count)]
        times = self._publish_ms[start:end]
        if _are_equal(times):
            head.publish_time = int(times[0])
        else:
            columns |= PUBLISH_TIME
            arrays.append(self._publish_times.slice(start, count))
        for column, values in self._optional_columns:
            own = values.slice(start, count)
            if own.null_count < count:
                columns |= column
                arrays.append(own)
        return columns, arrays

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

    def _fitting_end(self, start: int, end: int, room: int, kind: int) -> int:
        """How far bodies from `start` on may reach; `start` if the first message does not fit."""
        if kind == MERGED:
            end = min(end, start + MERGED_MESSAGES_MAX)
            fixed = _ARROW_OVERHEAD_BYTES + BATCH_HEADER_BYTES + _HEAD_FIELDS_BYTES
            room = min(room, MERGED_BYTES_MAX) - fixed - self._publishers.head_bytes_max
            room -= _MERGED_BYTES * (end - start)
        elif kind == BATCH:
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

    @cached_property
    def _publishers(self) -> GroupPublishers:
        return GroupPublishers(self._batch)

    @cached_property
    def _merging_runs(self) -> Runs:
        """Runs for who takes merged batches."""
        ends, kinds = self._pieces
        can_merge = kinds == ROWS
        if self._reserved is not None:
            can_merge &= ~self._reserved.has_timing[ends - 1]
        if not can_merge.any() or not self._publishers.are_short:
            return self._runs
        merging = Runs(ends, np.where(can_merge, np.int8(MERGED), kinds)).joined()
        too_few = (merging.kinds == MERGED) & (np.diff(merging.ends, prepend=0) < BATCH_RUN_MIN)
        return Runs(merging.ends, np.where(too_few, np.int8(ROWS), merging.kinds)).joined()

    def _find_pieces(self) -> Runs:
        """Messages that share what those of a batch have to, and whether they become one or rows."""
        if self._request_ids.null_count == 0:
            # Rows share nothing: what differs between them need not be found, unless some are timed.
            timed = self._reserved.has_timing if self._reserved is not None else np.zeros(1, np.bool_)
            ends = np.append(np.flatnonzero(timed[1:] != timed[:-1]) + 1, len(self._append_ms))
            return Runs(ends, np.full(len(ends), ROWS, np.int8))
        came_as_row = self._request_ids.is_valid().to_numpy(zero_copy_only=False)
        shared = [self._append_ms, self._producer_ids, self._name_numbers]
        if self._reserved is not None:
            shared += [*self._reserved.timing, self._reserved.has_timing]
        differs = came_as_row[1:] != came_as_row[:-1]
        for values in shared:
            differs |= values[1:] != values[:-1]
        ends = np.append(np.flatnonzero(differs) + 1, len(came_as_row))
        sizes = np.diff(ends, prepend=0)
        is_rows = came_as_row[ends - 1] | (sizes < BATCH_RUN_MIN)
        return Runs(ends, np.where(is_rows, np.int8(ROWS), np.int8(BATCH)))

    @cached_property
    def _bytes_before(self) -> Numbers:
        """Bytes of all messages before each one, and of all; no less than a batch of them needs."""
        column = self._batch.column
        attributes = column("attributes")
        before = _ends(self._payloads)
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


def _encoded(columns: int, arrays: list[Any], head: BatchHead) -> bytes:
    if columns == PAYLOAD:
        return _encoded_payloads(arrays[0], head.SerializeToString())
    # Their values were checked for the whole row group.
    message = pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns)).serialize()
    return encode_batch(
        head.SerializeToString(),
        memoryview(message),
        codec=NONE,
        count=len(arrays[0]),
        raw_bytes=message.size,
        columns=columns,
    )


def _encoded_payloads(payloads: pa.BinaryArray, head: bytes) -> bytes:
    """What Arrow would make of them, which copies them twice."""
    count = len(payloads)
    _, ends, data = payloads.buffers()
    offsets = np.frombuffer(ends, np.int32)[payloads.offset : payloads.offset + count + 1]
    start, end = int(offsets[0]), int(offsets[-1])
    size = end - start
    message_front = binary_front((offsets - start).tobytes(), size)
    padding = bytes(-size % 8)
    front = batch_front(head, NONE, count, len(message_front) + size + len(padding), PAYLOAD)
    return b"".join((front, message_front, memoryview(data)[start:end] if size else b"", padding))


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
    versions = batch.column("schema_version")
    if versions.null_count < len(versions):
        smallest, largest = pc.min_max(versions).values()
        if not 0 <= smallest.as_py() <= largest.as_py() < 1 << 32:
            raise DamagedSegmentError("a schema version is none")


def _numbers(column: pa.Array) -> Numbers:
    """The values of a column without nulls; not copied."""
    numbers: Numbers = column.view(pa.int64()).to_numpy()
    return numbers


def _are_equal(numbers: Numbers) -> bool:
    return bool(numbers[0] == numbers[-1] and numbers.min() == numbers.max())


def _ends(column: pa.Array) -> Numbers:
    """Bytes of all values before each one, and of all."""
    if len(column) == 0:
        return np.zeros(1, np.int64)  # Arrow may leave out the buffer
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return offsets.astype(np.int64) - int(offsets[0])
