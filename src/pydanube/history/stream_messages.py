"""Segment columns as `StreamMessage` bytes, whole columns at a time.

Protobuf takes fields in any order, so a message is the concatenation of columns of encoded bytes. What is the same in
all rows is encoded once and repeated by the join.
"""

from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.protocol.messages import encode_varint

Part = Any
"""What messages have next to each other: an Arrow binary scalar, the same for all; a binary array, with nulls for those
that have nothing there; or a dictionary of such values, as what it repeats may be long."""

Numbers = npt.NDArray[np.int64]

_EMPTY: Final = pa.scalar(b"", pa.binary())
_SHIFTS: Final = np.arange(0, 70, 7, dtype=np.uint64)[:, np.newaxis]
"""Of the digits of a varint."""

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


class StreamMessages:
    """The messages of these rows of SEGMENT_SCHEMA as published, without `topic_offset`.

    Fields are encoded once for all of them; what is asked for then costs a join of these few rows, and is in memory no
    longer than its reader wants.
    """

    def __init__(self, batch: pa.RecordBatch, topic: str) -> None:
        self._parts = _adjacent(_fields(batch, topic))
        self._ends: Numbers = np.cumsum(_sizes(self._parts))
        encoded = [part.nbytes for part in self._parts[:-1] if isinstance(part, pa.Array)]
        self.memory_bytes: Final[int] = self._ends.nbytes + sum(encoded)
        """What they need beside the rows, at most: payloads are not copied."""

    def fitting(self, start: int, end: int, room: int) -> tuple[int, int]:
        """How many from `start` on, up to `end`, have room, one at least; and their bytes."""
        before = int(self._ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(self._ends, before + room, side="right"))
        end = max(min(fitting, end), start + 1)
        return end - start, int(self._ends[end - 1]) - before

    def bodies(self, start: int, count: int) -> list[bytes]:
        parts = [part.slice(start, count) if isinstance(part, pa.Array) else part for part in self._parts]
        bodies: list[bytes] = _joined(parts).to_pylist()
        return bodies


def _fields(batch: pa.RecordBatch, topic: str) -> list[Part]:
    """What the messages consist of, in order; the payloads are last."""
    column = batch.column
    msg_id = [
        *_numbers([(_PRODUCER_ID, column("producer_id"))]),
        *_sized_constant(_TOPIC_NAME, topic.encode()),
        *_text(_BROKER_ADDR, column("broker_addr")),
    ]
    numbers = _numbers(
        [
            (_REQUEST_ID, column("request_id")),
            (_PUBLISH_TIME, column("publish_time")),
            (_SCHEMA_ID, column("schema_id")),
            (_SCHEMA_VERSION, column("schema_version")),
        ]
    )
    fields = [
        *[[part] for part in numbers],
        _nested(_MSG_ID, msg_id),
        _text(_PRODUCER_NAME, column("producer_name")),
        _text(_SUBSCRIPTION_NAME, column("subscription_name")),
        _attributes(column("attributes")),
        _text(_ROUTING_KEY, column("routing_key")),
    ]
    # Those that differ come first: the join copies what is the same in one go, with the length of the payload if that
    # is, too.
    fields.sort(key=lambda parts: all(isinstance(part, pa.Scalar) for part in parts))
    return [part for parts in [*fields, _sized(_PAYLOAD, column("payload"))] for part in parts]


def _numbers(fields: list[tuple[int, pa.Array]]) -> list[Part]:
    """Fields of a tag and a number without a sign; nothing where the column is null."""
    varints = [
        _Varint(tag, column.view(pa.uint64())) for tag, column in fields if column.null_count < len(column)
    ]
    constants = [varint.constant for varint in varints if varint.constant is not None]
    others = [varint for varint in varints if varint.constant is None]
    return [*constants, _encoded(others)] if others else constants


def _text(tag: int, column: pa.Array) -> list[Part]:
    """A text field; nothing where the column is null."""
    if column.null_count == len(column):
        return []
    if not isinstance(column, pa.DictionaryArray):
        return _sized(tag, column.cast(pa.binary()))
    indices = column.indices
    first, last = pc.min_max(indices).values()
    if column.null_count == 0 and first == last:
        return _sized_constant(tag, column.dictionary[first.as_py()].as_py().encode())
    values = _joined(_sized(tag, column.dictionary.cast(pa.binary())))
    return [pa.DictionaryArray.from_arrays(indices, values)]


def _attributes(column: pa.MapArray) -> list[Part]:
    """All entries of each row's map, one field each."""
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return []
    entry = [
        *_sized(_KEY, column.keys.slice(first, last - first).cast(pa.binary())),
        *_sized(_VALUE, column.items.slice(first, last - first).cast(pa.binary())),
    ]
    fields = _joined(_nested(_ATTRIBUTE, entry))
    # Entries of a row lie side by side, so a row's bytes are what its first to its last entry take.
    _, ends, data = fields.buffers()
    bounds = np.frombuffer(ends, np.int32, len(fields) + 1)[offsets - first]
    return [_binary(bounds, data)]


