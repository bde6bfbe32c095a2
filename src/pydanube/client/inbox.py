"""What was delivered and not taken yet, from all partitions of a consumer or reader."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from pydanube.client.errors import Timeout
from pydanube.client.message import Message, origin_of, unpack
from pydanube.kernel.errors import DanubeError
from pydanube.protocol.native.batch import is_batch
from pydanube.protocol.native.bodies import Item

if TYPE_CHECKING:
    import pyarrow as pa

    from pydanube.client.feed import TopicFeed

ROWS_AT_ONCE: Final = 256
"""Entries of one message that are unpacked, or made one record batch, in one go."""


class Inbox:
    """Bounded by the credit its feeds give. Entries are unpacked when their turn comes, each at once."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.messages: Final[deque[Message]] = deque()
        """Unpacked, not handed out."""
        self._items: deque[tuple[TopicFeed, Item]] = deque()
        self._failures: deque[tuple[TopicFeed | None, DanubeError]] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._is_ended = False

    # For feeds

    def put(self, feed: "TopicFeed", items: list[Item]) -> None:
        self._items += [(feed, item) for item in items]
        self._wake()

    def drop(self, feed: "TopicFeed") -> tuple[int, int]:
        """Forget what came from a feed; returns the messages and bytes that had not been taken."""
        dropped = [item for owner, item in self._items if owner is feed]
        kept = [(owner, item) for owner, item in self._items if owner is not feed]
        self._items.clear()
        self._items += kept
        others = [message for message in self.messages if origin_of(message).feed is not feed]
        self.messages.clear()
        self.messages.extend(others)
        return sum(item.messages for item in dropped), sum(len(item.body) for item in dropped)

    def fail(self, feed: "TopicFeed | None", error: DanubeError) -> None:
        """The application hears of it once it has taken what came before."""
        self._failures.append((feed, error))
        self._wake()

    def end(self) -> None:
        """Nothing more will come."""
        self._is_ended = True
        self._wake()

    # For the application

    async def next_messages(self) -> bool:
        """Wait until `messages` has some; False if there will be none.

        Raises:
            DanubeError: what a feed ended with. Waiting again makes it start over.
        """
        # Whoever reads and never waits must still let the loop breathe: acks and credit leave with it.
        await asyncio.sleep(0)
        while not self.messages:
            if self._items:
                self._unpack_next()
            elif not await self._more():
                return False
        return True

    async def next_batch(self) -> "pa.RecordBatch | None":
        """The next entry, or a run of single messages, as a record batch; None if there will be none."""
        await asyncio.sleep(0)
        while not self._items:
            if not await self._more():
                return None
        return self._batch_next()

    async def receive(self, timeout: float | None) -> Message:
        if not self.messages:
            await self._wait(timeout)
        if not self.messages:
            raise Timeout(f"{self._topic}: there are no more messages")
        return self.messages.popleft()

    async def receive_many(self, timeout: float | None) -> list[Message]:
        """All messages that are at hand, one at least; empty if there will be none."""
        if not self.messages:
            await self._wait(timeout)
        messages = list(self.messages)
        self.messages.clear()
        return messages

    async def _wait(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.next_messages()
        except TimeoutError as error:
            raise Timeout(f"{self._topic}: no message came within {timeout:g} s") from error

    async def _more(self) -> bool:
        """Wait for a change; False if nothing will come."""
        if self._failures:
            feed, error = self._failures.popleft()
            if feed is not None:
                feed.revive()
            raise error
        if self._is_ended:
            return False
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
        return True

    def _unpack_next(self) -> None:
        feed, item = self._items.popleft()
        feed.taken(item.messages, len(item.body))
        self.messages.extend(unpack(feed, item))
        if not is_batch(item.body):
            for _ in range(ROWS_AT_ONCE):
                if not self._items or is_batch(self._items[0][1].body):
                    return
                feed, item = self._items.popleft()
                feed.taken(item.messages, len(item.body))
                self.messages.extend(unpack(feed, item))

    def _batch_next(self) -> "pa.RecordBatch":
        from pydanube.protocol.native import arrow  # noqa: PLC0415

        feed, item = self._items.popleft()
        feed.taken(item.messages, len(item.body))
        if is_batch(item.body):
            batch = arrow.delivered_batch(item, feed.topic)
        else:
            rows = [item]
            while self._items and len(rows) < ROWS_AT_ONCE:
                owner, item = self._items[0]
                if owner is not feed or is_batch(item.body):
                    break
                self._items.popleft()
                feed.taken(item.messages, len(item.body))
                rows.append(item)
            batch = arrow.delivered_rows(rows, feed.topic)
        metadata = {b"topic": feed.topic, b"generation": str(feed.generation)}
        return batch.replace_schema_metadata(metadata)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
