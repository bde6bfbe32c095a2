"""Reading a topic, or all its partitions, from one position to another, without a subscription."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pydanube.client.cluster import Cluster
from pydanube.client.credit import Credit
from pydanube.client.inbox import Inbox
from pydanube.client.message import Message
from pydanube.client.position import AnyPosition, position_of
from pydanube.client.read_topic import ReadTopic
from pydanube.client.schemas import Decode

if TYPE_CHECKING:
    import pyarrow as pa


class Reader:
    """Replays messages; use it with `async with`, or `open` and `close` it. Made by `Client.reader`.

    Each partition comes in order, partitions among each other as they arrive.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        start: AnyPosition,
        end: AnyPosition | None,
        prefetch_messages: int,
        prefetch_bytes: int,
        decoder: Callable[[], Awaitable[Decode]],
    ) -> None:
        self.topic: Final = topic
        self._cluster = cluster
        self._start = position_of(start, what="start")
        self._end = None if end is None else position_of(end, what="end")
        Credit(prefetch_messages, prefetch_bytes)  # refused here, not when the topic is found
        self._prefetch = (prefetch_messages, prefetch_bytes)
        self.inbox: Final = Inbox(topic)
        self._make_decoder = decoder
        self._decode: Decode | None = None
        self._feeds: list[ReadTopic] = []
        self._open_feeds = 0

    async def __aenter__(self) -> "Reader":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        self._decode = await self._make_decoder()
        location = await self._cluster.with_retries(lambda: self._cluster.locate(self.topic))
        topics = location.partitions or (self.topic,)
        messages, size = (max(1, bound // len(topics)) for bound in self._prefetch)
        self._open_feeds = len(topics)
        self._feeds = [
            ReadTopic(
                self._cluster,
                topic,
                self.inbox,
                Credit(messages, size),
                start=self._start,
                end=self._end,
                on_end=self._feed_ended,
            )
            for topic in topics
        ]
        try:
            await asyncio.gather(*(feed.open() for feed in self._feeds))
        except BaseException:
            await self.close()
            raise

    def _feed_ended(self) -> None:
        self._open_feeds -= 1
        if self._open_feeds == 0:
            self.inbox.end()

    async def close(self) -> None:
        await asyncio.gather(*(feed.close() for feed in self._feeds))
        self.inbox.end()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while (messages := await self.inbox.next_messages()) is not None:
            for message in messages:
                yield message

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message; Timeout if none came within `timeout` seconds, or none will come."""
        return await self.inbox.receive(timeout)

    async def decode(self, message: Message) -> Any:
        """The value of a message, as the reader's schema has it, or without one the message's own; see `Consumer.decode`."""
        assert self._decode is not None, "a reader that delivered something was opened"
        return await self._decode(message)

    async def batches(self) -> "AsyncIterator[pa.RecordBatch]":
        """Messages as Arrow record batches, as they were published."""
        while (batch := await self.inbox.next_batch()) is not None:
            yield batch