def _sized(tag: int, values: pa.Array) -> list[Part]:
    """A field of bytes: tag, length, the bytes, which are not copied; nothing where they are null."""
    return [*_numbers([(tag, pc.binary_length(values).cast(pa.int64()))]), values]


def _nested(tag: int, parts: list[Part]) -> list[Part]:
    """A field that consists of these: tag, length, the parts."""
    if all(isinstance(part, pa.Scalar) for part in parts):
        return _sized_constant(tag, b"".join([part.as_py() for part in parts]))
    sizes = _sizes(parts)
    lengths = pa.Array.from_buffers(pa.int64(), len(sizes), [None, pa.py_buffer(sizes)])
    return [*_numbers([(tag, lengths)]), *parts]


def _sized_constant(tag: int, data: bytes) -> list[Part]:
    return [_constant(bytes((tag,)) + encode_varint(len(data)) + data)]


def _sizes(parts: list[Part]) -> Numbers:
    """Bytes of all parts together, row by row; one of them at least is an array."""
    first, *others = [_lengths(part) for part in parts if isinstance(part, pa.Array)]
    constant = sum([len(part.as_py()) for part in parts if isinstance(part, pa.Scalar)])
    sizes: Numbers = first + np.int64(constant)
    for lengths in others:
        sizes += lengths
    return sizes


def _lengths(part: pa.Array) -> npt.NDArray[np.int32]:
    """Bytes of each value, 0 where there is none."""
    if isinstance(part, pa.DictionaryArray):
        lengths = pc.binary_length(part.dictionary).take(part.indices)
    else:
        lengths = pc.binary_length(part)
    numbers: npt.NDArray[np.int32] = lengths.fill_null(0).to_numpy()
    return numbers


class _Varint:
    """A field of a tag and a number, which one row at least has."""

    def __init__(self, tag: int, numbers: pa.UInt64Array) -> None:
        """Rows whose number is null lack the field."""
        smallest, largest = pc.min_max(numbers).values()
        self.tag: Final = tag
        self.numbers: Final = numbers
        self.fewest: Final = _digits(smallest.as_py()) if numbers.null_count == 0 else 1
        self.most: Final = _digits(largest.as_py())
        self.differs: Final = numbers.null_count > 0 or self.fewest < self.most
        """Whether it takes more bytes in one row than in another."""
        self.constant: Part = None
        """The field, if it is the same in all rows."""
        if smallest == largest and numbers.null_count == 0:
            self.constant = _constant(bytes((tag,)) + encode_varint(largest.as_py()))


def _encoded(fields: list[_Varint]) -> pa.BinaryArray:
    """These fields of each row, side by side."""
    # One line for each tag and each digit; a digit's highest bit says whether another one follows. In few calls, since
    # after each of them a thread may have to wait until it may go on.
    count = len(fields[0].numbers)
    encoded = np.zeros((sum([1 + field.most for field in fields]), count), np.uint8)
    is_there = np.ones(encoded.shape, np.bool_) if any(field.differs for field in fields) else None
    fixed: list[int] = []
    for field in fields:
        first = len(fixed)
        fixed += [field.tag, *[0x80] * (field.fewest - 1), *[0] * (field.most - field.fewest + 1)]
        numbers = field.numbers.fill_null(0).to_numpy()
        np.right_shift(numbers, _SHIFTS[: field.most], out=encoded[first + 1 : len(fixed)], casting="unsafe")
        if is_there is None:
            continue
        for digit in range(field.fewest, field.most):
            follows = numbers >= np.uint64(1 << 7 * digit)
            encoded[first + digit] |= follows.view(np.uint8) << 7
            is_there[first + digit + 1] = follows
        if field.numbers.null_count:
            is_there[first : len(fixed)] &= field.numbers.is_valid().to_numpy(zero_copy_only=False)
    encoded |= np.array(fixed, np.uint8)[:, np.newaxis]
    if is_there is None:
        return _binary(np.arange(0, encoded.size + 1, len(encoded), dtype=np.int32), encoded.T.ravel())
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(is_there.sum(axis=0), out=ends[1:])
    return _binary(ends, encoded.T[is_there.T])


def _digits(value: int) -> int:
    """Bytes of a varint."""
    return max((value.bit_length() + 6) // 7, 1)


def _binary(ends: npt.NDArray[np.int32], data: Any) -> pa.BinaryArray:
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )


def _adjacent(parts: list[Part]) -> list[Part]:
    """The same with neighbours that are the same in all rows as one."""
    merged: list[Part] = []
    for is_constant, found in groupby(parts, lambda part: isinstance(part, pa.Scalar)):
        alike = list(found)
        merged += [_constant(b"".join([part.as_py() for part in alike]))] if is_constant else alike
    return merged


def _joined(parts: list[Part]) -> pa.BinaryArray:
    """One after the other, row by row; one of them at least is an array."""
    plain = [part.dictionary_decode() if isinstance(part, pa.DictionaryArray) else part for part in parts]
    return pc.binary_join_element_wise(*plain, _EMPTY, null_handling="replace", null_replacement=b"")


def _constant(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())
