"""Where runs lie: written once, each in a file of its topic or in a bundle of many topics', then only read or deleted."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from mmap import mmap
from pathlib import Path
from threading import Lock
from typing import ParamSpec, Protocol, TypeVar

from pydanube.entries.disk import Disk, LocalDisk, write_all
from pydanube.entries.run_file import RunDescriptor
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName

SYNC_EVERY_BYTES = 4 << 20
"""A run is synced piece by piece, so that the journal's own syncs never wait for a whole one."""

PAST_CACHE_BYTES_MIN = 1 << 20
BLOCKS_BYTES = 2 << 20
BLOCK_BYTES = 4096

_UNFINISHED_SUFFIX = ".tmp"

P = ParamSpec("P")
T = TypeVar("T")


class RunStore(Protocol):
    """What every place for runs promises. Failures of the store are raised as DanubeError."""

    async def write(self, topic: TopicName, run_id: str, buffers: Sequence[bytes]) -> None:
        """Store the run in a file of its own; durable and whole when this returns, invisible or whole if it does not."""
        ...

    async def write_bundle(self, name: str, buffers: Sequence[bytes]) -> None:
        """Store runs of many topics in one file, as `write` does one."""
        ...

    def hold(self, run: RunDescriptor) -> None:
        """A topic has that run: its part of a bundle stays until it is deleted."""
        ...

    async def sweep_bundles(self) -> None:
        """Every run there is was held: remove what bundles have beside them."""
        ...

    async def read(
        self, topic: TopicName, run: RunDescriptor, position: int, size: int, decode: Callable[[bytes], T]
    ) -> T:
        """What `decode` makes of exactly these bytes, called in the thread that has read them.

        Raises Corrupt if the run or a part of them is missing, and whatever `decode` raises.
        """
        ...

    async def list(self, topic: TopicName) -> list[str]:
        """Names of the topic's own files: runs, and what an interrupted write left behind."""
        ...

    async def delete(self, topic: TopicName, run: RunDescriptor) -> None:
        """Remove a run; nothing happens if it is gone already."""
        ...

    async def delete_file(self, topic: TopicName, name: str) -> None:
        """Remove a file of the topic; nothing happens if it is gone already."""
        ...

    async def delete_topic(self, topic: TopicName) -> None:
        """Remove whatever is left of a topic without runs."""
        ...

    def place(self, topic: TopicName, run: RunDescriptor) -> str:
        """The file that the run is in."""
        ...


