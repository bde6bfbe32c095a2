"""The bytes of a run: header, entries as they are in the journal, sparse index, footer. No I/O.

    header  magic "DRUN", version u16, flags u16, entry count u32, topic id u64, start offset u64,
            next offset u64, created i64 (Unix ms), reserved 16 bytes, CRC-32C u32 of the header
    entries one after the other
    index   (offset u64, position u64) of the first entry and then of one entry per 64 KiB
    footer  index position u64, index length u32, CRC-32C u32 of the index, magic "NURD",
            CRC-32C u32 of the footer

Every byte is covered by one of these checksums or by an entry's own.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, repeat
from operator import add

import msgspec
from crc32c import crc32c

from pydanube.entries.disk import join_small
from pydanube.entries.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from pydanube.entries.entry import (
    KNOWN_CRC_BYTES,
    crc_behind_body,
    decode_append_times,
    decode_base_offset,
    decode_header,
)

HEADER_BYTES = 64
FOOTER_BYTES = 24
INDEX_EVERY_BYTES = 64 * 1024
ENTRIES_PER_BUFFER = 512
VERSION = 1

_HEADER = struct.Struct("<4sHHIQQQq16x")
_INDEX_ENTRY = struct.Struct("<QQ")
_FOOTER = struct.Struct("<QII4s")
_CRC = struct.Struct("<I")
_MAGIC = b"DRUN"
_END_MAGIC = b"NURD"


class RunDescriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One immutable run. It exists for readers once its descriptor is stored."""

    run_id: str
    """Name of the file, unless it is in a bundle."""
    topic_id: int
    epoch: int
    start_offset: int
    end_offset: int
    """The last offset in it: both ends are part of the run."""
    size: int
    checksum: str
    """CRC-32C of all bytes, in hexadecimal."""
    created_at: int
    """Unix seconds."""
    min_append_ms: int
    max_append_ms: int
    entry_count: int
    bundle: str = ""
    """Name of the file it shares with other things, if it has none of its own."""
    position: int = 0
    """Where in its file it begins, or the table of its places does."""
    places: int = 0
    """How many places of its file it lies in, if it is not in one piece (kept.py)."""

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1


