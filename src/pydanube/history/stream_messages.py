"""Segment columns as `StreamMessage` bytes, whole columns at a time.

Protobuf takes fields in any order, so a message is the concatenation of one column of encoded bytes per field. What is
the same in all rows is encoded once and repeated by the join.
"""

from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.protocol.messages import encode_varint

Part = Any
"""An Arrow binary scalar, the same for all rows, or a binary array with nulls for rows that lack the field."""

_EMPTY: Final = pa.scalar(b"", pa.binary())

# Tags of a StreamMessage's fields: number and wire type.
_REQUEST_ID: Final = 0x08
_MSG_ID: Final = 0x12
_PAYLOAD: Final = 0x1A
_PUBLISH_TIME: Final = 0x20
_PRODUCER_NAME: Final = 0x2A
_SUBSCRIPTION_NAME: Final = 0x32
_ATTRIBUTE: Final = 0x3A
_SCHEMA_ID: Final = 0x40
_SCHEMA_VERSION: Final = 0x48
_ROUTING_KEY: Final = 0x52
# Of a MsgID's.
_PRODUCER_ID: Final = 0x08
_TOPIC_NAME: Final = 0x12
_BROKER_ADDR: Final = 0x1A
# Of a map entry's.
_KEY: Final = 0x0A
_VALUE: Final = 0x12


def stream_messages(batch: pa.RecordBatch, topic: str) -> pa.BinaryArray:
    """The messages of these rows of SEGMENT_SCHEMA as published, without `topic_offset`."""
    column = batch.column
    topic_bytes = topic.encode()
    msg_id = _joined(
        [
            _numbers(_PRODUCER_ID, column("producer_id")),
            _constant(bytes((_TOPIC_NAME,)) + encode_varint(len(topic_bytes)) + topic_bytes),
            _texts(_BROKER_ADDR, column("broker_addr")),
        ]
    )
    fields = [
        _numbers(_REQUEST_ID, column("request_id")),
        _sized(_MSG_ID, msg_id),
        _numbers(_PUBLISH_TIME, column("publish_time")),
        _texts(_PRODUCER_NAME, column("producer_name")),
        _texts(_SUBSCRIPTION_NAME, column("subscription_name")),
        _attributes(column("attributes")),
        _numbers(_SCHEMA_ID, column("schema_id")),
        _numbers(_SCHEMA_VERSION, column("schema_version")),
        _texts(_ROUTING_KEY, column("routing_key")),
    ]
    # Those that differ come first: the join copies what is the same in one go, with the length of the payload if that
    # is, too. The payload is not sized first, which would copy it once more.
    fields.sort(key=lambda part: isinstance(part, pa.Scalar))
    return _joined([*fields, _lengths(_PAYLOAD, column("payload")), column("payload")])


def _numbers(tag: int, column: pa.Array) -> Part:
    """A varint field; nothing where the column is null."""
    if column.null_count == len(column):
        return _EMPTY
    numbers = column.view(pa.int64())
    if column.null_count == 0:
        return _varints(tag, numbers.to_numpy().view(np.uint64))
    encoded = _varints(tag, pc.fill_null(numbers, 0).to_numpy().view(np.uint64))
    return pc.if_else(column.is_valid(), encoded, _EMPTY)


def _texts(tag: int, column: pa.Array) -> Part:
    """A text field; nothing where the column is null."""
    if column.null_count == len(column):
        return _EMPTY
    if not isinstance(column, pa.DictionaryArray):
        return _sized(tag, column.cast(pa.binary()))
    indices = column.indices
    first, last = pc.min_max(indices).values()
    if column.null_count == 0 and first == last:
        value = column.dictionary[first.as_py()].as_py().encode()
        return _constant(bytes((tag,)) + encode_varint(len(value)) + value)
    return _sized(tag, column.dictionary.cast(pa.binary())).take(indices)


def _attributes(column: pa.MapArray) -> Part:
    """All entries of each row's map, one field each."""
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return _EMPTY
    entry = _joined(
        [
            _sized(_KEY, column.keys.slice(first, last - first).cast(pa.binary())),
            _sized(_VALUE, column.items.slice(first, last - first).cast(pa.binary())),
        ]
    )
    fields = _sized(_ATTRIBUTE, entry)
    # Entries of a row lie side by side, so a row's bytes are what its first to its last entry take.
    _, ends, data = fields.buffers()
    bounds = np.frombuffer(ends, np.int32, len(fields) + 1)[offsets - first]
    return _binary(bounds, data)


def _sized(tag: int, values: Part) -> Part:
    """A field of bytes: tag, length, the bytes."""
    if not isinstance(values, pa.Array):
        data = values.as_py()
        return _constant(bytes((tag,)) + encode_varint(len(data)) + data)
    return pc.binary_join_element_wise(_lengths(tag, values), values, _EMPTY)


def _lengths(tag: int, values: pa.Array) -> Part:
    """What comes before the bytes of a field: tag and length."""
    lengths = pc.binary_length(values)
    if values.null_count:
        lengths = pc.fill_null(lengths, 0)
    return _varints(tag, lengths.to_numpy().astype(np.uint64))


def _varints(tag: int, values: npt.NDArray[np.uint64]) -> Part:
    """The tag and the number of each row; at least one row."""
    smallest, largest = int(values.min()), int(values.max())
    if smallest == largest:
        return _constant(bytes((tag,)) + encode_varint(largest))
    fewest, most = _digits(smallest), _digits(largest)
    count = len(values)
    # Row 0 has the tags, row k the k-th digits; a digit's highest bit says whether another one follows.
    encoded = np.empty((most + 1, count), np.uint8)
    encoded[0] = tag
    for digit in range(most):
        encoded[digit + 1] = values >> np.uint64(7 * digit)
    encoded[1:fewest] |= 0x80
    encoded[most] &= 0x7F
    if fewest == most:
        return _binary(np.arange(0, count * (most + 1) + 1, most + 1, dtype=np.int32), encoded.T.ravel())
    present = np.ones((most + 1, count), np.bool_)
    for digit in range(fewest, most):
        follows = values >= np.uint64(1 << 7 * digit)
        encoded[digit] = np.where(follows, encoded[digit] | 0x80, encoded[digit] & 0x7F)
        present[digit + 1] = follows
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(present.sum(axis=0), out=ends[1:])
    return _binary(ends, encoded.T[present.T])


def _digits(value: int) -> int:
    """Bytes of a varint."""
    return max((value.bit_length() + 6) // 7, 1)


def _binary(ends: npt.NDArray[np.int32], data: Any) -> pa.BinaryArray:
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def _joined(parts: list[Part]) -> Part:
    """One after the other, row by row."""
    joined: list[Part] = []
    for is_constant, found in groupby(parts, lambda part: isinstance(part, pa.Scalar)):
        adjacent = list(found)
        joined += [_constant(b"".join([part.as_py() for part in adjacent]))] if is_constant else adjacent
    if len(joined) == 1:
        return joined[0]
    return pc.binary_join_element_wise(*joined, _EMPTY, null_handling="replace", null_replacement=b"")


def _constant(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())
