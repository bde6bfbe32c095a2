"""A disk in memory that forgets what was not synced when the power goes: the twin of LocalDisk for tests.

The model is a pessimistic one: after a power cut every sector of 512 bytes that was written and not
synced holds either its new or its old bytes, each on its own; a name that was created, moved or removed
without its directory being synced is there or not.
"""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from pydanube.entries.disk import Buffer

SECTOR_BYTES = 512

_FIRST_FD = 1000


class _File:
    """Bytes as programs see them, and as the platter has them."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: set[int] = set()
        self.has_holes = False

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if len(self.data) < end:
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        self.dirty.update(range(position // SECTOR_BYTES, (end + SECTOR_BYTES - 1) // SECTOR_BYTES))

    def sync(self, start: int = 0, end: int | None = None) -> None:
        last = len(self.data) if end is None else end
        sectors = range(start // SECTOR_BYTES, (last + SECTOR_BYTES - 1) // SECTOR_BYTES)
        for sector in [sector for sector in self.dirty if sector in sectors]:
            self._persist(sector)

    def after_power_loss(self, survives: Callable[[], bool]) -> bytes:
        for sector in sorted(self.dirty):
            if survives():
                self._persist(sector)
        return bytes(self.durable)

    def _persist(self, sector: int) -> None:
        start = sector * SECTOR_BYTES
        piece = self.data[start : start + SECTOR_BYTES]
        if len(self.durable) < start + len(piece):
            self.durable.extend(bytes(start + len(piece) - len(self.durable)))
        self.durable[start : start + len(piece)] = piece
        self.dirty.discard(sector)


class MemoryDisk:
    """Behaves as LocalDisk does; `before` may raise to make any call fail."""

    def __init__(self, files: dict[Path, bytes] | None = None) -> None:
        """`files` as `files()` and `after_power_loss()` give them: names with one and the same object are one file."""
        made: dict[int, _File] = {}
        self._names: dict[Path, _File] = {}
        for path, data in (files or {}).items():
            is_shared = len(data) > 1  # shorter ones are the same object everywhere
            self._names[path] = made.setdefault(id(data), _File(data)) if is_shared else _File(data)
        self._durable_names = dict(self._names)
        self._open: dict[int, _File] = {}
        self._next_fd = _FIRST_FD
        self._lock = threading.RLock()
        self.before: Callable[[str, Path | None], None] = lambda call, path: None
        """Called with the name of each call before it happens."""
        self.write_bytes_max: int | None = None
        """A single write takes no more than that."""
        self.space: int | None = None
        """Bytes that may still be allocated, None for no limit."""

    def files(self) -> dict[Path, bytes]:
        """Everything as programs see it: what a killed process leaves behind."""
        with self._lock:
            data = {id(file): bytes(file.data) for file in self._names.values()}
            return {path: data[id(file)] for path, file in self._names.items()}

    def after_power_loss(self, survives: Callable[[], bool]) -> dict[Path, bytes]:
        """Everything as it is after a power cut; `survives` is asked once per thing not synced."""
        with self._lock:
            names = dict(self._durable_names)
            for path in sorted({*self._names, *self._durable_names}):
                if self._names.get(path) is not self._durable_names.get(path) and survives():
                    if path in self._names:
                        names[path] = self._names[path]
                    else:
                        del names[path]
            lost = {id(file): file.after_power_loss(survives) for file in names.values()}
            return {path: lost[id(file)] for path, file in names.items()}

    def create(self, path: Path) -> int:
        with self._call("create", path):
            self._names[path] = _File()
            return self._open_file(self._names[path])

    def open(self, path: Path) -> int:
        with self._call("open", path):
            return self._open_file(self._find(path))

    def close(self, fd: int) -> None:
        with self._lock:
            del self._open[fd]

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        with self._call("pwritev", None):
            data = b"".join(buffers)[: self.write_bytes_max]
            file = self._open[fd]
            self._take_space(position + len(data) - len(file.data))
            file.write(position, data)
            if sync:
                file.sync(position, position + len(data))
            return len(data)

    def bypass_cache(self, fd: int, on: bool) -> bool:
        return True

    def fdatasync(self, fd: int) -> None:
        with self._call("fdatasync", None):
            self._open[fd].sync()

    def discard(self, fd: int, position: int, size: int) -> None:
        with self._call("discard", None):
            file = self._open[fd]
            file.write(position, bytes(max(0, min(size, len(file.data) - position))))
            file.has_holes = True

    def allocate(self, fd: int, size: int, *, gently: bool = False) -> None:
        with self._call("allocate", None):
            file = self._open[fd]
            self._take_space(size - len(file.data))
            file.data[:] = bytes(size)
            file.durable[:] = bytes(size)
            file.dirty.clear()

    def reserve(self, fd: int, size: int) -> None:
        self.allocate(fd, size)

    def is_whole(self, path: Path, size: int) -> bool:
        with self._lock:
            file = self._find(path)
            return len(file.data) >= size and not file.has_holes

    def names(self, path: Path) -> int:
        with self._lock:
            return self._names_of(self._find(path))

    def truncate(self, path: Path, size: int) -> None:
        with self._call("truncate", path):
            file = self._find(path)
            del file.data[size:], file.durable[size:]
            file.dirty = {sector for sector in file.dirty if sector * SECTOR_BYTES < size}

    def read_at(self, fd: int, position: int, size: int) -> bytes:
        with self._call("read_at", None):
            return bytes(self._open[fd].data[position : position + size])

    def read(self, path: Path) -> bytes:
        with self._call("read", path):
            return bytes(self._find(path).data)

    def read_range(self, path: Path, position: int, size: int) -> bytes:
        with self._call("read_range", path):
            return bytes(self._find(path).data[position : position + size])

    def size(self, path: Path) -> int:
        with self._lock:
            return len(self._find(path).data)

    def list(self, directory: Path) -> list[str]:
        with self._lock:
            return sorted(path.name for path in self._names if path.parent == directory)

    def make_directory(self, directory: Path) -> None:
        """Directories exist by themselves here."""

    def sync_directory(self, directory: Path) -> None:
        with self._call("sync_directory", directory):
            for path in [path for path in self._durable_names if path.parent == directory]:
                if path not in self._names:
                    del self._durable_names[path]
            for path, file in self._names.items():
                if path.parent == directory:
                    self._durable_names[path] = file

    def rename(self, source: Path, target: Path) -> None:
        with self._call("rename", target):
            self._names[target] = self._find(source)
            del self._names[source]

    def link(self, source: Path, target: Path) -> None:
        with self._call("link", target):
            self._names.setdefault(target, self._find(source))

    def unlink(self, path: Path) -> None:
        with self._call("unlink", path):
            file = self._names.pop(path, None)
            if file is not None and self.space is not None and not self._names_of(file):
                self.space += len(file.data)

    def remove_directory(self, directory: Path) -> None:
        """Directories go by themselves here."""

    def _call(self, name: str, path: Path | None) -> threading.RLock:
        self.before(name, path)
        return self._lock

    def _open_file(self, file: _File) -> int:
        self._next_fd += 1
        self._open[self._next_fd] = file
        return self._next_fd

    def _names_of(self, file: _File) -> int:
        return sum(each is file for each in self._names.values())

    def _find(self, path: Path) -> _File:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def _take_space(self, size: int) -> None:
        if self.space is None or size <= 0:
            return
        if size > self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.space -= size
