"""The loads over the native protocol: batches made by the client, receipts awaited once per turn."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from types import TracebackType
from typing import Any, Final, NamedTuple

from pydanube.bench.columns import payload_bytes, stamps_of
from pydanube.bench.faces import Delivery, Take
from pydanube.bench.plan import Group, Plan, Read, Send, Stream, part
from pydanube.bench.recorder import Recorder
from pydanube.bench.sequences import consecutive
from pydanube.client import TLS, Batching, Client, Consumer, Producer, QueueFull, Retries, connect
from pydanube.kernel.errors import DanubeError

GATHERED_MAX: Final = 1000
_RETRIES: Final = Retries(attempts_max=4)
"""A second or so: a run that has to wait for its broker measures nothing."""
_STAMP: Final = struct.Struct("<Q")


class NativeFace:
    """A connection of its own to the broker."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stack = AsyncExitStack()
        self._client: Client

    async def __aenter__(self) -> "NativeFace":
        plan = self._plan
        tls = TLS(ca=plan.ca, certificate=plan.cert, key=plan.cert_key) if plan.broker.tls else None
        connecting = connect(str(plan.broker), token=plan.token, tls=tls, retries=_RETRIES)
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
            publisher = NativePublisher(producer, many=plan.send is Send.MANY, turns=plan.turns_pending())
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
            # A non-reliable topic keeps nothing: its end is the only beginning.
            start="earliest" if self._plan.reliable else "latest",
        )
        async with opening as consumer:
            yield NativeSubscriber(consumer, self._plan.read)


class NativePublisher:
    """Answers come in order, so one coroutine awaits the last message of each turn.

    Partitions answer each for itself: of those, the last message of each is awaited.
    """

    def __init__(self, producer: Producer, *, many: bool, turns: int) -> None:
        self._producer = producer
        self._many = many
        self._sent: asyncio.Queue[_Turn] = asyncio.Queue(turns)
        self._collecting = asyncio.create_task(self._collect())

    async def send(self, payloads: Sequence[bytes], due_ns: int | None, recorder: Recorder) -> None:
        since_ns = due_ns or time.monotonic_ns()
        if self._many:
            sending = asyncio.ensure_future(self._producer.send_many(payloads))
            # A run that ends early does not ask for every answer.
            sending.add_done_callback(_seen)
            answers: list[Awaitable[Any]] = [sending]
        else:
            last = min(len(self._producer.partitions), len(payloads))
            await self._send_each(payloads[:-last])
            pendings = [await self._send_each([payload]) for payload in payloads[-last:]]
            answers = [pending for pending in pendings if pending is not None]
        await self._sent.put(_Turn(answers, since_ns, len(payloads), len(payloads[0]), recorder))
        # Nothing above waits while there is room: let the client write, and answers come in.
        await asyncio.sleep(0)

    async def drain(self) -> None:
        await self._producer.flush()
        await self._sent.join()

    async def close(self) -> None:
        self._collecting.cancel()
        await asyncio.gather(self._collecting, return_exceptions=True)

    async def _send_each(self, payloads: Sequence[bytes]) -> Awaitable[Any] | None:
        """The answer to the last of them, if there is one."""
        send_nowait = self._producer.send_nowait
        pending: Awaitable[Any] | None = None
        rest: Iterator[bytes] = iter(payloads)
        payload = b""
        while True:
            try:
                for payload in rest:
                    pending = send_nowait(payload)
                return pending
            except QueueFull:
                await self._producer.ready()
                rest = chain((payload,), rest)

    async def _collect(self) -> None:
        while True:
            turn = await self._sent.get()
            for number, answer in enumerate(turn.answers):
                messages = part(turn.messages, len(turn.answers), number)
                try:
                    await answer
                except DanubeError as error:
                    turn.recorder.fail(error.text, messages)
                else:
                    now_ns = time.monotonic_ns()
                    turn.recorder.record(now_ns, now_ns - turn.since_ns, messages, messages * turn.size)
            self._sent.task_done()


def _seen(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


class _Turn(NamedTuple):
    """Messages handed over together, and who is told of their answers."""

    answers: list[Awaitable[Any]]
    since_ns: int
    messages: int
    size: int
    recorder: Recorder


class NativeSubscriber:
    """Reads as the plan says: Arrow batches, an iteration, or one message at a time."""

    def __init__(self, consumer: Consumer, read: Read) -> None:
        self._consumer = consumer
        self._read = read

    async def read(self, take: Take, *, stamped: bool) -> None:
        match self._read:
            case Read.BATCHES:
                await self._batches(take, stamped)
            case Read.MESSAGES:
                await self._messages(take, stamped)
            case Read.ROWS:
                await self._rows(take, stamped)

    async def _batches(self, take: Take, stamped: bool) -> None:
        async for batch in self._consumer.batches():
            at_ns = time.monotonic_ns()
            await self._consumer.ack(batch)
            payloads = batch.column("payload")
            stamps = stamps_of(payloads) if stamped else ()
            take(Delivery(at_ns, len(payloads), payload_bytes(payloads), stamps))

    async def _messages(self, take: Take, stamped: bool) -> None:
        gathered = _Gathered(take, stamped)
        async for message in self._consumer:
            gathered.add(message.payload)
            await self._consumer.ack(message)

    async def _rows(self, take: Take, stamped: bool) -> None:
        while True:
            message = await self._consumer.receive()
            take(_delivery([message.payload], stamped))
            await self._consumer.ack(message, confirm=True)


class _Gathered:
    """Messages an iteration gave without pausing, looked at together once it does: cheap, and still on time."""

    def __init__(self, take: Take, stamped: bool) -> None:
        self._take = take
        self._stamped = stamped
        self._payloads: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def add(self, payload: bytes) -> None:
        payloads = self._payloads
        payloads.append(payload)
        if len(payloads) == 1:
            self._loop.call_soon(self._hand_over)
        elif len(payloads) == GATHERED_MAX:
            self._hand_over()

    def _hand_over(self) -> None:
        payloads, self._payloads = self._payloads, []
        if payloads:
            self._take(_delivery(payloads, self._stamped))


def _delivery(payloads: list[bytes], stamped: bool) -> Delivery:
    at_ns = time.monotonic_ns()
    stamps = consecutive([stamp for (stamp,) in map(_STAMP.unpack_from, payloads)]) if stamped else ()
    return Delivery(at_ns, len(payloads), memoryview(b"".join(payloads)), stamps)
