"""Producers and consumers that survive their broker and write down what happens to them.

They never register again: the ids they were given at first must be good for all lives of the broker.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from pydanube.protocol import danube_pb2 as pb
from tests.fault.history import End, History, Rule, StreamHistory, SubscriptionHistory, TopicHistory
from tests.fault.messages import GarbledError, Message, message_in, payload_of

MIB = 1 << 20
PAUSE_SECONDS = 0.05
ACKS_IN_FLIGHT_MAX = 32

_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.max_receive_message_length", 8 * MIB),
    ("grpc.max_send_message_length", 8 * MIB),
]


class Line:
    """A connection of its own, with the calls of the Danube API."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self.create_producer = self._call("ProducerService/CreateProducer", pb.ProducerResponse)
        self.send_message = self._call("ProducerService/SendMessage", pb.MessageResponse)
        self.subscribe = self._call("ConsumerService/Subscribe", pb.ConsumerResponse)
        self.ack = self._call("ConsumerService/Ack", pb.AckResponse)
        self.nack = self._call("ConsumerService/Nack", pb.NackResponse)
        self.receive_messages: Callable[..., Any] = self._channel.unary_stream(
            "/danube.ConsumerService/ReceiveMessages",
            request_serializer=pb.ReceiveRequest.SerializeToString,
            response_deserializer=pb.StreamMessage.FromString,
        )

    def _call(self, method: str, answer: Any) -> Callable[..., Awaitable[Any]]:
        call: Callable[..., Awaitable[Any]] = self._channel.unary_unary(
            f"/danube.{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return call

    async def close(self) -> None:
        await self._channel.close()


_REFUSALS = (
    "the broker is stopping",
    "is being closed here",
    "was closed here",
    "no new journal file",
    "wait to be moved from the journal",
    "the journal stopped after a failed write",
)
"""What the broker says with UNAVAILABLE when it took nothing. gRPC's own library says UNAVAILABLE for a lost
connection too, and nothing but the text tells them apart; what is not listed here counts as unknown."""

_MADE_BY_CLIENT = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.UNKNOWN,
)
"""Statuses the client library makes up by itself when an answer stays away."""


