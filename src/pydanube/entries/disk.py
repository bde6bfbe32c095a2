"""The file system as a seam: few blocking calls, so that tests can fail any of them.

Called from threads, never from the event loop.
"""

import ctypes
import fcntl
import mmap
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pydanube.entries.freeing import FREED_AT_ONCE_BYTES, FREEING

Buffer = bytes | bytearray | memoryview

BUFFERS_PER_WRITE_MAX = 1024
"""IOV_MAX of Linux: what one pwritev takes."""

JOINED_BYTES_MAX = 32 * 1024
"""Buffers up to this size are joined before a write; larger ones are not worth a copy."""

ZEROING_PAUSE_SECONDS = 0.002
"""Between two pieces of a file that is written with zeros: no sync of the journal waits for more than one of them."""

_ZEROS = memoryview(mmap.mmap(-1, 1 << 20))
"""Begins on a page, as writes past the page cache have to."""

_fallocate = ctypes.CDLL(None).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_PUNCH_HOLE = 0x01 | 0x02
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of Linux."""


class Disk(Protocol):
    """What journal and segments ask of a file system. Every method may raise OSError."""

    def create(self, path: Path) -> int:
        """Open a new empty file for reading and writing, replacing an old one."""
        ...

    def open(self, path: Path) -> int:
        """Open an existing file for reading and writing."""
        ...

    def close(self, fd: int) -> None: ...

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        """Write some of the buffers and say how many bytes; with `sync` those bytes are durable."""
        ...

    def bypass_cache(self, fd: int, on: bool) -> bool:
        """Let writes go past the page cache, in whole blocks from memory that is aligned; False if they cannot."""
        ...

    def fdatasync(self, fd: int) -> None: ...

    def discard(self, fd: int, position: int, size: int) -> None:
        """Let these bytes read as zeros, and give back the space they take if the file system can."""
        ...

    def allocate(self, fd: int, size: int, *, gently: bool = False) -> None:
        """Give the file exactly `size` bytes that are really there, so that overwriting needs no space.

        `gently`: with pauses for what else wants the disk.
        """
        ...

    def reserve(self, fd: int, size: int) -> None:
        """Like `allocate`, at once: the first write to each part costs more."""
        ...

    def is_whole(self, path: Path, size: int) -> bool:
        """Whether the file has space for each of its first `size` bytes: no holes."""
        ...

    def names(self, path: Path) -> int:
        """How many names the file has."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Cut off what is behind the first `size` bytes."""
        ...

    def read(self, path: Path) -> bytes: ...

    def read_at(self, fd: int, position: int, size: int) -> bytes:
        """Read up to `size` bytes of an open file; fewer only at its end."""
        ...

    def read_range(self, path: Path, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def size(self, path: Path) -> int: ...

    def list(self, directory: Path) -> list[str]:
        """Names in the directory, sorted; nothing if there is no such directory."""
        ...

    def make_directory(self, directory: Path) -> None:
        """Create the directory and its parents durably; do nothing if it is there."""
        ...

    def sync_directory(self, directory: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name; nothing happens if there is a file of that name."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove the file; do nothing if it is not there. The space of a large one comes back soon after."""
        ...

    def remove_directory(self, directory: Path) -> None:
        """Remove an empty directory; do nothing if it is not there or not empty."""
        ...


class LocalDisk:
    """The real thing."""

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        return os.pwritev(fd, buffers, position, os.RWF_DSYNC if sync else 0)

    def bypass_cache(self, fd: int, on: bool) -> bool:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
        except OSError:
            return False  # some file systems live in the cache
        return True

    def fdatasync(self, fd: int) -> None:
        os.fdatasync(fd)

    def discard(self, fd: int, position: int, size: int) -> None:
        if _fallocate(fd, _PUNCH_HOLE, position, size) == 0:
            return
        size = min(size, os.fstat(fd).st_size - position)
        for start in range(0, size, len(_ZEROS)):
            os.pwritev(fd, [_ZEROS[: min(len(_ZEROS), size - start)]], position + start)

    def allocate(self, fd: int, size: int, *, gently: bool = False) -> None:
        # Reserve first, so that a full disk is told before anything is written. Then write: syncing
        # into blocks that were only reserved costs a file system journal entry each time.
        self.reserve(fd, size)
        past_cache = size % mmap.PAGESIZE == 0 and self.bypass_cache(fd, True)
        for start in range(0, size, len(_ZEROS)):
            os.pwritev(
                fd, [_ZEROS[: min(len(_ZEROS), size - start)]], start, 0 if past_cache else os.RWF_DSYNC
            )
            if gently:
                time.sleep(ZEROING_PAUSE_SECONDS)
        os.fsync(fd)
        if past_cache:
            self.bypass_cache(fd, False)

    def reserve(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)
        os.ftruncate(fd, size)
        os.fsync(fd)

    def is_whole(self, path: Path, size: int) -> bool:
        facts = path.stat()
        return facts.st_size >= size and facts.st_blocks * 512 >= size

    def names(self, path: Path) -> int:
        return path.stat().st_nlink

    def truncate(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_at(self, fd: int, position: int, size: int) -> bytes:
        data = os.pread(fd, size, position)
        # One read takes what is wanted unless the file ends or a signal came between.
        while len(data) < size and (more := os.pread(fd, size - len(data), position + len(data))):
            data += more
        return data

    def read_range(self, path: Path, position: int, size: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self.read_at(fd, position, size)
        finally:
            os.close(fd)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def list(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, directory: Path) -> None:
        if directory.is_dir():
            return
        self.make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        self.sync_directory(directory.parent)

    def sync_directory(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        with suppress(FileExistsError):
            target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            path.unlink(missing_ok=True)
            return
        try:
            path.unlink(missing_ok=True)
            facts = os.fstat(fd)
        except OSError:
            os.close(fd)
            raise
        # Known by another name, or too small to matter.
        if facts.st_nlink or facts.st_size <= FREED_AT_ONCE_BYTES:
            os.close(fd)
        else:
            FREEING.free(fd)

    def remove_directory(self, directory: Path) -> None:
        try:
            directory.rmdir()
        except OSError:
            if directory.is_dir() and not os.listdir(directory):
                raise


def write_all(disk: Disk, fd: int, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
    """Write every byte, however short the single writes are; return the position behind the last one."""
    for first in range(0, len(buffers), BUFFERS_PER_WRITE_MAX):
        rest = list(buffers[first : first + BUFFERS_PER_WRITE_MAX])
        while rest:
            written = disk.pwritev(fd, rest, position, sync=sync)
            if written <= 0:
                raise OSError("a write of the file system made no progress")
            position += written
            while rest and written >= len(rest[0]):
                written -= len(rest[0])
                del rest[0]
            if rest and written:
                rest[0] = memoryview(rest[0])[written:]
    return position


def join_small(buffers: Sequence[bytes]) -> list[bytes]:
    """Join neighbours that are small: one copy is cheaper than many places for the kernel to visit."""
    parts: list[bytes] = []
    first = 0
    for index, buffer in enumerate(buffers):
        if len(buffer) > JOINED_BYTES_MAX:
            if first < index:
                parts.append(b"".join(buffers[first:index]))
            parts.append(buffer)
            first = index + 1
    if first == 0:
        return [b"".join(buffers)] if buffers else []
    if first < len(buffers):
        parts.append(b"".join(buffers[first:]))
    return parts
