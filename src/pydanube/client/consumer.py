"""Consuming a subscription, from a topic or all its partitions."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Union

from pydanube.client.ack_ranges import ranges_of
from pydanube.client.cluster import Cluster
from pydanube.client.credit import PREFETCH_ALONE, PREFETCH_SHARED, Credit
from pydanube.client.inbox import Inbox
from pydanube.client.message import Message, origin_of
from pydanube.client.position import AnyPosition, position_of
from pydanube.client.schemas import Decode
from pydanube.client.subscription import DELAY_MS_MAX, REASON_CHARACTERS_MAX, SubscribedTopic
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import check_name
from pydanube.kernel.policies import SubscriptionType
from pydanube.protocol import native_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

AnyType = SubscriptionType | Literal["exclusive", "shared", "failover", "key_shared"]
Delivered = Union[Message, Iterable[Message], "pa.RecordBatch", "pa.Table"]
"""What `ack` and `nack` take: a message, several, or a record batch of `batches()`, whole or filtered."""
_SHARING: Final = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class Consumer:
    """Receives messages; use it with `async with`, or `open` and `close` it. Made by `Client.consumer`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        subscription: str,
        type: AnyType,  # noqa: A002
        name: str | None,
        start: AnyPosition,
        key_filters: Sequence[str],
        prefetch_messages: int | None,
        prefetch_bytes: int,
        unacked_max: int,
        decoder: Callable[[], Awaitable[Decode]],
    ) -> None:
        self.topic: Final = topic
        self.name: Final = check_name(name or f"consumer-{secrets.token_hex(6)}", what="consumer name")
        self._cluster = cluster
        kind = _type_of(type)
        self._request = pb.Subscribe(
            subscription=check_name(subscription, what="subscription name"),
            consumer=self.name,
            type=pb.SubscriptionType.Name(kind.value),
            key_filters=key_filters,
            start=position_of(start, what="start").encode(),
            unacked_max=unacked_max,
        )
        if prefetch_messages is None:
            prefetch_messages = PREFETCH_SHARED if kind in _SHARING else PREFETCH_ALONE
        Credit(prefetch_messages, prefetch_bytes)  # refused here, not when the topic is found
        self._prefetch = (prefetch_messages, prefetch_bytes)
        self.inbox: Final = Inbox(topic, on_waiting=self._send_acks)
        self._make_decoder = decoder
        self._decode: Decode | None = None
        self._feeds: dict[str, SubscribedTopic] = {}
        self._sent: asyncio.Future[None] | None = None

    async def __aenter__(self) -> "Consumer":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Join the subscription, which is made if it does not exist.

        Raises:
            Rejected: the schema to read with does not exist.
            Conflict: the topic follows another schema subject.
        """
        self._decode = await self._make_decoder()
        location = await self._cluster.with_retries(lambda: self._cluster.locate(self.topic))
        topics = location.partitions or (self.topic,)
        messages, size = (max(1, bound // len(topics)) for bound in self._prefetch)
        self._feeds = {
            topic: SubscribedTopic(self._cluster, self._request, topic, self.inbox, Credit(messages, size))
            for topic in topics
        }
        self._sent = asyncio.get_running_loop().create_future()
        self._sent.set_result(None)
        try:
            await asyncio.gather(*(feed.open() for feed in self._feeds.values()))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave the subscription; what was not acked goes to others, or comes again."""
        await asyncio.gather(*(feed.close() for feed in self._feeds.values()))
        self.inbox.end()

    @property
    def partitions(self) -> list[str]:
        return list(self._feeds)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Message]:
        while (messages := await self.inbox.next_messages()) is not None:
            for message in messages:
                yield message

    async def receive(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            Timeout: none came within `timeout` seconds.
            DanubeError: the subscription was lost for good, or for longer than the client's retries last.
        """
        return await self.inbox.receive(timeout)

    async def batches(self) -> "AsyncIterator[pa.RecordBatch]":
        """Messages as Arrow record batches, as they were published; metadata `topic` names the partition."""
        while (batch := await self.inbox.next_batch()) is not None:
            yield batch

    async def decode(self, message: Message) -> Any:
        """The value of a delivered message, as the consumer's schema has it, or without one the message's own.

        Raises:
            Rejected: this message cannot be read so; the text says why. Ack it or nack it like any other.
        """
        assert self._decode is not None, "a consumer that delivered something was opened"
        return await self._decode(message)

    def ack(self, delivered: Delivered, *, confirm: bool = False) -> Awaitable[None]:
        """Tell the broker that messages are done with: a message, several, or a record batch.

        Acks leave as ranges, when the application waits for more messages or a few milliseconds later. Awaiting this with
        `confirm` sends them at once and waits until the broker has them.
        """
        if type(delivered) is Message:
            # Written out, because it is done for every message.
            origin = delivered._origin
            offset = delivered.offset
            if offset is not None:
                origin.feed.ack(offset, offset, origin.generation)
        else:
            for feed, generation, ranges in self._ranges(delivered):
                for first, last in ranges:
                    feed.ack(first, last, generation)
        if confirm:
            return self._confirm()
        assert self._sent is not None
        return self._sent

    def _send_acks(self) -> None:
        for feed in self._feeds.values():
            feed.send_acks()

    async def _confirm(self) -> None:
        for feed in self._feeds.values():
            await feed.confirm()

    async def nack(self, delivered: Delivered, *, delay: float = 0.0, reason: str | None = None) -> None:
        """Ask for messages again, `delay` seconds from now at the earliest."""
        delay_ms = round(delay * 1000)
        if not 0 <= delay_ms <= DELAY_MS_MAX:
            raise Rejected(f"invalid delay {delay}: expected 0 to {DELAY_MS_MAX // 1000} seconds")
        if reason is not None:
            reason = reason[:REASON_CHARACTERS_MAX]
        for feed, generation, ranges in self._ranges(delivered):
            feed.nack(ranges, generation, delay_ms=delay_ms, reason=reason)

    async def seek(self, position: AnyPosition) -> None:
        """Move the subscription, for all its consumers, in every partition; buffered messages are dropped."""
        wanted = position_of(position, what="position")
        await asyncio.gather(*(feed.seek(wanted) for feed in self._feeds.values()))

    def check_delivered(self, delivered: Delivered) -> None:
        """Refuse what `ack` would refuse."""
        self._ranges(delivered)

    def _ranges(self, delivered: Delivered) -> list[tuple[SubscribedTopic, int, list[tuple[int, int]]]]:
        """The offsets of each partition, with the generation they were delivered in."""
        if isinstance(delivered, Message):
            delivered = [delivered]
        elif hasattr(delivered, "schema"):
            return self._ranges_of_batch(delivered)
        offsets: dict[tuple[SubscribedTopic, int], list[int]] = {}
        for message in delivered:
            origin = origin_of(message)
            feed = self._feed(origin.feed.topic)
            if message.offset is not None:
                offsets.setdefault((feed, origin.generation), []).append(message.offset)
        return [(feed, generation, ranges_of(found)) for (feed, generation), found in offsets.items()]

    def _ranges_of_batch(
        self, batch: "pa.RecordBatch | pa.Table"
    ) -> list[tuple[SubscribedTopic, int, list[tuple[int, int]]]]:
        import pyarrow as pa  # noqa: PLC0415

        schema = batch.schema
        place = schema.get_field_index("offset")
        metadata = schema.metadata or {}
        if b"topic" not in metadata or b"generation" not in metadata or place < 0:
            raise Rejected(
                "this record batch did not come from batches(), or lost its offsets or its metadata"
            )
        feed = self._feed(metadata[b"topic"].decode())
        offsets = batch.column(place)
        if offsets.null_count:
            offsets = offsets.drop_null()
        if not len(offsets):
            return []
        if isinstance(offsets, pa.ChunkedArray):
            offsets = offsets.combine_chunks()
        first = offsets[0].as_py()
        if pa.arange(first, first + len(offsets)).equals(offsets):  # as it was delivered: the way of most
            ranges = [(first, first + len(offsets) - 1)]
        else:
            ranges = ranges_of(offsets.to_pylist())
        return [(feed, int(metadata[b"generation"]), ranges)]

    def _feed(self, topic: str) -> SubscribedTopic:
        feed = self._feeds.get(topic)
        if feed is None:
            raise Rejected(f"a message of {topic} was not delivered to this consumer of {self.topic}")
        return feed


def _type_of(type: AnyType) -> SubscriptionType:  # noqa: A002
    if isinstance(type, SubscriptionType):
        return type
    try:
        return SubscriptionType[type.replace("-", "_").upper()]
    except KeyError:
        raise Rejected(
            f"invalid subscription type {type!r}: expected exclusive, shared, failover or key_shared"
        ) from None