def is_refusal(error: grpc.aio.AioRpcError) -> bool:
    """Whether the broker itself answered, and said that nothing was taken."""
    text = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return any(phrase in text for phrase in _REFUSALS)
    return error.code() not in _MADE_BY_CLIENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What one producer sends."""

    bytes_min: int
    bytes_max: int
    keys: int = 0
    in_flight: int = 1
    think_seconds: float = 0.01
    deadline_seconds: float = 10.0


class Producer:
    """Publishes under one name for the whole story; each attempt has its own sequence."""

    def __init__(
        self,
        address: str,
        history: History,
        topic: TopicHistory,
        name: str,
        *,
        habits: Habits,
        dice: random.Random,
    ) -> None:
        self._line = Line(address)
        self._history = history
        self._topic = topic
        self._name = name
        self._habits = habits
        self._dice = dice
        self._sequence = 0
        self._id = 0
        self._stopping = False
        self.refusals: list[str] = []
        """The last texts with which the broker refused something."""

    async def register(self) -> None:
        request = pb.ProducerRequest(
            producer_name=self._name,
            topic_name=self._topic.name,
            dispatch_strategy=pb.DispatchStrategy.Reliable,
        )
        self._id = (await self._line.create_producer(request, timeout=10)).producer_id

    async def run(self) -> None:
        """Publish until `stop`, a bounded number at a time."""
        await asyncio.gather(*(self._publish_for_ever() for _ in range(self._habits.in_flight)))

    def stop(self) -> None:
        self._stopping = True

    async def close(self) -> None:
        await self._line.close()

    async def publish(self, *, key: str | None = None, size: int | None = None) -> tuple[Message, End]:
        """One attempt, whatever becomes of it."""
        habits, dice = self._habits, self._dice
        message = Message(self._name, self._sequence)
        self._sequence += 1
        if key is None:
            key = f"key-{dice.randrange(habits.keys)}" if habits.keys else ""
        if size is None:
            size = int(habits.bytes_min * (habits.bytes_max / habits.bytes_min) ** dice.random())
        request = pb.StreamMessage(
            request_id=message.sequence,
            msg_id=pb.MsgID(producer_id=self._id, topic_name=self._topic.name),
            payload=payload_of(message, size),
            producer_name=self._name,
            routing_key=key or None,
        )
        attempt = self._history.publish_started(self._topic, message, key)
        end = End.UNKNOWN
        try:
            await self._line.send_message(request, timeout=habits.deadline_seconds)
            end = End.OK
        except grpc.aio.AioRpcError as error:
            if is_refusal(error):
                end = End.FAIL
                self._note_refusal(error)
        finally:
            self._history.publish_ended(self._topic, attempt, end)
        return message, end

    async def publish_surely(self, *, key: str | None = None, seconds: float = 30) -> Message:
        """Attempt until one is acknowledged; used when the broker is expected to be well."""
        async with asyncio.timeout(seconds):
            while True:
                message, end = await self.publish(key=key, size=10)
                if end is End.OK:
                    return message
                await asyncio.sleep(PAUSE_SECONDS)

    async def _publish_for_ever(self) -> None:
        while not self._stopping:
            _, end = await self.publish()
            pause = self._habits.think_seconds * self._dice.random() if end is End.OK else PAUSE_SECONDS
            await asyncio.sleep(pause)

    def _note_refusal(self, error: grpc.aio.AioRpcError) -> None:
        self.refusals = [*self.refusals[-9:], f"{error.code().name} {error.details()}"]
        if error.code() is grpc.StatusCode.NOT_FOUND:
            self._history.object(Rule.FORGOTTEN, f"producer {self._name} ({self._id}): {error.details()}")
        elif error.code() is not grpc.StatusCode.UNAVAILABLE:
            self._history.object(
                Rule.UNCLEAN, f"producer {self._name} heard {error.code().name}: {error.details()}"
            )


class Consumer:
    """Receives under one name for the whole story; acknowledges some."""

    def __init__(
        self,
        address: str,
        history: History,
        subscription: SubscriptionHistory,
        name: str,
        dice: random.Random,
        *,
        kind: int,
        ack_share: float,
        nack_share: float = 0.0,
    ) -> None:
        self._line = Line(address)
        self._history = history
        self._subscription = subscription
        self._name = name
        self._dice = dice
        self._kind = kind
        self._ack_share = ack_share
        self._nack_share = nack_share
        self._id = 0
        self._withheld: dict[int, pb.MsgID] = {}
        self._stream: StreamHistory | None = None
        self._acking: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(ACKS_IN_FLIGHT_MAX)
        self.progress = asyncio.Event()
        """Set whenever something was delivered or acknowledged."""

    async def register(self) -> None:
        request = pb.ConsumerRequest(
            topic_name=self._subscription.topic.name,
            consumer_name=self._name,
            subscription=self._subscription.name,
            subscription_type=self._kind,
        )
        self._id = (await self._line.subscribe(request, timeout=10)).consumer_id

    async def run(self) -> None:
        """Receive until cancelled, opening a new stream whenever one ends."""
        try:
            while True:
                await self.receive_once()
                await asyncio.sleep(PAUSE_SECONDS * self._dice.random())
        finally:
            for task in self._acking:
                task.cancel()
            await asyncio.gather(*self._acking, return_exceptions=True)

    async def acknowledge_everything(self) -> None:
        """Withhold nothing from now on, nor what was withheld on this stream."""
        self._ack_share, self._nack_share = 1.0, 0.0
        if self._stream is not None:
            for offset, msg_id in list(self._withheld.items()):
                await self._answer(self._stream, offset, msg_id)

    async def close(self) -> None:
        await self._line.close()

    async def receive_once(self) -> None:
        """Open a stream and take what comes until it ends."""
        call = self._line.receive_messages(pb.ReceiveRequest(consumer_id=self._id))
        stream: StreamHistory | None = None
        try:
            await call.initial_metadata()
            stream = self._stream = self._history.stream_opened(self._subscription)
            self._withheld.clear()
            async for message in call:
                await self._received(stream, message)
        except grpc.aio.AioRpcError as error:
            if is_refusal(error) and error.code() is not grpc.StatusCode.UNAVAILABLE:
                self._history.object(
                    Rule.FORGOTTEN if error.code() is grpc.StatusCode.NOT_FOUND else Rule.UNCLEAN,
                    f"consumer {self._name} ({self._id}) heard {error.code().name}: {error.details()}",
                )
        finally:
            self._stream = None
            if stream is not None:
                self._history.stream_ended(stream)
            call.cancel()

    async def _received(self, stream: StreamHistory, received: pb.StreamMessage) -> None:
        offset = received.msg_id.topic_offset
        try:
            message = message_in(received.payload)
        except GarbledError as error:
            self._history.garbled(stream, offset, str(error))
            return
        self._history.delivered(stream, offset, message, received.routing_key)
        self.progress.set()
        chance = self._dice.random()
        if chance < self._ack_share:
            await self._answer(stream, offset, received.msg_id)
        elif chance < self._ack_share + self._nack_share:
            await self._answer(stream, offset, received.msg_id, nack=True)
        else:
            self._withheld[offset] = received.msg_id

    async def _answer(
        self, stream: StreamHistory, offset: int, msg_id: pb.MsgID, *, nack: bool = False
    ) -> None:
        """Answer in the background; wait only while too many answers are on their way."""
        await self._gate.acquire()
        self._withheld.pop(offset, None)
        answer = self._nack(msg_id) if nack else self._ack(stream, offset, msg_id)
        task = asyncio.create_task(answer)
        self._acking.add(task)
        task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._acking.discard(task)
        self._gate.release()
        self.progress.set()

    async def _ack(self, stream: StreamHistory, offset: int, msg_id: pb.MsgID) -> None:
        self._history.ack_started(stream, offset)
        request = pb.AckRequest(msg_id=msg_id, subscription_name=self._subscription.name)
        try:
            await self._line.ack(request, timeout=10)
        except grpc.aio.AioRpcError:
            return  # It may have been heard or not: `ack_started` stands for both.
        self._history.ack_confirmed(stream, offset)

    async def _nack(self, msg_id: pb.MsgID) -> None:
        request = pb.NackRequest(msg_id=msg_id, subscription_name=self._subscription.name)
        try:
            await self._line.nack(request, timeout=10)
        except grpc.aio.AioRpcError:
            return
