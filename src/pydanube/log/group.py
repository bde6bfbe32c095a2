"""The group: what one write puts into a journal file. Bytes only, no files.

Entries of one commit behind a header of 64 bytes, padded with zeros to whole blocks of 4 KiB:

    magic "DJGR", version u16, flags u16, length u32 (entries, without padding), entry count u32,
    journal id u64, file sequence u64, group sequence u64, synced group u64, body CRC-32C u32,
    block u32 (position in the file / 4096), reserved u32, header CRC-32C u32

A group starts on a block of its own so that a later write never touches a sector that holds
acknowledged bytes, and never has to read a page of a recycled file first. The journal id is random
and the header carries file sequence and block: neither stale bytes of a recycled file nor bytes a
client put into a message can pass for a group.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from pydanube.entries.blocks import BLOCK_BYTES
from pydanube.entries.disk import join_small
from pydanube.entries.entry import KNOWN_CRC_BYTES, crc_behind_body

HEADER_BYTES = 64
VERSION = 1
MAGIC = b"DJGR"

FLAG_SNAPSHOT = 1
"""The first group of a file: the state of every topic when the file was begun."""
FLAG_MARKER = 2
"""No entries: says only how far everything before it is durable."""

_FIELDS = struct.Struct("<4sHHIIQQQQIII")
_HEADER = struct.Struct("<4sHHIIQQQQIIII")
_CRC = struct.Struct("<I")
_CRC_AT = HEADER_BYTES - _CRC.size
_PADDING = memoryview(bytes(BLOCK_BYTES))


class GroupHeader(NamedTuple):
    magic: bytes
    version: int
    flags: int
    length: int
    entries: int
    journal_id: int
    file_sequence: int
    group_sequence: int
    synced_group: int
    body_crc: int
    block: int
    reserved: int
    header_crc: int


def blocks_needed(body_bytes: int) -> int:
    return (HEADER_BYTES + body_bytes + BLOCK_BYTES - 1) // BLOCK_BYTES


def bytes_on_disk(body_bytes: int) -> int:
    """What a group of that many entry bytes takes in the file, header and padding included."""
    return blocks_needed(body_bytes) * BLOCK_BYTES


def encode_group(
    buffers: Sequence[bytes],
    *,
    count: int,
    flags: int = 0,
    journal_id: int,
    file_sequence: int,
    group_sequence: int,
    synced_group: int,
    position: int,
) -> tuple[list[bytes | memoryview], int]:
    """The buffers to write at `position` and how many bytes they are."""
    entries = join_small(buffers)
    large = [index for index, buffer in enumerate(buffers) if len(buffer) >= KNOWN_CRC_BYTES]
    crc = 0
    length = 0
    number = 0
    for part in entries:
        if number < len(large) and part is buffers[large[number]]:
            # What is that large is the body of an entry: the header before it knows its checksum.
            crc = crc_behind_body(crc, buffers[large[number] - 1])
            number += 1
        else:
            crc = crc32c(part, crc)
        length += len(part)
    parts: list[bytes | memoryview] = [b"", *entries]
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        flags,
        length,
        count,
        journal_id,
        file_sequence,
        group_sequence,
        synced_group,
        crc,
        position // BLOCK_BYTES,
        0,
    )
    parts[0] = fields + _CRC.pack(crc32c(fields))
    size = bytes_on_disk(length)
    padding = size - HEADER_BYTES - length
    if padding:
        parts.append(_PADDING[:padding])
    return parts, size


def decode_group_header(
    data: bytes, position: int, journal_id: int | None, *, data_at: int = 0
) -> GroupHeader | None:
    """The header at `position` if there is one of this journal, whole and in its place; else None.

    `data_at` is where in the file the data begins.
    """
    if data[position : position + 4] != MAGIC or position + HEADER_BYTES > len(data):
        return None
    header = GroupHeader._make(_HEADER.unpack_from(data, position))
    if header.header_crc != crc32c(data[position : position + _CRC_AT]):
        return None
    if journal_id is not None and header.journal_id != journal_id:
        return None
    return header if header.block == (data_at + position) // BLOCK_BYTES else None


def body_is_whole(data: bytes, position: int, header: GroupHeader) -> bool:
    start = position + HEADER_BYTES
    end = start + header.length
    return end <= len(data) and crc32c(memoryview(data)[start:end]) == header.body_crc
