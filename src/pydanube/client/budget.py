"""The bytes a producer may hold unanswered, and who waits for room."""

import asyncio
from collections import deque

from pydanube.client.errors import QueueFull


class Budget:
    """`used` never exceeds `limit`, but for one message larger than all of it, which goes alone."""

    __slots__ = ("_waiters", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    def has_room(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used == 0

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    def full(self, topic: str) -> QueueFull:
        return QueueFull(
            f"{topic}: {self.used} bytes are unanswered, {self.limit} is the bound: await ready(), or raise "
            "max_pending_bytes"
        )

    def release(self, size: int) -> None:
        if not size:
            return
        self.used -= size
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self) -> None:
        """Wait until something was released."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
