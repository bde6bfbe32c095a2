"""A store that is asked again when it does not answer, and counted while it does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydanube.kernel.clock import Dice
from pydanube.kernel.errors import Conflict, Corrupt, DanubeError, Unavailable
from pydanube.stores.store import DurableStore, Missing, StoredObject

T = TypeVar("T")

_COMPARE_BYTES = 4 << 20


@dataclass(slots=True)
class StoreStats:
    """Plain numbers that only grow; whoever shows them reads them."""

    uploads: int = 0
    uploaded_bytes: int = 0
    upload_failures: int = 0
    upload_seconds: float = 0.0
    reads: int = 0
    read_bytes: int = 0
    read_failures: int = 0
    read_seconds: float = 0.0
    lists: int = 0
    deletes: int = 0
    other_failures: int = 0
    """Of listing and deleting."""
    retries: int = 0
    last_error: str = ""


class Retrying:
    """Unavailable is tried again with growing pauses, and so is an object that is not visible yet."""

    def __init__(
        self,
        store: DurableStore,
        dice: Dice,
        *,
        attempts: int = 5,
        missing_attempts: int = 3,
        pause_seconds: float = 0.2,
        pause_seconds_max: float = 10.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.stats = StoreStats()
        self._store = store
        self._dice = dice
        self._attempts = max(1, attempts)
        self._missing_attempts = max(1, missing_attempts)
        self._pause_seconds = pause_seconds
        self._pause_seconds_max = pause_seconds_max
        self._sleep = sleep

    async def put_file(self, key: str, file: Path) -> str:
        size = await asyncio.to_thread(_size_of, file)

        async def is_ours() -> bool:
            return await self._holds_file(key, file, size)

        return await self._put(size, lambda: self._store.put_file(key, file), is_ours)

    async def put_bytes(self, key: str, data: bytes) -> str:
        async def is_ours() -> bool:
            try:
                return await self._store.read_whole(key, size_max=len(data)) == data
            except Corrupt:
                return False  # It is larger.

        return await self._put(len(data), lambda: self._store.put_bytes(key, data), is_ours)

    async def read(self, key: str, position: int, size: int) -> memoryview:
        started = _now()
        try:
            data = await self._again(lambda: self._store.read(key, position, size))
        except DanubeError as error:
            self.stats.read_failures += 1
            self.stats.last_error = error.text
            raise
        self._count_read(len(data), started)
        return data

    async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
        started = _now()
        try:
            data = await self._again(lambda: self._store.read_whole(key, size_max=size_max))
        except DanubeError as error:
            self.stats.read_failures += 1
            self.stats.last_error = error.text
            raise
        self._count_read(len(data or b""), started)
        return data

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Asked again only before the first object: a second answer could repeat what was told already."""
        self.stats.lists += 1
        try:
            first = await self._again(lambda: self._first_of(prefix))
            if first is None:
                return
            found, objects = first
            yield found
            async for found in objects:
                yield found
        except DanubeError as error:
            self.stats.other_failures += 1
            self.stats.last_error = error.text
            raise

    async def delete(self, key: str) -> None:
        self.stats.deletes += 1
        try:
            await self._again(lambda: self._store.delete(key))
        except DanubeError as error:
            self.stats.other_failures += 1
            self.stats.last_error = error.text
            raise

    def place(self, key: str) -> str:
        return self._store.place(key)

    async def close(self) -> None:
        await self._store.close()

    async def _put(
        self, size: int, put: Callable[[], Awaitable[str]], is_ours: Callable[[], Awaitable[bool]]
    ) -> str:
        started = _now()
        may_be_ours = False

        async def once() -> str:
            nonlocal may_be_ours
            try:
                return await put()
            except Unavailable:
                may_be_ours = True
                raise
            except Conflict:
                # The answer to an earlier attempt may have been lost after it took effect.
                if may_be_ours and await is_ours():
                    return ""
                raise

        try:
            tag = await self._again(once)
        except DanubeError as error:
            self.stats.upload_failures += 1
            self.stats.last_error = error.text
            raise
        self.stats.uploads += 1
        self.stats.uploaded_bytes += size
        self.stats.upload_seconds += _now() - started
        return tag

    async def _again(self, call: Callable[[], Awaitable[T]]) -> T:
        attempt = 0
        while True:
            attempt += 1
            try:
                return await call()
            except Missing:
                if attempt >= self._missing_attempts:
                    raise
            except Unavailable:
                if attempt >= self._attempts:
                    raise
            self.stats.retries += 1
            await self._sleep(self._pause_before(attempt))

    def _pause_before(self, attempt: int) -> float:
        """Twice as long each time, of which a random half: many brokers must not come back at once."""
        longest = min(self._pause_seconds_max, self._pause_seconds * 2.0 ** (attempt - 1))
        return longest / 2 * (1 + self._dice.new_id() % 1000 / 1000)

    async def _first_of(self, prefix: str) -> tuple[StoredObject, AsyncIterator[StoredObject]] | None:
        objects = self._store.list(prefix)
        async for found in objects:
            return found, objects
        return None

    async def _holds_file(self, key: str, file: Path, size: int) -> bool:
        stored = [found.size async for found in self._store.list(key.rpartition("/")[0]) if found.key == key]
        if stored != [size]:
            return False
        for position in range(0, size, _COMPARE_BYTES):
            length = min(_COMPARE_BYTES, size - position)
            ours = await asyncio.to_thread(_read_at, file, position, length)
            if ours != await self._store.read(key, position, length):
                return False
        return True

    def _count_read(self, size: int, started: float) -> None:
        self.stats.reads += 1
        self.stats.read_bytes += size
        self.stats.read_seconds += _now() - started


def _now() -> float:
    return asyncio.get_running_loop().time()


def _size_of(file: Path) -> int:
    return file.stat().st_size


def _read_at(file: Path, position: int, size: int) -> bytes:
    with file.open("rb") as source:
        source.seek(position)
        return source.read(size)
