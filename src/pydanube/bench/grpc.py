"""The loads over gRPC: a call per message, many under way at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType

from pydanube.bench.faces import Delivery, Take
from pydanube.bench.plan import STAMP_BYTES, Group, Plan, Stream
from pydanube.bench.recorder import Recorder
from pydanube.client.grpc import CallFailed, Client, Consumer, Message, Producer
from pydanube.kernel.policies import SubscriptionType


class GrpcFace:
    """A channel of its own to the broker."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        scheme = "https" if plan.broker.tls else "http"
        url = f"{scheme}://{str(plan.broker).partition('://')[2]}"
        files = (plan.ca, plan.cert, plan.cert_key)
        ca, certificate, key = (None if file is None else file.read_bytes() for file in files)
        self._client = Client(url, token=plan.token, ca_certificate=ca, certificate=certificate, key=key)

    async def __aenter__(self) -> "GrpcFace":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    @asynccontextmanager
    async def publisher(self, stream: Stream) -> AsyncIterator["GrpcPublisher"]:
        producer = Producer(
            self._client,
            stream.topic,
            name=stream.producer,
            reliable=self._plan.reliable,
            partitions=self._plan.partitions or 0,
        )
        async with producer:
            yield GrpcPublisher(producer, self._plan.in_flight)

    @asynccontextmanager
    async def subscriber(self, group: Group, number: int) -> AsyncIterator["GrpcSubscriber"]:
        shared = self._plan.consumers > 1
        consumer = Consumer(
            self._client,
            group.topic,
            name=f"{group.subscription}-{number}",
            subscription=group.subscription,
            subscription_type=SubscriptionType.SHARED if shared else SubscriptionType.EXCLUSIVE,
        )
        async with consumer:
            yield GrpcSubscriber(consumer, self._plan.in_flight)


class GrpcPublisher:
    """Keeps up to `in_flight` calls under way."""

    def __init__(self, producer: Producer, in_flight: int) -> None:
        self._producer = producer
        self._room = asyncio.Semaphore(in_flight)
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, payloads: Sequence[bytes], due_ns: int | None, recorder: Recorder) -> None:
        for payload in payloads:
            await self._room.acquire()
            task = asyncio.create_task(self._call(payload, due_ns or time.monotonic_ns(), recorder))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def drain(self) -> None:
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _call(self, payload: bytes, due_ns: int, recorder: Recorder) -> None:
        try:
            await self._producer.send(payload)
        except CallFailed as error:
            recorder.fail(error.text)
        else:
            now_ns = time.monotonic_ns()
            recorder.record(now_ns, now_ns - due_ns, 1, len(payload))
        finally:
            self._room.release()


class GrpcSubscriber:
    """Takes what is there, and acknowledges it by up to `in_flight` calls at once."""

    def __init__(self, consumer: Consumer, in_flight: int) -> None:
        self._consumer = consumer
        self._in_flight = in_flight
        self._acks: set[asyncio.Task[None]] = set()

    async def read(self, take: Take, *, stamped: bool) -> None:
        try:
            while True:
                message = await self._consumer.receive()
                payload = message.payload
                stamps = [int.from_bytes(payload[:STAMP_BYTES], "little")] if stamped else []
                take(Delivery(time.monotonic_ns(), 1, memoryview(payload), stamps))
                await self._ack(message)
        finally:
            while self._acks:
                await asyncio.wait(self._acks)

    async def _ack(self, message: Message) -> None:
        if len(self._acks) >= self._in_flight:
            await asyncio.wait(self._acks, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._call_ack(message))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)

    async def _call_ack(self, message: Message) -> None:
        # If it fails the message comes again, and is counted as a duplicate.
        with suppress(CallFailed):
            await self._consumer.ack(message)