class DamagedRunError(ValueError):
    """The bytes at `position` are not what was written; `why` says in what way."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position
        self.why = why


@dataclass(frozen=True, slots=True)
class RunIndex:
    """Where entries begin: positions[i] is that of the entry with base offset offsets[i]."""

    offsets: tuple[int, ...]
    positions: tuple[int, ...]
    end: int
    """Position behind the last entry."""

    def window(self, offset: int, bytes_wanted: int) -> tuple[int, int]:
        """A range of whole entries: begins at or before `offset`, holds about `bytes_wanted` from there."""
        first = max(bisect_right(self.offsets, offset) - 1, 0)
        start = self.positions[first]
        beyond = bisect_right(self.positions, start + bytes_wanted)
        beyond = max(beyond, first + 1)
        return start, self.positions[beyond] if beyond < len(self.positions) else self.end


def run_id(topic_id: int, start_offset: int, next_offset: int) -> str:
    """The same messages of the same topic always get the same name, so staging twice is staging once."""
    return f"{start_offset:020}-{next_offset - 1:020}-{topic_id:016x}.run"


def belongs_to(name: str, topic_id: int) -> bool:
    """Whether a file of that name is a run of the topic, or an unfinished one."""
    return f"-{topic_id:016x}.run" in name


def encode_run(
    heads: Sequence[bytes], bodies: Sequence[bytes], *, created_ms: int
) -> tuple[list[bytes], RunDescriptor]:
    """The buffers of a run that holds these entries (at least one, contiguous), and its descriptor.

    Whole lists at a time, no loop over entries: this runs beside the event loop and must not keep the
    interpreter to itself.
    """
    first, last = decode_header(heads[0]), decode_header(heads[-1])
    next_offset = last.base_offset + last.messages
    times = decode_append_times(b"".join(heads))
    sizes = map(add, map(len, bodies), repeat(ENTRY_HEADER_BYTES))
    positions = list(accumulate(sizes, initial=HEADER_BYTES))
    index = _encode_index(heads, positions)
    fields = _HEADER.pack(
        _MAGIC, VERSION, 0, len(heads), first.topic_id, first.base_offset, next_offset, created_ms
    )
    footer = _FOOTER.pack(positions[-1], len(index), crc32c(index), _END_MAGIC)
    buffers = [
        fields + _CRC.pack(crc32c(fields)),
        *_joined(heads, bodies),
        index,
        footer + _CRC.pack(crc32c(footer)),
    ]
    checksum = _checksum(buffers, heads, bodies)
    descriptor = RunDescriptor(
        run_id=run_id(first.topic_id, first.base_offset, next_offset),
        topic_id=first.topic_id,
        epoch=last.epoch,
        start_offset=first.base_offset,
        end_offset=next_offset - 1,
        size=sum(map(len, buffers)),
        checksum=f"{checksum:08x}",
        created_at=created_ms // 1000,
        min_append_ms=min(times),
        max_append_ms=max(times),
        entry_count=len(heads),
    )
    return buffers, descriptor


def _encode_index(heads: Sequence[bytes], positions: list[int]) -> bytes:
    """One pair for the first entry, then for each entry that begins 64 KiB or more behind the last pair."""
    index = bytearray()
    number = 0
    while number < len(heads):
        index += _INDEX_ENTRY.pack(decode_base_offset(heads[number]), positions[number])
        number = bisect_left(positions, positions[number] + INDEX_EVERY_BYTES, number + 1)
    return bytes(index)


def _joined(heads: Sequence[bytes], bodies: Sequence[bytes]) -> Iterator[bytes]:
    """The entries in runs of small ones, and large ones as they are: fewer buffers to write, few copies."""
    for start in range(0, len(heads), ENTRIES_PER_BUFFER):
        run = [b""] * (2 * len(heads[start : start + ENTRIES_PER_BUFFER]))
        run[::2] = heads[start : start + ENTRIES_PER_BUFFER]
        run[1::2] = bodies[start : start + ENTRIES_PER_BUFFER]
        yield from join_small(run)


def _checksum(buffers: Sequence[bytes], heads: Sequence[bytes], bodies: Sequence[bytes]) -> int:
    """Of all bytes of a run; large bodies, which are buffers of their own, were read for their headers already."""
    known = compress(zip(bodies, heads, strict=True), map(KNOWN_CRC_BYTES.__le__, map(len, bodies)))
    body, head = next(known, (None, b""))
    checksum = 0
    for buffer in buffers:
        if buffer is body:
            checksum = crc_behind_body(checksum, head)
            body, head = next(known, (None, b""))
        else:
            checksum = crc32c(buffer, checksum)
    return checksum


def check_header(data: bytes, descriptor: RunDescriptor) -> None:
    """Raise DamagedRunError unless these first bytes are those of that run."""
    if len(data) < HEADER_BYTES or data[:4] != _MAGIC:
        raise DamagedRunError(0, "no run header")
    if crc32c(data[: HEADER_BYTES - 4]) != _CRC.unpack_from(data, HEADER_BYTES - 4)[0]:
        raise DamagedRunError(0, "the run header has a wrong checksum")
    _, version, _, count, topic_id, start_offset, next_offset, _ = _HEADER.unpack_from(data)
    if version != VERSION:
        raise DamagedRunError(4, f"format version {version} is not known to this release")
    found = (topic_id, start_offset, next_offset, count)
    expected = (
        descriptor.topic_id,
        descriptor.start_offset,
        descriptor.next_offset,
        descriptor.entry_count,
    )
    if found != expected:
        raise DamagedRunError(8, f"another run: (topic, start, next, count) is {found}, not {expected}")


def footer_position(size: int) -> int:
    return size - FOOTER_BYTES


def decode_footer(data: bytes, size: int) -> tuple[int, int, int]:
    """Position, length and checksum of the index, from the last bytes of a run of that size."""
    if len(data) != FOOTER_BYTES or crc32c(data[:-4]) != _CRC.unpack_from(data, FOOTER_BYTES - 4)[0]:
        raise DamagedRunError(footer_position(size), "the run footer has a wrong checksum")
    position, length, crc, magic = _FOOTER.unpack_from(data)
    if magic != _END_MAGIC or position + length + FOOTER_BYTES != size:
        raise DamagedRunError(footer_position(size), "the run footer does not fit the run")
    return position, length, crc


def decode_index(data: bytes, position: int, crc: int) -> RunIndex:
    """The index that begins at `position` of the run."""
    if not data or len(data) % _INDEX_ENTRY.size or crc32c(data) != crc:
        raise DamagedRunError(position, "the run index has a wrong checksum")
    offsets, positions = zip(*_INDEX_ENTRY.iter_unpack(data), strict=True)
    return RunIndex(offsets, positions, position)
