"""The entry: the unit of append, and the same bytes in the journal and in segments.

A fixed little-endian header of 64 bytes, then the body:

    magic "DE", version u8, kind u8, flags u32, body length u32, count u32, topic id u64, base offset u64,
    producer id u64, first sequence u64, append time i64 (Unix ms), epoch u32, CRC-32C u32

The checksum covers the 60 header bytes before it and the body, so no field can change unnoticed.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise, starmap
from typing import NamedTuple

from crc32c import crc32c
from librt.strings import read_i64_le

from pydanube.kernel.checksums import joined_crc32c


class Kind(IntEnum):
    """What the body is. A number is never given to something else."""

    ROW = 1
    """One message: the StreamMessage bytes as the client sent them."""
    BATCH = 2
    """Many messages in one Arrow record batch."""
    TOPIC_STATE = 3
    """The topic exists: base offset = next offset, body = start offset u64."""
    TOPIC_DROP = 4
    """The topic with everything below it is gone for ever."""
    CURSOR = 5
    """The subscription named by the body has consumed everything up to the base offset, -1 for nothing."""
    CURSOR_DROP = 6
    """The subscription named by the body is gone."""
    PRODUCER = 7
    """An idempotent producer: its last sequence, and in the body where its last entries are."""
    PRODUCER_DROP = 8
    """The producer is forgotten."""


VERSION = 1
HEADER_BYTES = 64
CRC_AT = 60
FLAGS_AT = 4
FLAG_TIMED = 1
"""The messages have a time of delivery or a time to live: look at the append time too."""
BODY_BYTES_MAX = (1 << 32) - 1
KNOWN_CRC_BYTES = 64 * 1024
"""From this size on a body's checksum is cheaper to work out from its header than to compute again."""
CARRIES_MESSAGES = frozenset({Kind.ROW, Kind.BATCH})

_MAGIC = 0x4544
_FIELDS = struct.Struct("<HBBIIIQQQQqI")
_HEADER = struct.Struct("<HBBIIIQQQQqII")
_APPEND_TIME = struct.Struct("<48xq8x")
_PLACING = struct.Struct("<3xB4xI4xQQ")
_CRC = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_U64_MAX = (1 << 64) - 1
_BASE_OFFSET_AT = 24
_APPEND_TIME_AT = 48
_SENT_ENTRY = struct.Struct("<QQQ")

_pack_fields = _FIELDS.pack
_pack_crc = _CRC.pack


class EntryHeader(NamedTuple):
    """A header taken apart; the fields are as on disk, `messages` being the count."""

    magic: int
    version: int
    kind: int
    flags: int
    length: int
    messages: int
    topic_id: int
    base_offset: int
    producer_id: int
    sequence: int
    append_ms: int
    epoch: int
    crc: int


def encode_header(  # noqa: PLR0917
    kind: int,
    body: bytes,
    count: int,
    topic_id: int,
    base_offset: int,
    producer_id: int,
    sequence: int,
    append_ms: int,
    epoch: int,
    flags: int = 0,
) -> bytes:
    """The 64 bytes that go before `body`. Positional arguments: this runs once per message."""
    fields = _pack_fields(
        _MAGIC,
        VERSION,
        kind,
        flags,
        len(body),
        count,
        topic_id,
        base_offset,
        producer_id,
        sequence,
        append_ms,
        epoch,
    )
    return fields + _pack_crc(crc32c(body, crc32c(fields)))


def crc_behind_body(crc: int, head: bytes) -> int:
    """What a checksum that ends with this header becomes when the header's body follows, which is not looked at.

    The header's own checksum covers its fields and the body: taking the fields away again leaves that of the body. A body
    that has changed since then does not fit the result, so nothing of what a checksum is for is lost.
    """
    fields_crc = crc32c(head[:CRC_AT])
    _, _, _, _, length, _, _, _, _, _, _, _, entry_crc = _HEADER.unpack(head)
    return joined_crc32c(crc ^ fields_crc, entry_crc, length)


def decode_header(data: bytes, position: int = 0) -> EntryHeader:
    return EntryHeader._make(_HEADER.unpack_from(data, position))


def decode_placing(head: bytes) -> tuple[int, int, int, int]:
    """Kind, body length, topic id and base offset: where an entry belongs, without an object for the whole header."""
    kind, length, topic_id, base_offset = _PLACING.unpack_from(head)
    return kind, length, topic_id, base_offset


def decode_base_offset(head: bytes) -> int:
    """The base offset in the header of an entry with messages."""
    return int(read_i64_le(head, _BASE_OFFSET_AT))


def decode_append_time(head: bytes) -> int:
    """The append time in these header bytes."""
    return int(read_i64_le(head, _APPEND_TIME_AT))


