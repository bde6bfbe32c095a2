"""Reading a topic, or all its partitions, from one position to another, without a subscription."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from pydanube.client.cluster import Cluster
from pydanube.client.credit import Credit
from pydanube.client.feed import Opening, TopicFeed
from pydanube.client.inbox import Inbox
from pydanube.client.message import Message
from pydanube.client.position import AnyPosition, Position, position_of
from pydanube.client.schemas import Decode
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.removed import is_removed

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTopic(TopicFeed):
    """After a loss it goes on exactly where it was: nothing twice, nothing left out."""

    comes_to_an_end = True

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        inbox: Inbox,
        credit: Credit,
        *,
        start: Position,
        end: Position | None,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(cluster, topic, inbox, credit)
        self._start = start
        self._end = end
        self._on_end = on_end

    def _opening(self) -> Opening:
        request = pb.OpenReader(
            topic=self.topic,
            start=self._start.encode(),
            end=None if self._end is None else self._end.encode(),
        )
        return Opening(frames.OPEN_READER, request.SerializeToString(), frames.READER_OPENED)

    def _opened(self, body: bytes) -> None:
        opened = pb.ReaderOpened.FromString(body)
        # From now on in offsets, so that reopening does not find "latest" or a time elsewhere.
        self._start = Position.offset(opened.next_offset)
        if opened.HasField("end_offset"):
            self._end = Position.offset(opened.end_offset)

    def _received(self, items: list[Item]) -> list[Item]:
        """Offsets come one after the other; what was removed of them is left out here."""
        self._patience.succeeded()
        for item in items:
            first = item.base + item.skip
            if first != self._start.value:
                raise Rejected(
                    f"{self.topic}: the broker sent offset {first}, {self._start.value} was next",
                    ErrorCode.PROTOCOL_VIOLATION,
                )
            self._start = Position.offset(first + item.messages)
        kept = [item for item in items if not is_removed(item.body)]
        if len(kept) < len(items):
            left_out = [item for item in items if item not in kept]
            self.taken(sum([item.messages for item in left_out]), sum([len(item.body) for item in left_out]))
        return kept

    def _channel_lost(self) -> None:
        """What is buffered stays: reading goes on behind it."""

    def _closed_by_broker(self) -> None:
        self._is_over = True
        self._on_end()


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
