"""What a batch's Arrow part must be before Arrow's own reader may see it: one plain record-batch message.

The one that most batches have, a column of payloads, is written here too, byte for byte as Arrow writes it.

Arrow's reader trusts more than a broker may: buffers compressed inside the message state how much memory to set aside,
and metadata of its own can refer to one long text a million times. Neither is part of a batch, so the message's table
(FlatBuffers: a table knows its fields by the offsets in its vtable) is walked here and both are refused.
"""

import struct
from typing import Final

from librt.strings import BytesWriter, write_i32_le

from pydanube.protocol.native.batch import BATCH_BYTES_MAX, invalid_batch, too_large_batch

METADATA_BYTES_MAX: Final = 8 * 1024
"""Far more than all columns of a batch need."""

_CONTINUATION: Final = 0xFFFF_FFFF
_PREFIX_BYTES: Final = 8
_METADATA_V5: Final = 4
_RECORD_BATCH: Final = 3

# Numbers of fields in the tables `Message` and `RecordBatch`.
_VERSION: Final = 0
_HEADER_TYPE: Final = 1
_HEADER: Final = 2
_BODY_LENGTH: Final = 3
_CUSTOM_METADATA: Final = 4
_LENGTH: Final = 0
_NODES: Final = 1
_BUFFERS: Final = 2
_COMPRESSION: Final = 3
_VARIADIC_COUNTS: Final = 4

_PREFIX = struct.Struct("<II")
_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_I64_PAIR = struct.Struct("<qq")

# A whole message of one binary column without nulls, up to its offsets: what Arrow's own writer makes of it. The tables
# are the same for every such message, only lengths differ.
_BINARY_MESSAGE = struct.Struct("<40sq24sq32sqqq8sqq")
_MESSAGE_TABLE: Final = bytes.fromhex(
    "ffffffff98000000 1400000000000000 0c00160006000500 08000c000c000000 0003040018000000"
)
_RECORD_BATCH_TABLE: Final = bytes.fromhex("00000a0018000c00 040008000a000000 4c00000010000000")
_THREE_BUFFERS: Final = bytes.fromhex("0000000003000000") + bytes(24)
_ONE_NODE: Final = bytes.fromhex("0000000001000000")


class BinaryColumn:
    """Where the one column of a message lies in the bytes it was found in."""

    __slots__ = ("data_at", "data_bytes", "offsets_at")

    def __init__(self, offsets_at: int, data_at: int, data_bytes: int) -> None:
        self.offsets_at: Final = offsets_at
        """Position of `count + 1` offsets, 32 bits each."""
        self.data_at: Final = data_at
        self.data_bytes: Final = data_bytes


def encode_binary_front(values: list[bytes]) -> tuple[bytes, int]:
    """All of a message of one binary column that goes before the values, and the bytes of all values together.

    Behind them the message is filled up to a multiple of eight.

    Raises:
        Rejected: with MESSAGE_TOO_LARGE.
    """
    offsets = BytesWriter()
    write_i32_le(offsets, 0)
    end = 0
    for value in values:
        end += len(value)
        if end > BATCH_BYTES_MAX:
            raise too_large_batch(f"payloads of more than {BATCH_BYTES_MAX} bytes")
        write_i32_le(offsets, end)
    return binary_front(offsets.getvalue(), end), end


def binary_front(offsets: bytes, data_bytes: int) -> bytes:
    """The same out of `count + 1` offsets, 32 bits each, of which the first is zero."""
    count = len(offsets) // 4 - 1
    data_at = len(offsets) + len(offsets) % 8
    front = _BINARY_MESSAGE.pack(
        _MESSAGE_TABLE,
        data_at + data_bytes + -data_bytes % 8,
        _RECORD_BATCH_TABLE,
        count,
        _THREE_BUFFERS,
        len(offsets),
        data_at,
        data_bytes,
        _ONE_NODE,
        count,
        0,
    )
    return b"".join((front, offsets, bytes(len(offsets) % 8)))


def binary_column(body: bytes, start: int, count: int) -> BinaryColumn:
    """Find the column of a message that fills `body` from `start` on and has one of type binary, without nulls.

    What the offsets say is not looked at.

    Raises:
        Rejected: with BATCH_INVALID.
    """
    metadata = check_ipc_message(memoryview(body)[start:], count)
    data_at = start + _PREFIX_BYTES + len(metadata)
    try:
        positions = _buffers_of_one_column(metadata, count)
    except (struct.error, IndexError) as error:
        raise invalid_batch("the Arrow message's metadata is cut short") from error
    for offset, length in positions:
        if offset < 0 or length < 0 or offset % 8 or offset + length > len(body) - data_at:
            raise invalid_batch("a buffer of the Arrow message lies outside of it")
    (offsets_offset, offsets_bytes), (data_offset, data_bytes) = positions[1], positions[2]
    if offsets_bytes < 4 * (count + 1):
        raise invalid_batch("the offsets of the payloads are cut short")
    return BinaryColumn(data_at + offsets_offset, data_at + data_offset, data_bytes)


