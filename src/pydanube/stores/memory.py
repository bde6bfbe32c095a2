"""Objects in memory, with switches for everything a real store may do to its users."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(slots=True)
class Faults:
    """What goes wrong next. Counts run down by themselves, the rest stays until it is switched off."""

    fail_next: int = 0
    """Calls that end as Unavailable, and do nothing."""
    lose_answer_next: int = 0
    """Puts that take effect but end as Unavailable."""
    truncate_next: int = 0
    """Reads that find the object cut to half of its length."""
    hide_next: int = 0
    """Reads that do not find an object yet which is there."""
    denied: bool = False
    delay_seconds: float = 0.0


@dataclass(slots=True)
class MemoryObjects:
    now_ms: Callable[[], int] = lambda: 0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    faults: Faults = field(default_factory=Faults)
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """Name to bytes and time of writing: tests look and damage here."""

    async def put_file(self, key: str, file: Path) -> str:
        return await self.put_bytes(key, await asyncio.to_thread(file.read_bytes))

    async def put_bytes(self, key: str, data: bytes) -> str:
        await self._meet(key)
        if checked_key(key) in self.objects:
            raise exists_already(self.place(key))
        self.objects[key] = (bytes(data), self.now_ms())
        if self.faults.lose_answer_next:
            self.faults.lose_answer_next -= 1
            raise unavailable(f"{self.place(key)}: the answer was lost, by a switch")
        return ""

    async def read(self, key: str, position: int, size: int) -> memoryview:
        await self._meet(key)
        data = self._found(checked_key(key))
        if data is None:
            raise missing(self.place(key))
        if position + size > len(data):
            raise too_short(self.place(key), asked_end=position + size, size=len(data))
        return memoryview(data)[position : position + size]

    async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
        await self._meet(key)
        data = self._found(checked_key(key))
        if data is not None and len(data) > size_max:
            raise too_large(self.place(key), size=len(data), size_max=size_max)
        return data

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        await self._meet(prefix)
        below = checked_prefix(prefix)
        for key, (data, modified_ms) in list(self.objects.items()):
            if not below or key.startswith(f"{below}/"):
                yield StoredObject(key, len(data), modified_ms)

    async def delete(self, key: str) -> None:
        await self._meet(key)
        self.objects.pop(checked_key(key), None)

    def place(self, key: str) -> str:
        return f"memory:{key}"

    async def close(self) -> None:
        return None

    async def _meet(self, key: str) -> None:
        """Whatever goes wrong now."""
        if self.faults.delay_seconds:
            await self.pause(self.faults.delay_seconds)
        if self.faults.denied:
            raise unavailable(f"{self.place(key)}: access denied, by a switch")
        if self.faults.fail_next:
            self.faults.fail_next -= 1
            raise unavailable(f"{self.place(key)}: the store does not answer, by a switch")

    def _found(self, key: str) -> bytes | None:
        if self.faults.hide_next:
            self.faults.hide_next -= 1
            return None
        data = self.objects.get(key, (None, 0))[0]
        if data is not None and self.faults.truncate_next:
            self.faults.truncate_next -= 1
            return data[: len(data) // 2]
        return data