class LocalRunStore:
    """Files in `{root}/{namespace}/{topic}/` and bundles beside `{root}`, read and written in worker threads."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._root = root
        self._bundles = root.parent / "bundles"
        self._held: dict[str, dict[int, int]] = {}
        """Position and size of the runs that topics have in bundles, by bundle."""
        self._all_are_held = False
        self._disk = disk or LocalDisk()
        self._blocks: mmap | None = None
        """Memory, aligned, through which large runs are written; made with the first one."""
        self._blocks_taken = Lock()

    async def write(self, topic: TopicName, run_id: str, buffers: Sequence[bytes]) -> None:
        directory = self._directory(topic)
        await _in_thread(directory / run_id, self._write, directory, run_id, buffers)

    async def write_bundle(self, name: str, buffers: Sequence[bytes]) -> None:
        await _in_thread(self._bundles / name, self._write, self._bundles, name, buffers)

    def hold(self, run: RunDescriptor) -> None:
        if run.bundle:
            self._held.setdefault(run.bundle, {})[run.position] = run.size

    async def sweep_bundles(self) -> None:
        self._all_are_held = True
        held = {name: dict(runs) for name, runs in self._held.items()}
        await _in_thread(self._bundles, self._sweep_bundles, held)

    async def read(
        self, topic: TopicName, run: RunDescriptor, position: int, size: int, decode: Callable[[bytes], T]
    ) -> T:
        path = self._path(topic, run)

        def read() -> T:
            data = self._disk.read_range(path, run.position + position, size)
            if len(data) != size:
                raise Corrupt(
                    f"run {path} ends at byte {run.position + position + len(data)}, {size - len(data)} bytes too "
                    "early: restore it from a copy",
                    ErrorCode.SEGMENT_CORRUPT,
                )
            return decode(data)

        return await _in_thread(path, read)

    async def list(self, topic: TopicName) -> list[str]:
        directory = self._directory(topic)
        return await _in_thread(directory, self._disk.list, directory)

    async def delete(self, topic: TopicName, run: RunDescriptor) -> None:
        path = self._path(topic, run)
        if run.bundle:
            held = self._held.get(run.bundle, {})
            held.pop(run.position, None)
            # As long as not all topics have said what they have, others may be in there.
            if held or not self._all_are_held:
                await _in_thread(path, self._discard, path, [(run.position, _in_blocks(run.size))])
                return
            self._held.pop(run.bundle, None)
        await _in_thread(path, self._disk.unlink, path)

    async def delete_file(self, topic: TopicName, name: str) -> None:
        path = self._directory(topic) / name
        await _in_thread(path, self._disk.unlink, path)

    async def delete_topic(self, topic: TopicName) -> None:
        directory = self._directory(topic)
        await _in_thread(directory, self._disk.remove_directory, directory)

    def place(self, topic: TopicName, run: RunDescriptor) -> str:
        return str(self._path(topic, run))

    def _path(self, topic: TopicName, run: RunDescriptor) -> Path:
        return self._bundles / run.bundle if run.bundle else self._directory(topic) / run.run_id

    def _directory(self, topic: TopicName) -> Path:
        return self._root / topic.namespace / topic.topic

    def _write(self, directory: Path, run_id: str, buffers: Sequence[bytes]) -> None:
        disk = self._disk
        disk.make_directory(directory)
        unfinished = directory / (run_id + _UNFINISHED_SUFFIX)
        fd = disk.create(unfinished)
        try:
            if not self._write_past_cache(fd, buffers):
                position = 0
                for piece in _pieces(buffers):
                    position = write_all(disk, fd, piece, position, sync=False)
                    disk.fdatasync(fd)
        finally:
            disk.close(fd)
        disk.rename(unfinished, directory / run_id)
        disk.sync_directory(directory)

    def _sweep_bundles(self, held: dict[str, dict[int, int]]) -> None:
        for name in self._disk.list(self._bundles):
            path = self._bundles / name
            if name in held:
                self._discard(path, _gaps(held[name], self._disk.size(path)))
            else:
                self._disk.unlink(path)

    def _discard(self, path: Path, ranges: Iterable[tuple[int, int]]) -> None:
        """Give back these (position, size) of a file, if it is there."""
        try:
            fd = self._disk.open(path)
        except FileNotFoundError:
            return
        try:
            for position, size in ranges:
                self._disk.discard(fd, position, size)
        finally:
            self._disk.close(fd)

    def _write_past_cache(self, fd: int, buffers: Sequence[bytes]) -> bool:
        """Write a large run without filling the page cache with it; False if it was not written.

        Who reads it soon finds it in the tail. On virtual machines, whose memory comes page by page from the host,
        this takes a tenth of the CPU (ADR 0002).
        """
        disk = self._disk
        if sum(map(len, buffers)) < PAST_CACHE_BYTES_MIN or not self._blocks_taken.acquire(blocking=False):
            return False
        try:
            if not disk.bypass_cache(fd, True):
                return False
            if self._blocks is None:
                self._blocks = mmap(-1, BLOCKS_BYTES)
            blocks = memoryview(self._blocks)
            position = filled = 0
            for buffer in buffers:
                rest = memoryview(buffer)
                while rest:
                    count = min(len(rest), BLOCKS_BYTES - filled)
                    blocks[filled : filled + count] = rest[:count]
                    filled += count
                    rest = rest[count:]
                    if filled == BLOCKS_BYTES:
                        position = write_all(disk, fd, [blocks], position, sync=False)
                        filled = 0
            whole = filled - filled % BLOCK_BYTES
            if whole:
                position = write_all(disk, fd, [blocks[:whole]], position, sync=False)
            disk.bypass_cache(fd, False)
            if whole < filled:
                write_all(disk, fd, [blocks[whole:filled]], position, sync=False)
            disk.fdatasync(fd)
            return True
        finally:
            self._blocks_taken.release()


def _pieces(buffers: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The buffers in runs of about SYNC_EVERY_BYTES."""
    first = size = 0
    for number, buffer in enumerate(buffers, 1):
        size += len(buffer)
        if size >= SYNC_EVERY_BYTES or number == len(buffers):
            yield buffers[first:number]
            first, size = number, 0


def _gaps(runs: dict[int, int], size: int) -> Iterator[tuple[int, int]]:
    """What lies beside runs at these positions in a file of that size, as (position, size)."""
    end = 0
    for position, run_bytes in sorted(runs.items()):
        if position > end:
            yield end, position - end
        end = position + _in_blocks(run_bytes)
    if end < size:
        yield end, size - end


def _in_blocks(size: int) -> int:
    """Rounded up to whole blocks: those behind a run in a bundle are its own."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


async def _in_thread(path: Path, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call; what the file system raises becomes ours."""
    try:
        return await asyncio.to_thread(call, *args, **kwargs)
    except FileNotFoundError as error:
        raise Corrupt(f"run {path} is missing: restore it from a copy", ErrorCode.SEGMENT_CORRUPT) from error
    except OSError as error:
        raise Unavailable(
            f"run storage failed at {path}: {error.strerror or error}", ErrorCode.STORAGE_FAILED
        ) from error
