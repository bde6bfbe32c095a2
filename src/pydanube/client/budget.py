"""The bytes a producer may hold unanswered, and who waits for room."""

import asyncio
from collections import deque


class Budget:
    """`used` never exceeds `limit`, but for one message larger than all of it, which goes alone."""

    __slots__ = ("_waiters", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    def has_room(self, size: int) -> bool:
        return self.used + size <= self.limit or self.used == 0

    def release(self, size: int) -> None:
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
