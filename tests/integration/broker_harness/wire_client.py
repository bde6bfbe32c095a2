"""A client that adds nothing: every call is one gRPC call, every wait is bounded and fails loudly."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from pydanube.protocol import danube_pb2 as pb

PATIENCE_SECONDS = 10.0
"""How long anything that must happen may take, on a busy machine."""
SILENCE_SECONDS = 0.3
"""How long to listen for something that must not come; the broker answers within a few milliseconds."""

METHODS = {
    "/danube.ProducerService/CreateProducer": (pb.ProducerRequest, pb.ProducerResponse),
    "/danube.ProducerService/SendMessage": (pb.StreamMessage, pb.MessageResponse),
    "/danube.ConsumerService/Subscribe": (pb.ConsumerRequest, pb.ConsumerResponse),
    "/danube.ConsumerService/Ack": (pb.AckRequest, pb.AckResponse),
    "/danube.ConsumerService/Nack": (pb.NackRequest, pb.NackResponse),
    "/danube.Discovery/TopicLookup": (pb.TopicLookupRequest, pb.TopicLookupResponse),
    "/danube.Discovery/TopicPartitions": (pb.TopicLookupRequest, pb.TopicPartitionsResponse),
    "/danube.HealthCheck/HealthCheck": (pb.HealthCheckRequest, pb.HealthCheckResponse),
    "/danube.StorageService/ListSegmentDescriptors": (
        pb.ListSegmentDescriptorsRequest,
        pb.ListSegmentDescriptorsResponse,
    ),
}
RECEIVE = "/danube.ConsumerService/ReceiveMessages"

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = 0, 1, 2, 3
KINDS = {"exclusive": EXCLUSIVE, "shared": SHARED, "failover": FAILOVER, "key-shared": KEY_SHARED}

Status = grpc.StatusCode


@contextlib.contextmanager
def refused(code: grpc.StatusCode, text: str = "") -> Iterator[None]:
    """What is inside must fail with this status, and say this."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() == code, caught.value.details()
    assert text in (caught.value.details() or "")


