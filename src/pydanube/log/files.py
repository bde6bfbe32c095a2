"""The journal's directory: numbered files, and spare ones waiting to be used again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydanube.entries.disk import Disk

SPARES_MAX = 4
"""As many as may wait to be staged: files that a burst needed are not made anew for the next one."""

_SUFFIX = ".journal"
_SPARE_PREFIX = "spare-"
_UNFINISHED_SUFFIX = ".tmp"


class JournalDirectory:
    """Names, creates, recycles and removes journal files.

    Used by the writer thread (`begin`) and by the thread that prepares and releases files, hence the lock.
    """

    def __init__(self, path: Path, disk: Disk, *, file_bytes: int) -> None:
        self.path = path
        self._disk = disk
        self._file_bytes = file_bytes
        self._lock = threading.Lock()
        self._spares: list[str] = []
        self._begun = 0
        """The file in use."""
        self._prepared: int | None = None
        """The next one, if it has its name already."""
        self._scrubbers = 0
        self._made = 0

    def scan(self) -> list[int]:
        """Sequences of the files there are, in order. Unfinished spares are removed."""
        names = self._disk.list(self.path)
        for name in names:
            if name.endswith(_UNFINISHED_SUFFIX):
                self._disk.unlink(self.path / name)
        self._spares = [name for name in names if name.startswith(_SPARE_PREFIX) and name.endswith(_SUFFIX)]
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if _is_numbered(name))

    def path_of(self, sequence: int) -> Path:
        return self.path / f"{sequence:020}{_SUFFIX}"

    def reopen(self, sequence: int) -> int:
        """Open the file that was in use last."""
        fd = self._disk.open(self.path_of(sequence))
        self._begun = sequence
        return fd

    def begin(self, sequence: int) -> int:
        """Open the file of that sequence, whose name is durable: the one that is prepared, or another."""
        while True:
            with self._lock:
                if self._prepared != sequence and self._spares:
                    self._name_next(sequence)
                if self._prepared == sequence:
                    fd = self._disk.open(self.path_of(sequence))
                    self._begun, self._prepared = sequence, None
                    return fd
            self._make_spare(at_once=True)

    def prepare(self, *, at_once: bool = False, gently: bool = False) -> None:
        """Have the next file ready under its name; `at_once` without writing all of it first, which makes small syncs quick.

        A file system writes new names down together with whatever else it has put off, which may take it tens of
        milliseconds. So that is done here, and not while publishers wait for the file.

        Raises OSError, ENOSPC for one.
        """
        while self._prepared is None:
            with self._lock:
                if self._spares:
                    self._name_next(self._begun + 1)
                    return
            self._make_spare(at_once=at_once, gently=gently)

    def _name_next(self, sequence: int) -> None:
        """Make a spare the file of that sequence, durably; with the lock held, so that none in use is replaced."""
        spare = self._spares.pop()
        try:
            self._disk.rename(self.path / spare, self.path_of(sequence))
        except OSError:
            self._spares.append(spare)
            raise
        self._disk.sync_directory(self.path)
        self._prepared = sequence

    def _make_spare(self, *, at_once: bool, gently: bool = False) -> None:
        """Without the lock: it may take a while, and the writer may find a file elsewhere."""
        self._disk.make_directory(self.path)
        with self._lock:
            name = self._new_spare_name()
        unfinished = self.path / (name + _UNFINISHED_SUFFIX)
        try:
            fd = self._disk.create(unfinished)
            try:
                if at_once:
                    self._disk.reserve(fd, self._file_bytes)
                else:
                    self._disk.allocate(fd, self._file_bytes, gently=gently)
            finally:
                self._disk.close(fd)
            self._disk.rename(unfinished, self.path / name)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(unfinished)
            raise
        with self._lock:
            self._spares.append(name)

    def release(self, sequence: int) -> None:
        """Nothing needs this file any more: keep it as a spare, or remove it if there are enough."""
        path = self.path_of(sequence)
        with self._lock:
            is_wanted = len(self._spares) < SPARES_MAX and not self._scrubbers
            if is_wanted and self._disk.size(path) == self._file_bytes and self._is_fit(path):
                name = self._new_spare_name()
                self._disk.rename(path, self.path / name)
                self._spares.append(name)
            else:
                self._disk.unlink(path)
            self._disk.sync_directory(self.path)

    def give_away(self, sequence: int) -> None:
        """The file is kept under another name: it is none of ours any more."""
        with self._lock:
            self._disk.unlink(self.path_of(sequence))
            self._disk.sync_directory(self.path)

    def adopt(self, path: Path) -> bool:
        """Take a file back that was given away, as a spare; False if it is not wanted, or has holes by now."""
        with self._lock:
            if len(self._spares) >= SPARES_MAX or self._scrubbers:
                return False
            if not self._is_fit(path):
                return False
            self._disk.truncate(path, self._file_bytes)
            name = self._new_spare_name()
            self._disk.rename(path, self.path / name)
            self._disk.sync_directory(self.path)
            self._spares.append(name)
            return True

    def _is_fit(self, path: Path) -> bool:
        """Whether a file can be used again: nobody else has it, and writing to it needs no space."""
        return self._disk.names(path) == 1 and self._disk.is_whole(path, self._file_bytes)

    @property
    def is_scrubbing(self) -> bool:
        return self._scrubbers > 0

    @contextmanager
    def scrubbing(self) -> Iterator[None]:
        """Meanwhile no file is kept for its room: what was in it goes with it."""
        with self._lock:
            self._scrubbers += 1
        try:
            yield
        finally:
            with self._lock:
                self._scrubbers -= 1

    def drop_spares(self) -> None:
        """Remove files that wait to be used again: they still hold what was written to them."""
        with self._lock:
            if self._prepared is not None:
                self._disk.unlink(self.path_of(self._prepared))
                self._prepared = None
            while self._spares:
                self._disk.unlink(self.path / self._spares[-1])
                self._spares.pop()

    def _new_spare_name(self) -> str:
        while True:
            self._made += 1
            name = f"{_SPARE_PREFIX}{self._made}{_SUFFIX}"
            if name not in self._spares:
                return name


def _is_numbered(name: str) -> bool:
    stem = name.removesuffix(_SUFFIX)
    return name.endswith(_SUFFIX) and len(stem) == 20 and stem.isdigit()
