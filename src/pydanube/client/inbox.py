"""What was delivered and not taken yet, from all partitions of a consumer or reader."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pydanube.client.errors import Timeout
from pydanube.client.message import Message, Unpacked
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

    def __init__(self, topic: str, *, on_waiting: Callable[[], None] = lambda: None) -> None:
        """`on_waiting` is called whenever the application has taken everything and waits for more."""
        self._topic = topic
        self._on_waiting = on_waiting
        self._current: Unpacked | None = None
        """What is being handed out."""
        self._items: deque[tuple[TopicFeed, Item]] = deque()
        self._failures: deque[tuple[TopicFeed, DanubeError]] = deque()
        self._failed: list[TopicFeed] = []
        """Those whose failure was told: they start over if the application waits again."""
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
        if self._current is not None and self._current.feed is feed:
            self._current.drop()
        return sum(item.messages for item in dropped), sum(len(item.body) for item in dropped)

    def fail(self, feed: "TopicFeed", error: DanubeError) -> None:
        """The application hears of it once it has taken what came before."""
        self._failures.append((feed, error))
        self._wake()

    def end(self) -> None:
        """Nothing more will come."""
        self._is_ended = True
        self._wake()

    # For the application

    async def next_messages(self) -> Iterator[Message] | None:
        """The messages at hand, one at least, after waiting for them; None if there will be none.

        Whoever stops iterating leaves the rest to the next.

        Raises:
            DanubeError: what a feed ended with. Waiting again makes it start over.
        """
        # Whoever reads and never waits must still let the loop breathe: acks and credit leave with it.
        await asyncio.sleep(0)
        while self._current is None or not self._current.has_more:
            if self._items:
                self._current = self._unpack_next()
            elif not await self._more():
                return None
        return self._current.messages

    async def next_batch(self) -> "pa.RecordBatch | None":
        """The next entry, or a run of single messages, as a record batch; None if there will be none."""
        await asyncio.sleep(0)
        while not self._items:
            if not await self._more():
                return None
        return self._batch_next()

    async def receive(self, timeout: float | None) -> Message:
        current = self._current
        messages = current.messages if current is not None and current.has_more else await self._wait(timeout)
        if messages is None:
            raise Timeout(f"{self._topic}: there are no more messages")
        return next(messages)

    async def receive_many(self, timeout: float | None) -> list[Message]:
        """All messages that are at hand, one at least; empty if there will be none."""
        messages = await self._wait(timeout)
        return [] if messages is None else list(messages)

    async def _wait(self, timeout: float | None) -> Iterator[Message] | None:
        try:
            async with asyncio.timeout(timeout):
                return await self.next_messages()
        except TimeoutError as error:
            raise Timeout(f"{self._topic}: no message came within {timeout:g} s") from error

    async def _more(self) -> bool:
        """Wait for a change; False if nothing will come."""
        failed, self._failed = self._failed, []
        for feed in failed:
            feed.revive()
        if self._failures:
            feed, error = self._failures.popleft()
            self._failed.append(feed)
            raise error
        if self._is_ended:
            return False
        self._on_waiting()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter
        return True

    def _unpack_next(self) -> Unpacked:
        feed, items = self._take_items()
        if is_batch(items[0].body):
            return Unpacked.batch(feed, items[0])
        return Unpacked.rows(feed, items)

    def _batch_next(self) -> "pa.RecordBatch":
        from pydanube.protocol.native import arrow  # noqa: PLC0415

        feed, items = self._take_items()
        if is_batch(items[0].body):
            return arrow.delivered_batch(items[0], feed.topic, feed.generation)
        return arrow.delivered_rows(items, feed.topic, feed.generation)

    def _take_items(self) -> "tuple[TopicFeed, list[Item]]":
        """The next batch, or the next rows of one feed."""
        feed, item = self._items.popleft()
        items = [item]
        size = len(item.body)
        messages = item.messages
        if not is_batch(item.body):
            while self._items and len(items) < ROWS_AT_ONCE:
                owner, item = self._items[0]
                if owner is not feed or is_batch(item.body):
                    break
                self._items.popleft()
                items.append(item)
                size += len(item.body)
                messages += item.messages
        feed.taken(messages, size)
        return feed, items

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