def check_ipc_message(message: memoryview, count: int) -> bytes:
    """Accept an uncompressed record-batch message of `count` rows that fills `message` exactly; its metadata.

    Raises:
        Rejected: with BATCH_INVALID.
    """
    if len(message) < _PREFIX_BYTES:
        raise invalid_batch("its Arrow part is cut short")
    continuation, metadata_bytes = _PREFIX.unpack_from(message)
    body_at = _PREFIX_BYTES + metadata_bytes
    if continuation != _CONTINUATION or metadata_bytes > METADATA_BYTES_MAX or metadata_bytes % 8:
        raise invalid_batch("its Arrow part does not begin as an encapsulated message")
    metadata = bytes(message[_PREFIX_BYTES:body_at])
    try:
        body_bytes = _check_metadata(metadata, count)
    except (struct.error, IndexError) as error:
        raise invalid_batch("the Arrow message's metadata is cut short") from error
    if body_at + body_bytes != len(message):
        raise invalid_batch(
            f"the Arrow message states {body_at + body_bytes} bytes, the part has {len(message)}"
        )
    return metadata


def _check_metadata(metadata: bytes, count: int) -> int:
    """Check the tables `Message` and `RecordBatch`; the length of the body."""
    message: int = _U32.unpack_from(metadata)[0]
    version_at = _field(metadata, message, _VERSION)
    kind_at = _field(metadata, message, _HEADER_TYPE)
    header_at = _field(metadata, message, _HEADER)
    body_length_at = _field(metadata, message, _BODY_LENGTH)
    if not version_at or _U16.unpack_from(metadata, version_at)[0] != _METADATA_V5:
        raise invalid_batch("the Arrow message is not of metadata version 5")
    if not kind_at or metadata[kind_at] != _RECORD_BATCH or not header_at:
        raise invalid_batch("the Arrow message is not a record batch")
    if _field(metadata, message, _CUSTOM_METADATA):
        raise invalid_batch("the Arrow message carries metadata of its own")
    header = header_at + _U32.unpack_from(metadata, header_at)[0]
    length_at = _field(metadata, header, _LENGTH)
    if not length_at or _I64.unpack_from(metadata, length_at)[0] != count:
        raise invalid_batch(f"the Arrow message does not hold the {count} messages stated")
    if _field(metadata, header, _COMPRESSION):
        raise invalid_batch("its buffers are compressed one by one; only the whole part may be")
    if _field(metadata, header, _VARIADIC_COUNTS):
        raise invalid_batch("the Arrow message has view columns")
    return int(_I64.unpack_from(metadata, body_length_at)[0]) if body_length_at else 0


def _buffers_of_one_column(metadata: bytes, count: int) -> list[tuple[int, int]]:
    """Offset and length of validity, offsets and data."""
    message: int = _U32.unpack_from(metadata)[0]
    header_at = _field(metadata, message, _HEADER)
    header = header_at + _U32.unpack_from(metadata, header_at)[0]
    nodes_at, nodes = _vector(metadata, header, _NODES)
    buffers_at, buffers = _vector(metadata, header, _BUFFERS)
    if nodes != 1 or buffers != 3:
        raise invalid_batch(
            f"the Arrow message has {nodes} columns and {buffers} buffers, not one column of payloads"
        )
    length, nulls = _I64_PAIR.unpack_from(metadata, nodes_at)
    if length != count:
        raise invalid_batch(f"the Arrow message does not hold the {count} messages stated")
    if nulls != 0:
        raise invalid_batch("a payload is null")
    return [_I64_PAIR.unpack_from(metadata, buffers_at + 16 * number) for number in range(3)]


def _vector(metadata: bytes, table: int, number: int) -> tuple[int, int]:
    """Position of the first element of a table's vector, and how many there are."""
    at = _field(metadata, table, number)
    if not at:
        return 0, 0
    vector = at + int(_U32.unpack_from(metadata, at)[0])
    return vector + 4, int(_U32.unpack_from(metadata, vector)[0])


def _field(metadata: bytes, table: int, number: int) -> int:
    """Position of a table's field; 0: absent, which no field's position is."""
    vtable = table - int(_I32.unpack_from(metadata, table)[0])
    if vtable < 0:
        # A negative position would count from the end.
        raise invalid_batch("the Arrow message's metadata is malformed")
    slot = 4 + 2 * number
    if slot >= _U16.unpack_from(metadata, vtable)[0]:
        return 0
    offset: int = _U16.unpack_from(metadata, vtable + slot)[0]
    return table + offset if offset else 0
