"""Rows, the StreamMessages of gRPC producers, as columns of a segment."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from pydanube.history.attribute_maps import map_column
from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.field_scan import (
    FieldScan,
    Found,
    IntArray,
    MalformedFieldError,
    NumberArray,
    ScannedBytes,
    scan_fields,
)
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.columns import ATTRIBUTE_MAP, TIME
from pydanube.protocol.native.head_scan import TIME_MS_MAX

_NUMBER: Final = 0
_BYTES: Final = 2

_STREAM_MESSAGE: Final = {
    1: _NUMBER,
    2: _BYTES,
    3: _BYTES,
    4: _NUMBER,
    5: _BYTES,
    6: _BYTES,
    7: _BYTES,
    8: _NUMBER,
    9: _NUMBER,
    10: _BYTES,
}
_MSG_ID: Final = {1: _NUMBER, 2: _BYTES, 3: _BYTES, 5: _NUMBER}
_ATTRIBUTE: Final = {1: _BYTES, 2: _BYTES}

# Tags of StreamMessage.
_REQUEST_ID: Final = 0x08
_MSG_ID_TAG: Final = 0x12
_PAYLOAD: Final = 0x1A
_PUBLISH_TIME: Final = 0x20
_PRODUCER_NAME: Final = 0x2A
_SUBSCRIPTION_NAME: Final = 0x32
_ATTRIBUTES: Final = 0x3A
_SCHEMA_ID: Final = 0x40
_SCHEMA_VERSION: Final = 0x48
_ROUTING_KEY: Final = 0x52
# Tags of MsgID and of an attribute.
_PRODUCER_ID: Final = 0x08
_TOPIC_NAME: Final = 0x12
_BROKER_ADDR: Final = 0x1A
_KEY: Final = 0x0A
_VALUE: Final = 0x12

BoolArray = npt.NDArray[np.bool_]


def scan_rows(
    data: ScannedBytes, starts: IntArray, ends: IntArray, offsets: IntArray, append_ms: IntArray
) -> pa.RecordBatch:
    """The messages at data[starts:ends], which lie one behind the other, as columns of `SEGMENT_SCHEMA`.

    Raises:
        Corrupt: one of them is no StreamMessage; its offset is named.
    """
    try:
        return _scan(data, starts, ends, offsets, append_ms)
    except MalformedFieldError as error:
        row = int(np.searchsorted(starts, error.position, "right")) - 1
        # An empty message begins where the next one does, but has no bytes to be wrong.
        raise _no_message(int(offsets[row]), error.position - int(starts[row]), error.why) from error


def _scan(
    data: ScannedBytes, starts: IntArray, ends: IntArray, offsets: IntArray, append_ms: IntArray
) -> pa.RecordBatch:
    scan = scan_fields(data, starts, ends, _STREAM_MESSAGE)
    ids = [
        (found, scan_fields(data, found.starts, found.starts + found.lengths, _MSG_ID))
        for found in scan.found[_MSG_ID_TAG]
    ]
    attributes = _Attributes(data, scan.found[_ATTRIBUTES])
    unfinished = np.concatenate(
        [
            scan.unfinished,
            attributes.unfinished,
            *[found.messages[inner.unfinished] for found, inner in ids],
        ]
    )
    if unfinished.size:
        return _scan_with_parsed(data, starts, ends, offsets, append_ms, np.unique(unfinished))
    count = len(starts)
    texts = _Texts(data, starts)
    publish_times = np.minimum(_numbers(scan.found[_PUBLISH_TIME], count)[0], np.uint64(TIME_MS_MAX))
    in_ids = _of_ids(ids)
    for found in in_ids[_TOPIC_NAME]:
        texts.check(found)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets),
            _times(publish_times.view(np.int64)),
            _times(append_ms),
            texts.column(scan.found[_PRODUCER_NAME]).dictionary_encode(),
            texts.column(scan.found[_ROUTING_KEY], absent_is_null=True),
            attributes.column(count),
            _optional_numbers(scan.found[_SCHEMA_ID], count),
            _optional_numbers(scan.found[_SCHEMA_VERSION], count, mask=0xFFFF_FFFF),
            texts.binary(scan.found[_PAYLOAD]),
            pa.array(_numbers(in_ids[_PRODUCER_ID], count)[0].view(np.int64)),
            pa.array(_numbers(scan.found[_REQUEST_ID], count)[0].view(np.int64)),
            texts.column(in_ids[_BROKER_ADDR], empty_is_null=True).dictionary_encode(),
            texts.column(scan.found[_SUBSCRIPTION_NAME], empty_is_null=True).dictionary_encode(),
        ],
        schema=SEGMENT_SCHEMA,
    )


def _of_ids(ids: Sequence[tuple[Found, FieldScan]]) -> dict[int, list[Found]]:
    """What was found in msg_id fields, by message: a repeated msg_id overwrites field by field."""
    merged: dict[int, list[Found]] = {_PRODUCER_ID: [], _TOPIC_NAME: [], _BROKER_ADDR: []}
    for outer, inner in ids:
        for tag, all_found in merged.items():
            all_found += [
                found._replace(messages=outer.messages[found.messages]) for found in inner.found[tag]
            ]
    return merged


def _times(values: IntArray) -> pa.Array:
    return pa.array(values).view(TIME)


def _numbers(found: Sequence[Found], count: int) -> tuple[NumberArray, BoolArray]:
    """The number each message has, 0 if it has none, and whether it has one."""
    if len(found) == 1 and len(found[0].messages) == count:
        return found[0].values, np.ones(count, np.bool_)
    values = np.zeros(count, np.uint64)
    present = np.zeros(count, np.bool_)
    for messages, _, _, numbers in found:
        values[messages] = numbers
        present[messages] = True
    return values, present


def _optional_numbers(found: Sequence[Found], count: int, *, mask: int = (1 << 64) - 1) -> pa.Array:
    if not found:
        return pa.nulls(count, pa.int64())
    values, present = _numbers(found, count)
    return pa.array((values & np.uint64(mask)).view(np.int64), mask=~present)


class _Texts:
    """Makes columns of the bytes that fields of messages refer to."""

    def __init__(self, data: ScannedBytes, starts: IntArray) -> None:
        self._data = data
        self._starts = starts

    def binary(
        self, found: Sequence[Found], *, absent_is_null: bool = False, empty_is_null: bool = False
    ) -> pa.Array:
        count = len(self._starts)
        if not found and (absent_is_null or empty_is_null):
            return pa.nulls(count, pa.binary())
        if len(found) == 1 and len(found[0].messages) == count:
            _, starts, lengths, _ = found[0]
            absent = None
        else:
            # What a message lacks is empty and lies in the message, so that positions never go back.
            starts, lengths = self._starts.copy(), np.zeros(count, np.int64)
            absent = np.ones(count, np.bool_)
            for one in found:
                starts[one.messages] = one.starts
                lengths[one.messages] = one.lengths
                absent[one.messages] = False
        if empty_is_null:
            absent = lengths == 0
        elif not absent_is_null:
            absent = None
        return copied_bytes(self._data, starts, lengths, absent)

    def column(
        self, found: Sequence[Found], *, absent_is_null: bool = False, empty_is_null: bool = False
    ) -> pa.Array:
        if len(found) > 1:
            for one in found:
                # A field that comes twice counts once, but what it replaces must be text too.
                self.check(one)
        binary = self.binary(found, absent_is_null=absent_is_null, empty_is_null=empty_is_null)
        return _as_text(binary, self._starts)

    def check(self, found: Found) -> None:
        """Refuse what is not UTF-8."""
        _as_text(copied_bytes(self._data, found.starts, found.lengths), found.starts)


def copied_bytes(
    data: ScannedBytes, starts: IntArray, lengths: IntArray, absent: BoolArray | None = None
) -> pa.Array:
    """A binary column of data[starts:starts + lengths], which lie one behind the other.

    The data is taken for a column of these values and of what lies between them, of which then every second is taken.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + lengths
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data.buffer)]
    values_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers, null_count=0)
    return values_and_gaps.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=absent))


