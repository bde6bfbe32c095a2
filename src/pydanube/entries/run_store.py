"""Where runs lie: written once, then only read or deleted.

A run has a file of its topic, or shares one: a bundle with runs of many topics, or a journal file that is kept.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import ParamSpec, Protocol, TypeVar

from pydanube.entries.blocks import BLOCK_BYTES, Blocks, in_blocks
from pydanube.entries.disk import Disk, LocalDisk, write_all
from pydanube.entries.extents import Extents, Place, table_bytes
from pydanube.entries.kept import KeptPart, encode_sections
from pydanube.entries.run_file import DamagedRunError, RunDescriptor
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName

SYNC_EVERY_BYTES = 4 << 20
"""A run is synced piece by piece, so that the journal's own syncs never wait for a whole one."""

PAST_CACHE_BYTES_MIN = 1 << 20
BLOCKS_BYTES = 2 << 20

EXTENTS_KEPT_MAX = 16
"""Tables of places in memory: of the runs that were read last."""

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

    async def keep(self, journal_file: Path, name: str) -> None:
        """Let that file be known here too, by that name; durable when this returns. Repeating it changes nothing.

        Raises OSError where the file system cannot do that.
        """
        ...

    async def describe(
        self, name: str, parts: Sequence[KeptPart], *, created_ms: int
    ) -> Sequence[RunDescriptor]:
        """Make runs of parts of a kept file, where they lie; durable when this returns."""
        ...

    async def drop_unused(self, name: str) -> None:
        """Forget a kept file that no run is in."""
        ...

    def hold(self, run: RunDescriptor) -> None:
        """A topic has that run: its part of a shared file stays until it is deleted."""
        ...

    async def sweep_bundles(self) -> None:
        """Every run there is was held: remove what shared files have beside them."""
        ...

    async def sweep_kept(self) -> None:
        """Nothing is being kept at the moment: remove what kept files have beside runs."""
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

    def byte_at(self, run: RunDescriptor, position: int) -> int:
        """Where in that file a byte of a run is that was read just now."""
        ...