class WireClient:
    """One HTTP/2 connection to a broker."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        # A subchannel pool of its own: otherwise clients of one address would share a connection.
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.max_send_message_length", -1),
        ]
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options)
        self._streams: list[Stream] = []

    async def close(self) -> None:
        for stream in self._streams:
            await stream.close()
        await self._channel.close()

    async def call(self, method: str, request: Any, *, wait_for_ready: bool = False) -> Any:
        """One unary call."""
        serializer = METHODS[method][0].SerializeToString
        call = self._channel.unary_unary(method, serializer, METHODS[method][1].FromString)
        return await call(request, timeout=PATIENCE_SECONDS, wait_for_ready=wait_for_ready)

    async def call_raw(self, method: str, body: bytes) -> bytes:
        """One unary call with whatever bytes."""
        answer: bytes = await self._channel.unary_unary(method)(body, timeout=PATIENCE_SECONDS)
        return answer

    async def create_producer(
        self, topic: str, name: str = "producer", *, reliable: bool = True, **fields: Any
    ) -> "Producer":
        request = pb.ProducerRequest(
            request_id=fields.pop("request_id", 1),
            producer_name=name,
            topic_name=topic,
            dispatch_strategy=fields.pop("dispatch_strategy", int(reliable)),
            **fields,
        )
        response = await self.call("/danube.ProducerService/CreateProducer", request)
        assert (response.request_id, response.producer_name) == (request.request_id, name)
        return Producer(self, topic, name, response.producer_id)

    async def subscribe(
        self,
        topic: str,
        subscription: str = "subscription",
        name: str = "consumer",
        *,
        kind: int = EXCLUSIVE,
        key_filters: Sequence[str] = (),
    ) -> "Consumer":
        request = pb.ConsumerRequest(
            request_id=2,
            topic_name=topic,
            consumer_name=name,
            subscription=subscription,
            subscription_type=kind,
            key_filters=key_filters,
        )
        response = await self.call("/danube.ConsumerService/Subscribe", request)
        assert (response.request_id, response.consumer_name) == (2, name)
        return Consumer(self, topic, subscription, name, response.consumer_id)

    async def consume(self, topic: str, *args: Any, **fields: Any) -> "Stream":
        """Subscribe and open the stream."""
        return await (await self.subscribe(topic, *args, **fields)).open()

    async def receive(self, consumer_id: int, *, topic: str = "", subscription: str = "") -> "Stream":
        """Open a stream by a consumer's id; returns once the broker's headers are here."""
        call = self.receive_call(consumer_id)
        if await asyncio.wait_for(call.initial_metadata(), PATIENCE_SECONDS) is None:
            raise AssertionError("a stream without headers")
        stream = Stream(self, call, topic, subscription)
        self._streams.append(stream)
        # grpc.aio gives empty metadata to a refused call: let the refusal come out here.
        await stream.raise_if_refused()
        return stream

    def receive_call(self, consumer_id: int) -> grpc.aio.UnaryStreamCall[Any, Any]:
        """A bare stream nobody reads from."""
        call = self._channel.unary_stream(
            RECEIVE, pb.ReceiveRequest.SerializeToString, pb.StreamMessage.FromString
        )
        return call(pb.ReceiveRequest(request_id=3, consumer_id=consumer_id), wait_for_ready=True)

    async def ack(self, message: pb.StreamMessage, subscription: str = "subscription") -> None:
        request = pb.AckRequest(request_id=4, msg_id=message.msg_id, subscription_name=subscription)
        assert (await self.call("/danube.ConsumerService/Ack", request)).request_id == 4

    async def nack(
        self,
        message: pb.StreamMessage,
        subscription: str = "subscription",
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
    ) -> None:
        request = pb.NackRequest(
            request_id=5,
            msg_id=message.msg_id,
            subscription_name=subscription,
            delay_ms=delay_ms,
            reason=reason,
        )
        assert (await self.call("/danube.ConsumerService/Nack", request)).request_id == 5

    async def lookup(self, topic: str) -> pb.TopicLookupResponse:
        request = pb.TopicLookupRequest(request_id=6, topic=topic)
        response = await self.call("/danube.Discovery/TopicLookup", request)
        assert response.request_id == 6
        return response

    async def partitions(self, topic: str) -> list[str]:
        request = pb.TopicLookupRequest(request_id=7, topic=topic)
        response = await self.call("/danube.Discovery/TopicPartitions", request)
        assert response.request_id == 7
        return list(response.partitions)

    async def health(self, client_type: int, identifier: int) -> int:
        """0 is OK, 1 is CLOSE."""
        request = pb.HealthCheckRequest(request_id=8, client=client_type, id=identifier)
        response = await self.call("/danube.HealthCheck/HealthCheck", request)
        return int(response.status)

    async def producer_is_healthy(self, identifier: int) -> bool:
        return await self.health(pb.HealthCheckRequest.Producer, identifier) == pb.HealthCheckResponse.OK

    async def consumer_is_healthy(self, identifier: int) -> bool:
        return await self.health(pb.HealthCheckRequest.Consumer, identifier) == pb.HealthCheckResponse.OK


@dataclass
class Producer:
    """A producer id and what its messages are stamped with."""

    client: WireClient
    topic: str
    name: str
    id: int

    def message(self, payload: bytes | str, **fields: Any) -> pb.StreamMessage:
        body = payload.encode() if isinstance(payload, str) else payload
        msg_id = fields.pop("msg_id", None) or pb.MsgID(
            producer_id=self.id, topic_name=self.topic, broker_addr="http://127.0.0.1:6650"
        )
        fields = {"request_id": 9, "publish_time": 1_700_000_000_000, "producer_name": self.name} | fields
        return pb.StreamMessage(msg_id=msg_id, payload=body, **fields)

    async def send(self, payload: bytes | str, **fields: Any) -> None:
        await self.send_message(self.message(payload, **fields))

    async def send_all(self, *payloads: bytes | str) -> None:
        """One after the other, as every client does."""
        for payload in payloads:
            await self.send(payload)

    async def send_message(self, message: pb.StreamMessage) -> None:
        response = await self.client.call("/danube.ProducerService/SendMessage", message)
        assert response.request_id == message.request_id


@dataclass
class Consumer:
    """A consumer id on a subscription."""

    client: WireClient
    topic: str
    subscription: str
    name: str
    id: int

    async def open(self) -> "Stream":
        return await self.client.receive(self.id, topic=self.topic, subscription=self.subscription)


class Stream:
    """An open ReceiveMessages call, read eagerly as the clients do."""

    def __init__(
        self, client: WireClient, call: grpc.aio.UnaryStreamCall[Any, Any], topic: str, subscription: str
    ) -> None:
        self._client = client
        self._call = call
        self._topic = topic
        self._subscription = subscription
        self._received: asyncio.Queue[pb.StreamMessage] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for message in self._call:
                self._received.put_nowait(message)

    async def next(self, within: float = PATIENCE_SECONDS) -> pb.StreamMessage:
        try:
            return await asyncio.wait_for(self._received.get(), within)
        except TimeoutError:
            state = await self._call.code() if self._call.done() else "open"
            raise AssertionError(f"no message within {within} s; the stream is {state}") from None

    async def take(self, count: int) -> list[pb.StreamMessage]:
        return [await self.next() for _ in range(count)]

    async def payloads(self, count: int) -> list[str]:
        return [message.payload.decode() for message in await self.take(count)]

    async def offsets(self, count: int) -> list[int]:
        return [message.msg_id.topic_offset for message in await self.take(count)]

    async def take_acked(self, count: int) -> list[str]:
        """Receive and acknowledge one by one."""
        taken = []
        for _ in range(count):
            message = await self.next()
            await self.ack(message)
            taken.append(message.payload.decode())
        return taken

    async def ack(self, *messages: pb.StreamMessage) -> None:
        for message in messages:
            await self._client.ack(message, self._subscription)

    async def nack(self, message: pb.StreamMessage, **fields: Any) -> None:
        await self._client.nack(message, self._subscription, **fields)

    async def assert_silent(self, seconds: float = SILENCE_SECONDS) -> None:
        with contextlib.suppress(TimeoutError):
            message = await asyncio.wait_for(self._received.get(), seconds)
            raise AssertionError(f"unexpected message: {message}")
        assert not self._call.done(), f"the stream has ended: {await self._call.code()}"

    async def ended(self) -> grpc.StatusCode:
        """Wait for the broker to end the stream."""
        return await asyncio.wait_for(self._call.code(), PATIENCE_SECONDS)

    async def raise_if_refused(self) -> None:
        if self._call.done() and await self._call.code() != Status.OK:
            await self._reader
            raise grpc.aio.AioRpcError(
                await self._call.code(),
                await self._call.initial_metadata(),
                await self._call.trailing_metadata(),
                await self._call.details(),
            )

    async def close(self) -> None:
        """Go away, as a client does: no word but the reset of the stream."""
        self._call.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


async def eventually(condition: Any, within: float = PATIENCE_SECONDS) -> None:
    """Poll until an async condition holds."""
    deadline = asyncio.get_running_loop().time() + within
    while not await condition():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"still not so after {within} s")
        await asyncio.sleep(0.02)
