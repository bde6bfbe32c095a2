"""The loads over the native protocol: batches made by the client, receipts awaited once per chunk."""

import asyncio
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from types import TracebackType
from typing import Any, Final

from pydanube.bench.columns import payload_bytes, stamps_of
from pydanube.bench.faces import Delivery
from pydanube.bench.plan import Group, Plan, Read, Send, Stream
from pydanube.bench.recorder import Recorder
from pydanube.client import Batching, Client, Consumer, Message, Producer, QueueFull, connect
from pydanube.kernel.errors import DanubeError

ROWS_PER_DELIVERY_MAX: Final = 1000
_STAMP: Final = struct.Struct("<Q")


class NativeFace:
    """A connection of its own to the broker."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stack = AsyncExitStack()
        self._client: Client

    async def __aenter__(self) -> "NativeFace":
        connecting = connect(f"danube://{self._plan.broker}", token=self._plan.token)
        self._client = await self._stack.enter_async_context(connecting)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def publisher(self, stream: Stream) -> AsyncIterator["NativePublisher"]:
        plan = self._plan
        opening = self._client.producer(
            stream.topic,
            name=stream.producer,
            reliable=plan.reliable,
            idempotent=plan.reliable,
            batching=Batching(
                linger_ms=plan.linger_ms,
                max_bytes=plan.batch_bytes,
                max_messages=plan.batch_messages,
                compression=plan.compression,
            ),
            max_pending_bytes=plan.pending_bytes_each(),
            partitions=plan.partitions,
        )
        async with opening as producer:
            publisher = NativePublisher(producer, many=plan.send is Send.MANY, chunks=plan.chunks_pending())
            try:
                yield publisher
            finally:
                await publisher.close()

    @asynccontextmanager
    async def subscriber(self, group: Group, number: int) -> AsyncIterator["NativeSubscriber"]:
        opening = self._client.consumer(
            group.topic,
            subscription=group.subscription,
            type="shared" if self._plan.consumers > 1 else "exclusive",
            name=f"{group.subscription}-{number}",
            start="earliest",
        )
        async with opening as consumer:
            yield NativeSubscriber(consumer, self._plan.read)


class NativePublisher:
    """Answers come in order: one coroutine awaits the last message of each chunk in turn."""

    def __init__(self, producer: Producer, *, many: bool, chunks: int) -> None:
        self._producer = producer
        self._many = many
        self._sent: asyncio.Queue[_Chunk] = asyncio.Queue(chunks)
        self._collecting = asyncio.create_task(self._collect())

    async def send(self, payloads: Sequence[bytes], due_ns: int | None, recorder: Recorder) -> None:
        since_ns = due_ns or time.monotonic_ns()
        if self._many:
            answer: Awaitable[Any] = asyncio.ensure_future(self._producer.send_many(list(payloads)))
        else:
            answer = await self._send_each(payloads)
        size = len(payloads) * len(payloads[0])
        await self._sent.put((answer, since_ns, len(payloads), size, recorder))
        # Nothing above waits while there is room: let the client write, and answers come in.
        await asyncio.sleep(0)

    async def drain(self) -> None:
        await self._producer.flush()
        await self._sent.join()

    async def close(self) -> None:
        self._collecting.cancel()
        await asyncio.gather(self._collecting, return_exceptions=True)

    async def _send_each(self, payloads: Sequence[bytes]) -> Awaitable[Any]:
        send_nowait = self._producer.send_nowait
        pending: Awaitable[Any] | None = None
        rest: Iterator[bytes] = iter(payloads)
        payload = b""
        while True:
            try:
                for payload in rest:
                    pending = send_nowait(payload)
            except QueueFull:
                await self._producer.ready()
                rest = chain((payload,), rest)
            else:
                assert pending is not None
                return pending

    async def _collect(self) -> None:
        while True:
            answer, since_ns, messages, size, recorder = await self._sent.get()
            try:
                await answer
            except DanubeError as error:
                recorder.fail(error.text, messages)
            else:
                now_ns = time.monotonic_ns()
                recorder.record(now_ns, now_ns - since_ns, messages, size)
            finally:
                self._sent.task_done()


_Chunk = tuple[Awaitable[Any], int, int, int, Recorder]
"""What is awaited for a chunk, since when, for how many messages and bytes, and who is told."""


class NativeSubscriber:
    """Reads as the plan says: Arrow batches, an iteration, or one message at a time."""

    def __init__(self, consumer: Consumer, read: Read) -> None:
        self._consumer = consumer
        self._read = read

    def deliveries(self, *, stamped: bool) -> AsyncGenerator[Delivery, None]:
        match self._read:
            case Read.BATCHES:
                return self._batches(stamped)
            case Read.MESSAGES:
                return self._messages(stamped)
            case Read.ROWS:
                return self._rows(stamped)

    async def _batches(self, stamped: bool) -> AsyncGenerator[Delivery, None]:
        async for batch in self._consumer.batches():
            at_ns = time.monotonic_ns()
            await self._consumer.ack(batch)
            payloads = batch.column("payload")
            stamps = stamps_of(payloads) if stamped else ()
            yield Delivery(at_ns, len(payloads), payload_bytes(payloads), stamps)

    async def _messages(self, stamped: bool) -> AsyncGenerator[Delivery, None]:
        """What an iteration has at hand is looked at together, so that looking costs the messages nothing."""
        taken: list[Message] = []
        async for message in self._consumer:
            taken.append(message)
            if len(taken) == ROWS_PER_DELIVERY_MAX or not self._consumer.has_messages:
                at_ns = time.monotonic_ns()
                await self._consumer.ack(taken)
                yield _delivery(at_ns, [each.payload for each in taken], stamped)
                taken = []

    async def _rows(self, stamped: bool) -> AsyncGenerator[Delivery, None]:
        while True:
            message = await self._consumer.receive()
            at_ns = time.monotonic_ns()
            await self._consumer.ack(message)
            yield _delivery(at_ns, [message.payload], stamped)


def _delivery(at_ns: int, payloads: list[bytes], stamped: bool) -> Delivery:
    stamps = [stamp for (stamp,) in map(_STAMP.unpack_from, payloads)] if stamped else []
    return Delivery(at_ns, len(payloads), memoryview(b"".join(payloads)), stamps)
