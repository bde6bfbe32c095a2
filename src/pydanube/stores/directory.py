"""Objects as files below a directory: a disk of this machine, or a file system all brokers share.

An object becomes visible by a hard link from a file that is already on stable storage, under a name that
must not exist: no reader ever sees half of one and nobody replaces one, whichever brokers write at once.
A crash leaves at most a file called `name.<random>.part`, which list() shows so that a sweep removes it.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from pydanube.kernel.errors import Unavailable
from pydanube.stores.store import (
    StoredObject,
    checked_key,
    checked_prefix,
    exists_already,
    missing,
    too_large,
    too_short,
    unavailable,
)

P = ParamSpec("P")
T = TypeVar("T")
# Written here because `list` is a method of the class.
Objects = list[StoredObject]
Paths = list[str]

_THREADS = 4
_COPY_BYTES = 1 << 20
_SYNC_BYTES = 8 << 20
"""A copy is synced in steps: one large sync would hold up the journal's small ones on the same disk."""

_ROUNDS = 5
"""How often a put makes its directory again that a delete next to it took away for being empty."""

# A file system without hard links says so in one of these ways.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

_REMEDIES = {
    errno.ENOSPC: "free space or enlarge the file system",
    errno.EDQUOT: "raise the quota or free space",
    errno.EACCES: "give the user of the broker read and write permission there",
    errno.EPERM: "give the user of the broker read and write permission there",
    errno.EROFS: "mount the file system for writing",
    errno.EIO: "look at the kernel's log, the disk may be failing",
    errno.ESTALE: "mount the shared file system again",
    errno.ETIMEDOUT: "check that the server of the shared file system answers",
    errno.ENOTDIR: "a file stands where a directory must be: move it away",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        # Its own threads: a shared file system that hangs must not take those of everybody else.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="directory-store")

    def __repr__(self) -> str:
        return f"DirectoryStore({str(self._root)!r})"

    async def put_file(self, key: str, file: Path) -> str:
        await self._run(self._put_file, self._path(key), file)
        return ""

    async def put_bytes(self, key: str, data: bytes) -> str:
        await self._run(self._put_bytes, self._path(key), data)
        return ""

    async def read(self, key: str, position: int, size: int) -> memoryview:
        return await self._run(self._read, self._path(key), position, size)

    async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
        return await self._run(self._read_whole, self._path(key), size_max)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        directories = [checked_prefix(prefix)]
        while directories:
            objects, below = await self._run(self._scan, directories.pop())
            directories += below
            for found in objects:
                yield found

    async def delete(self, key: str) -> None:
        await self._run(self._delete, self._path(key))

    def place(self, key: str) -> str:
        return str(self._root / key)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: call(*args, **kwargs)
            )
        except OSError as error:
            raise self._translated(error) from error

    def _translated(self, error: OSError) -> Unavailable:
        number = error.errno or 0
        what_to_do = _REMEDIES.get(number, "check the file system")
        return unavailable(f"{error.filename or self._root}: {os.strerror(number)}: {what_to_do}")

    # What follows runs in a thread.

    def _put_file(self, target: Path, file: Path) -> None:
        with file.open("rb") as source:
            os.fsync(source.fileno())
        # Its age is what keeps a sweep from taking an object that nothing refers to yet.
        os.utime(file)
        try:
            self._publish(file, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with file.open("rb", buffering=0) as source:
                self._write(target, iter(lambda: source.read(_COPY_BYTES), b""))
        # One inode under two names would let whoever still has the file open change the object.
        with contextlib.suppress(OSError):
            file.unlink()

    def _put_bytes(self, target: Path, data: bytes) -> None:
        self._write(target, iter([data]))

    def _write(self, target: Path, pieces: Iterator[bytes]) -> None:
        part = target.with_name(f"{target.name}.{os.urandom(6).hex()}.part")
        try:
            with self._created(part) as file:
                unsynced = 0
                for piece in pieces:
                    file.write(piece)
                    unsynced += len(piece)
                    if unsynced >= _SYNC_BYTES:
                        os.fdatasync(file.fileno())
                        unsynced = 0
                os.fsync(file.fileno())
            self._publish(part, target)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def _created(self, file: Path) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = self._below_directory(file.parent, lambda: os.open(file, flags, 0o640))
        return open(descriptor, "wb", buffering=0)

    def _publish(self, source: Path, target: Path) -> None:
        """Give a synced file its final name as well, unless an object has it."""
        try:
            self._below_directory(target.parent, lambda: _link(source, target))
        except FileExistsError:
            # A shared file system that lost its answer does the link twice.
            if not target.samefile(source):
                raise exists_already(str(target)) from None
        _sync_directory(target.parent)

    def _below_directory(self, directory: Path, step: Callable[[], T]) -> T:
        for _ in range(_ROUNDS - 1):
            try:
                self._make_directories(directory)
                return step()
            except FileNotFoundError:
                # Whoever deletes the last object of a directory removes it, and those above that have become empty.
                continue
        self._make_directories(directory)
        return step()

    def _make_directories(self, directory: Path) -> None:
        absent = []
        while not directory.is_dir():
            absent.append(directory)
            directory = directory.parent
        for made in reversed(absent):
            with contextlib.suppress(FileExistsError):
                made.mkdir()
            _sync_directory(made.parent)

    def _read(self, path: Path, position: int, size: int) -> memoryview:
        with self._opened(path) as file:
            length = os.fstat(file.fileno()).st_size
            if position + size > length:
                raise too_short(str(path), asked_end=position + size, size=length)
            return memoryview(_read_exactly(file, path, position, size))

    def _read_whole(self, path: Path, size_max: int) -> bytes | None:
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        with file:
            size = os.fstat(file.fileno()).st_size
            if size > size_max:
                raise too_large(str(path), size=size, size_max=size_max)
            return _read_exactly(file, path, 0, size)

    def _opened(self, path: Path) -> BinaryIO:
        try:
            return path.open("rb", buffering=0)
        except FileNotFoundError:
            # Not one object but all of them: more likely a file system that is not mounted than a loss.
            if not self._root.is_dir():
                raise unavailable(f"{self._root} does not exist: is its file system mounted?") from None
            raise missing(str(path)) from None

    def _scan(self, below: str) -> tuple[Objects, Paths]:
        """The objects of one directory and the paths of those in it."""
        objects: Objects = []
        directories: Paths = []
        try:
            entries = os.scandir(self._root / below)
        except (FileNotFoundError, NotADirectoryError):
            return objects, directories
        with entries:
            for entry in entries:
                key = f"{below}/{entry.name}" if below else entry.name
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(facts.st_mode):
                    directories.append(key)
                elif stat.S_ISREG(facts.st_mode):
                    objects.append(StoredObject(key, facts.st_size, facts.st_mtime_ns // 1_000_000))
        return objects, directories

    def _delete(self, path: Path) -> None:
        # Not synced: one that comes back with a power failure is an orphan, and swept like any other.
        path.unlink(missing_ok=True)
        for directory in path.parents:
            if directory == self._root:
                return
            try:
                directory.rmdir()
            except OSError:
                return


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The second best: between the look and the move somebody could write the same name, which
        # only happens to names made twice.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        source.rename(target)


def _read_exactly(file: BinaryIO, path: Path, position: int, size: int) -> bytes:
    pieces: list[bytes] = []
    got = 0
    while got < size:
        piece = os.pread(file.fileno(), size - got, position + got)
        if not piece:
            raise too_short(str(path), asked_end=position + size, size=position + got)
        pieces.append(piece)
        got += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