def decode_append_times(heads: bytes) -> list[int]:
    """The append times of headers that follow each other without bodies."""
    return [time for (time,) in _APPEND_TIME.iter_unpack(heads)]


def offset_from_time(heads: Sequence[bytes], append_ms: int) -> int:
    """The base offset of the first of these headers with that time or a later one; there is one."""
    for head in heads:
        if _I64.unpack_from(head, _APPEND_TIME_AT)[0] >= append_ms:
            return decode_base_offset(head)
    raise AssertionError(f"no entry from {append_ms} ms on")


def encode_topic_state(topic_id: int, epoch: int, *, start_offset: int, next_offset: int) -> bytes:
    body = _U64.pack(start_offset)
    return encode_header(Kind.TOPIC_STATE, body, 0, topic_id, next_offset, 0, 0, 0, epoch) + body


def decode_start_offset(body: bytes) -> int:
    (start_offset,) = _U64.unpack(body)
    return int(start_offset)


def encode_topic_drop(topic_id: int, epoch: int) -> bytes:
    return encode_header(Kind.TOPIC_DROP, b"", 0, topic_id, 0, 0, 0, 0, epoch)


def encode_cursor(topic_id: int, epoch: int, subscription: str, offset: int) -> bytes:
    body = subscription.encode()
    return encode_header(Kind.CURSOR, body, 0, topic_id, offset & _U64_MAX, 0, 0, 0, epoch) + body


def decode_cursor(base_offset: int) -> int:
    """The cursor that a CURSOR entry's base offset stands for; -1 is the largest number of 64 bits."""
    return -1 if base_offset == _U64_MAX else base_offset


def encode_cursor_drop(topic_id: int, epoch: int, subscription: str) -> bytes:
    body = subscription.encode()
    return encode_header(Kind.CURSOR_DROP, body, 0, topic_id, 0, 0, 0, 0, epoch) + body


def encode_producer(
    topic_id: int, epoch: int, producer_id: int, sent: Sequence[tuple[int, int, int]]
) -> bytes:
    """`sent` has (first sequence, last sequence, base offset) of its last entries, at least one, oldest first."""
    body = b"".join(starmap(_SENT_ENTRY.pack, sent))
    _, sequence, base_offset = sent[-1]
    return (
        encode_header(Kind.PRODUCER, body, 0, topic_id, base_offset, producer_id, sequence, 0, epoch) + body
    )


def producer_bytes(entries: int) -> int:
    """What `encode_producer` makes of that many entries."""
    return HEADER_BYTES + entries * _SENT_ENTRY.size


def decode_sent(body: bytes) -> list[tuple[int, int, int]]:
    """The entries of a PRODUCER body; ValueError if these are none, or not one after the other."""
    if not body or len(body) % _SENT_ENTRY.size:
        raise ValueError(f"{len(body)} bytes are not a list of sent entries")
    sent: list[tuple[int, int, int]] = list(_SENT_ENTRY.iter_unpack(body))
    if any(not 0 < first <= last for first, last, _ in sent):
        raise ValueError("a range of sequences is empty")
    for (_, last, offset), (first, _, next_offset) in pairwise(sent):
        if first != last + 1 or next_offset <= offset:
            raise ValueError(f"sequence {first} at offset {next_offset} follows {last} at {offset}")
    return sent


def encode_producer_drop(topic_id: int, epoch: int, producer_id: int) -> bytes:
    return encode_header(Kind.PRODUCER_DROP, b"", 0, topic_id, 0, producer_id, 0, 0, epoch)


class DamagedEntryError(ValueError):
    """The bytes at `position` are not a whole, unchanged entry; `why` says in what way."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position
        self.why = why


def iterate_entries(
    data: bytes, start: int, end: int, *, checked: bool = False
) -> Iterator[tuple[int, EntryHeader, bytes, bytes]]:
    """Yield (position, header, header bytes, body) of the entries that fill data[start:end].

    `checked` says that a checksum over the whole range was good already, so the entries' own are not
    computed again.
    """
    unpack = _HEADER.unpack_from
    make = EntryHeader._make
    position = start
    while position < end:
        body_at = position + HEADER_BYTES
        if body_at > end:
            raise DamagedEntryError(position, "an entry header is cut short")
        header = make(unpack(data, position))
        next_position = body_at + header[4]
        if header[0] != _MAGIC or header[1] != VERSION:
            raise DamagedEntryError(position, f"no entry of version {VERSION} begins")
        if next_position > end:
            raise DamagedEntryError(position, "an entry is cut short")
        head = data[position:body_at]
        body = data[body_at:next_position]
        if not checked and crc32c(body, crc32c(head[:CRC_AT])) != header[12]:
            raise DamagedEntryError(position, "an entry has a wrong checksum")
        yield position, header, head, body
        position = next_position