class LocalRunStore:
    """Files in `{root}/{namespace}/{topic}/`, shared ones in `bundles` beside `{root}`; all work is done in threads."""

    def __init__(
        self,
        root: Path,
        disk: Disk | None = None,
        *,
        recycle: Callable[[Path], bool] = lambda path: False,
    ) -> None:
        """`recycle` is offered journal files that are not needed any more; it says whether it has taken the file."""
        self._root = root
        self._bundles = root.parent / "bundles"
        self._held: dict[str, dict[int, RunDescriptor]] = {}
        """The runs that topics have in shared files, by file and position."""
        self._all_are_held = False
        self._disk = disk or LocalDisk()
        self._recycle = recycle
        self._blocks: Blocks | None = None
        """Through which large runs are written; made with the first one."""
        self._blocks_taken = Lock()
        self._extents: OrderedDict[tuple[str, int], Extents] = OrderedDict()
        self._extents_lock = Lock()

    async def write(self, topic: TopicName, run_id: str, buffers: Sequence[bytes]) -> None:
        directory = self._directory(topic)
        await _in_thread(directory / run_id, self._write, directory, run_id, buffers)

    async def write_bundle(self, name: str, buffers: Sequence[bytes]) -> None:
        await _in_thread(self._bundles / name, self._write, self._bundles, name, buffers)

    async def keep(self, journal_file: Path, name: str) -> None:
        await asyncio.to_thread(self._keep, journal_file, name)

    async def describe(
        self, name: str, parts: Sequence[KeptPart], *, created_ms: int
    ) -> Sequence[RunDescriptor]:
        path = self._bundles / name
        return await _in_thread(path, self._describe, path, parts, created_ms)

    async def drop_unused(self, name: str) -> None:
        if not self._held.get(name):
            path = self._bundles / name
            await _in_thread(path, self._disk.unlink, path)

    def hold(self, run: RunDescriptor) -> None:
        if run.bundle:
            self._held.setdefault(run.bundle, {})[run.position] = run

    async def sweep_bundles(self) -> None:
        self._all_are_held = True
        held = {name: tuple(runs.values()) for name, runs in self._held.items()}
        await _in_thread(self._bundles, self._sweep_bundles, held)

    async def sweep_kept(self) -> None:
        for name, runs in list(self._held.items()):
            if any(run.places for run in runs.values()):
                path = self._bundles / name
                await _in_thread(path, self._sweep, path, tuple(runs.values()))

    async def read(
        self, topic: TopicName, run: RunDescriptor, position: int, size: int, decode: Callable[[bytes], T]
    ) -> T:
        path = self._path(topic, run)

        def read() -> T:
            pieces: list[bytes] = []
            for at, length in self._located(path, run, position, size):
                piece = self._disk.read_range(path, at, length)
                if len(piece) != length:
                    raise Corrupt(
                        f"run {path} ends at byte {at + len(piece)}, {length - len(piece)} bytes too "
                        "early: restore it from a copy",
                        ErrorCode.SEGMENT_CORRUPT,
                    )
                pieces.append(piece)
            return decode(pieces[0] if len(pieces) == 1 else b"".join(pieces))

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
                await _in_thread(path, self._discard_run, path, run)
                return
            self._held.pop(run.bundle, None)
        await _in_thread(path, self._remove, path, run)

    async def delete_file(self, topic: TopicName, name: str) -> None:
        path = self._directory(topic) / name
        await _in_thread(path, self._disk.unlink, path)

    async def delete_topic(self, topic: TopicName) -> None:
        directory = self._directory(topic)
        await _in_thread(directory, self._disk.remove_directory, directory)

    def place(self, topic: TopicName, run: RunDescriptor) -> str:
        return str(self._path(topic, run))

    def byte_at(self, run: RunDescriptor, position: int) -> int:
        extents = self._extents.get((run.bundle, run.position))
        return run.position + position if extents is None else extents.byte_at(position)

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

    def _keep(self, journal_file: Path, name: str) -> None:
        self._disk.make_directory(self._bundles)
        self._disk.link(journal_file, self._bundles / name)
        self._disk.sync_directory(self._bundles)

    def _describe(self, path: Path, parts: Sequence[KeptPart], created_ms: int) -> Sequence[RunDescriptor]:
        position = in_blocks(self._disk.size(path))
        sections, runs = encode_sections(parts, bundle=path.name, position=position, created_ms=created_ms)
        fd = self._disk.open(path)
        try:
            write_all(self._disk, fd, [sections], position, sync=False)
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)
        return runs

    def _located(self, path: Path, run: RunDescriptor, position: int, size: int) -> Iterator[Place]:
        """Where in the file these bytes of the run are."""
        if run.places:
            return self._extents_of(path, run).locate(position, size)
        return iter([(run.position + position, size)])

    def _extents_of(self, path: Path, run: RunDescriptor) -> Extents:
        key = run.bundle, run.position
        with self._extents_lock:
            if key in self._extents:
                self._extents.move_to_end(key)
                return self._extents[key]
        table = self._disk.read_range(path, run.position, table_bytes(run.places))
        extents = Extents.decode(table, run.places)
        with self._extents_lock:
            self._extents[key] = extents
            while len(self._extents) > EXTENTS_KEPT_MAX:
                self._extents.popitem(last=False)
        return extents

    def _sweep_bundles(self, held: Mapping[str, Sequence[RunDescriptor]]) -> None:
        for name in self._disk.list(self._bundles):
            path = self._bundles / name
            if name in held:
                self._sweep(path, held[name])
            else:
                self._disk.unlink(path)

    def _sweep(self, path: Path, runs: Sequence[RunDescriptor]) -> None:
        try:
            if self._is_ours(path):
                places = sorted(place for run in runs for place in self._places(path, run))
                self._discard(path, _gaps(places, self._disk.size(path)))
        except DamagedRunError:
            pass  # who reads it will say so; until then nothing of the file is given up

    def _is_ours(self, path: Path) -> bool:
        """Whether the journal has let go of the file: what it may still read stays as it is."""
        return self._disk.names(path) == 1

    def _places(self, path: Path, run: RunDescriptor) -> Sequence[Place]:
        """All that the run has in its file, blocks behind it included."""
        if not run.places:
            return [(run.position, in_blocks(run.size))]
        return [(run.position, table_bytes(run.places)), *self._extents_of(path, run).places]

    def _discard_run(self, path: Path, run: RunDescriptor) -> None:
        with suppress(FileNotFoundError, DamagedRunError):
            if self._is_ours(path):
                self._discard(path, self._places(path, run))
        self._forget_extents(run)

    def _remove(self, path: Path, run: RunDescriptor) -> None:
        self._forget_extents(run)
        try:
            if run.places and self._recycle(path):
                return
        except FileNotFoundError:
            return
        self._disk.unlink(path)

    def _forget_extents(self, run: RunDescriptor) -> None:
        with self._extents_lock:
            self._extents.pop((run.bundle, run.position), None)

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
                self._blocks = Blocks(BLOCKS_BYTES)
            position = 0
            for piece in self._blocks.filled(buffers):
                whole = len(piece) - len(piece) % BLOCK_BYTES
                if whole:
                    position = write_all(disk, fd, [piece[:whole]], position, sync=False)
                if whole < len(piece):
                    disk.bypass_cache(fd, False)
                    position = write_all(disk, fd, [piece[whole:]], position, sync=False)
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


def _gaps(places: Sequence[Place], size: int) -> Iterator[Place]:
    """The whole blocks between these places, which are in order, in a file of that size."""
    end = 0
    for position, length in [*places, (size, 0)]:
        start = in_blocks(end)
        gap = position // BLOCK_BYTES * BLOCK_BYTES - start if position < size else position - start
        if gap > 0:
            yield start, gap
        end = max(end, position + length)


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
