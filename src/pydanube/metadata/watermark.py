"""A file that remembers, apart from the database, how far the acknowledged writes reached.

SQLite ends its write-ahead log at the first page whose checksum fails. That is right for a torn tail
and wrong for a rotten byte in the middle: the commits behind it, acknowledged long ago, vanish without
an error. The mark makes that loss visible: a database behind its mark is not opened.

The mark is written after the commit and before the acknowledgement, so it never claims too much. Two
slots in different sectors take turns: a torn write costs one of them.
"""

import os
import struct
from pathlib import Path

import crc32c

_SLOT = struct.Struct("<8sQI")  # magic, revision, CRC-32C of both
_MAGIC = b"DNBMARK1"
_SLOT_STRIDE = 4096
_FILE_BYTES = 2 * _SLOT_STRIDE


class Watermark:
    """The highest revision acknowledged so far, durable after every `raise_to`."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._next_slot = 0
        self.revision = 0
        for slot in range(2):
            revision = _parse(os.pread(self._file, _SLOT.size, slot * _SLOT_STRIDE))
            if revision is not None and revision >= self.revision:
                self.revision = revision
                self._next_slot = 1 - slot
        os.ftruncate(self._file, _FILE_BYTES)
        os.fsync(self._file)

    def raise_to(self, revision: int) -> None:
        if revision <= self.revision:
            return
        head = _SLOT.pack(_MAGIC, revision, 0)[:-4]
        os.pwrite(self._file, head + struct.pack("<I", crc32c.crc32c(head)), self._next_slot * _SLOT_STRIDE)
        os.fdatasync(self._file)
        self.revision = revision
        self._next_slot = 1 - self._next_slot

    def close(self) -> None:
        os.close(self._file)


def _parse(slot: bytes) -> int | None:
    if len(slot) < _SLOT.size:
        return None
    magic, revision, crc = _SLOT.unpack(slot)
    return int(revision) if magic == _MAGIC and crc == crc32c.crc32c(slot[:-4]) else None
