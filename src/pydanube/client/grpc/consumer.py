"""Consuming a topic: one session per partition, all flowing into one bounded queue."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from pydanube.client.grpc.client import Client
from pydanube.client.grpc.errors import CallFailed
from pydanube.client.grpc.session import Session
from pydanube.kernel.errors import Status
from pydanube.kernel.policies import SubscriptionType
from pydanube.protocol import danube_pb2 as pb

QUEUE_MESSAGES_MAX: Final = 100

_SESSION_LOST: Final = frozenset(
    {Status.NOT_FOUND, Status.CANCELLED, Status.ABORTED, Status.UNKNOWN, Status.INTERNAL}
)
"""Ends of a stream that a new subscription may cure: the session is gone, not the right to it."""


@dataclass(frozen=True, slots=True)
class Message:
    """A delivered message; give it back to `Consumer.ack` or `nack`."""

    payload: bytes
    attributes: dict[str, str]
    topic: str
    offset: int  # position in the topic's log; 0 for every message of a non-reliable topic
    publish_time_ms: int
    producer_name: str
    routing_key: str | None
    schema_id: int | None
    schema_version: int | None
    request_id: int
    msg_id: pb.MsgID

    @classmethod
    def of(cls, raw: pb.StreamMessage) -> "Message":
        return cls(
            payload=raw.payload,
            attributes=dict(raw.attributes),
            topic=raw.msg_id.topic_name,
            offset=raw.msg_id.topic_offset,
            publish_time_ms=raw.publish_time,
            producer_name=raw.producer_name,
            routing_key=raw.routing_key if raw.HasField("routing_key") else None,
            schema_id=raw.schema_id if raw.HasField("schema_id") else None,
            schema_version=raw.schema_version if raw.HasField("schema_version") else None,
            request_id=raw.request_id,
            msg_id=raw.msg_id,
        )


class Consumer:
    """Receives the messages of one subscription, from the topic or all its partitions."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        name: str,
        subscription: str,
        subscription_type: SubscriptionType = SubscriptionType.SHARED,
        key_filters: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._topic = topic
        self._request = pb.ConsumerRequest(
            consumer_name=name,
            subscription=subscription,
            subscription_type=pb.ConsumerRequest.SubscriptionType.Name(subscription_type.value),
            key_filters=key_filters,
        )
        self._queue: asyncio.Queue[Message | CallFailed] = asyncio.Queue(QUEUE_MESSAGES_MAX)
        self._sessions: dict[str, _ConsumerSession] = {}

    async def __aenter__(self) -> "Consumer":
        topics = await self._client.partitions(self._topic)
        if not topics:
            raise CallFailed(
                "Subscribe", Status.NOT_FOUND, f"no such topic: {self._topic} (a producer creates it)"
            )
        try:
            for topic in topics:
                self._sessions[topic] = _ConsumerSession(self._client, topic, self._request, self._queue)
                await self._sessions[topic].open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> "Consumer":
        return self

    async def __anext__(self) -> Message:
        return await self.receive()

    async def receive(self) -> Message:
        """The next message; waits for one. CallFailed if a partition's subscription is lost for good."""
        received = await self._queue.get()
        if isinstance(received, CallFailed):
            raise received
        return received

    async def ack(self, message: Message) -> None:
        """Tell the broker the message is done with."""
        request = pb.AckRequest(
            request_id=message.request_id,
            msg_id=message.msg_id,
            subscription_name=self._request.subscription,
        )
        endpoint = self._sessions[message.topic].endpoint
        await self._client.call(endpoint, "/danube.ConsumerService/Ack", request, pb.AckResponse)

    async def nack(self, message: Message, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        """Ask for the message again, after the delay."""
        request = pb.NackRequest(
            request_id=message.request_id,
            msg_id=message.msg_id,
            subscription_name=self._request.subscription,
            delay_ms=delay_ms,
            reason=reason,
        )
        endpoint = self._sessions[message.topic].endpoint
        await self._client.call(endpoint, "/danube.ConsumerService/Nack", request, pb.NackResponse)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()


class _ConsumerSession(Session):
    kind = pb.HealthCheckRequest.Consumer

    def __init__(
        self,
        client: Client,
        topic: str,
        request: pb.ConsumerRequest,
        queue: asyncio.Queue[Message | CallFailed],
    ) -> None:
        super().__init__(client, topic)
        self._request = pb.ConsumerRequest()
        self._request.CopyFrom(request)
        self._request.topic_name = topic
        self._queue = queue
        self._failures = 0  # ends of the stream since the last message

    async def open(self) -> None:
        await super().open()
        self.spawn(self._receive())

    async def _register(self) -> int:
        self._request.request_id += 1
        method = "/danube.ConsumerService/Subscribe"
        return (await self.client.call(self.endpoint, method, self._request, pb.ConsumerResponse)).consumer_id

    async def _receive(self) -> None:
        """Read the stream; reopen it when it ends, subscribe again when that does not help."""
        retries = self.client.retries
        while True:
            try:
                if self.is_stale or self._failures > retries.attempts_max:
                    await self.register()
                await self._read_stream()
            except CallFailed as error:
                gives_up = self._failures > 2 * retries.attempts_max
                if gives_up or not (error.retryable or error.status in _SESSION_LOST):
                    await self._queue.put(error)
                    return
                self.is_stale = self.is_stale or error.status in _SESSION_LOST
            self._failures += 1
            if self._failures > 1:  # reopening once is free; again and again must not be a busy loop
                await retries.pause(self._failures - 1)

    async def _read_stream(self) -> None:
        request = pb.ReceiveRequest(request_id=self._request.request_id, consumer_id=self.id)
        stream = self.client.stream(
            self.endpoint, "/danube.ConsumerService/ReceiveMessages", request, pb.StreamMessage
        )
        async with aclosing(stream) as messages:
            async for message in messages:
                await self._queue.put(Message.of(message))
                self._failures = 0