def _as_text(binary: pa.Array, starts: IntArray) -> pa.Array:
    try:
        return binary.cast(pa.utf8())
    except pa.ArrowInvalid:
        for number, value in enumerate(binary.to_pylist()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise MalformedFieldError(int(starts[number]), "a text field is not UTF-8") from error
        raise


class _Attributes:
    """The attributes of all messages, each with the message it belongs to."""

    def __init__(self, data: ScannedBytes, found: Sequence[Found]) -> None:
        self._data = data
        self._count = sum(len(one.messages) for one in found)
        self.unfinished = np.empty(0, np.int64)
        """Messages of which an attribute has too many fields."""
        if self._count:
            starts = np.concatenate([one.starts for one in found])
            # By position, so by message and in the order of the message.
            order = np.argsort(starts, kind="stable")
            self._starts = starts[order]
            ends = self._starts + np.concatenate([one.lengths for one in found])[order]
            self._messages = np.concatenate([one.messages for one in found])[order]
            self._scan = scan_fields(data, self._starts, ends, _ATTRIBUTE)
            self.unfinished = self._messages[self._scan.unfinished]

    def column(self, count: int) -> pa.Array:
        """A map for each message, null if it has no attributes; the last value of a key counts."""
        if not self._count:
            return pa.nulls(count, ATTRIBUTE_MAP)
        texts = _Texts(self._data, self._starts)
        keys = texts.column(self._scan.found[_KEY])
        values = texts.column(self._scan.found[_VALUE])
        return map_column(self._messages, keys, values, count)


def _scan_with_parsed(  # noqa: PLR0917
    data: ScannedBytes,
    starts: IntArray,
    ends: IntArray,
    offsets: IntArray,
    append_ms: IntArray,
    crowded: IntArray,
) -> pa.RecordBatch:
    """Columns of messages of which some, the crowded ones, have more fields than a scan has steps."""
    others = np.delete(np.arange(len(starts)), crowded)
    scanned = _scan(data, starts[others], ends[others], offsets[others], append_ms[others])
    parsed = _parsed_rows(
        [data.buffer[start:end] for start, end in zip(starts[crowded], ends[crowded], strict=True)],
        offsets[crowded],
        append_ms[crowded],
    )
    # The dictionaries differ, and a table knows how to make them one.
    both = pa.Table.from_batches([scanned, parsed]).unify_dictionaries().combine_chunks()
    order = np.argsort(np.concatenate([others, crowded]))
    return both.take(pa.array(order)).combine_chunks().to_batches()[0]


def _parsed_rows(bodies: Sequence[bytes], offsets: IntArray, append_ms: IntArray) -> pa.RecordBatch:
    """The same columns, from a parser that takes one message at a time."""
    messages: list[StreamMessage] = []
    for body, offset in zip(bodies, offsets, strict=True):
        try:
            messages.append(StreamMessage.FromString(body))
        except DecodeError as error:
            raise _no_message(int(offset), 0, str(error)) from error

    def optional(name: str) -> list[Any]:
        return [getattr(message, name) if message.HasField(name) else None for message in messages]

    def signed(values: Sequence[int | None]) -> list[int | None]:
        return [value if value is None or value < 1 << 63 else value - (1 << 64) for value in values]

    columns: list[Any] = [
        offsets,
        [min(message.publish_time, TIME_MS_MAX) for message in messages],
        append_ms.tolist(),
        [message.producer_name for message in messages],
        optional("routing_key"),
        [list(message.attributes.items()) or None for message in messages],
        signed(optional("schema_id")),
        optional("schema_version"),
        [message.payload for message in messages],
        signed([message.msg_id.producer_id for message in messages]),
        signed([message.request_id for message in messages]),
        [message.msg_id.broker_addr or None for message in messages],
        [message.subscription_name or None for message in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SEGMENT_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def _no_message(offset: int, position: int, why: str) -> Corrupt:
    return Corrupt(
        f"the message at offset {offset} is no StreamMessage: {why} (byte {position} of it): restore the run from a copy",
        ErrorCode.SEGMENT_CORRUPT,
    )
