"""The same client for programs without an event loop.

    with blocking.connect("danube://127.0.0.1:6650") as client:
        with client.producer("/default/orders") as producer:
            producer.send(b"one")
        with client.consumer("/default/orders", subscription="billing", start="earliest") as consumer:
            for message in consumer:
                consumer.ack(message)

A thread per client runs the loop; all objects may be used from any thread. Messages cross over many at a time, so
that one change of threads serves them all.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from pydanube.client import client as asynchronous
from pydanube.client.blocking_history import BlockingHistory
from pydanube.client.blocking_schemas import BlockingSchemas
from pydanube.client.cluster import Location
from pydanube.client.consumer import Consumer as AsyncConsumer
from pydanube.client.consumer import Delivered
from pydanube.client.errors import QueueFull, Timeout
from pydanube.client.fields import Fields, Payload
from pydanube.client.inbox import Inbox
from pydanube.client.loop_thread import LoopThread
from pydanube.client.message import Message, origin_of
from pydanube.client.outgoing import MESSAGE_OVERHEAD_BYTES, Receipt, Run
from pydanube.client.outgoing import PendingSend as AsyncPendingSend
from pydanube.client.position import AnyPosition
from pydanube.client.producer import Producer as AsyncProducer
from pydanube.client.reader import Reader as AsyncReader
from pydanube.client.retries import Retries
from pydanube.client.tls import TLS, Token
from pydanube.kernel.errors import DanubeError

if TYPE_CHECKING:
    import pyarrow as pa

    from pydanube.client.tables import AnyTable


def connect(
    url: str,
    *,
    token: Token | None = None,
    tls: TLS | None = None,
    timeout: float = 30.0,
    retries: Retries | None = None,
) -> "Client":
    """A client of the cluster the broker at `url` belongs to; see `pydanube.client.connect`."""
    return Client(asynchronous.connect(url, token=token, tls=tls, timeout=timeout, retries=retries))


Self = TypeVar("Self", bound="_Opened")
Work = TypeVar("Work")
Result = TypeVar("Result")


class _Opened(ABC):
    """What is used with `with`."""

    def __enter__(self: Self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Connect, register, join."""

    @abstractmethod
    def close(self) -> None:
        """Say what is left to say, then leave."""


class Client(_Opened):
    """Makes producers, consumers and readers; see `pydanube.client.Client`, which takes the same arguments."""

    def __init__(self, client: asynchronous.Client) -> None:
        self._client = client
        self._loop: LoopThread | None = None
        self.schemas = BlockingSchemas(client.schemas, self._running_loop)
        """The schema registry."""
        self.history = BlockingHistory(client.history, self._running_loop)
        """Where stored messages are."""

    def open(self) -> None:
        loop = self._running_loop()
        try:
            loop.run(self._client.open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.run(self._client.close())
            loop.stop()

    def producer(self, topic: str, **options: Any) -> "Producer":
        return Producer(self._running_loop(), self._client.producer(topic, **options))

    def consumer(self, topic: str, **options: Any) -> "Consumer":
        return Consumer(self._running_loop(), self._client.consumer(topic, **options))

    def reader(self, topic: str, **options: Any) -> "Reader":
        return Reader(self._running_loop(), self._client.reader(topic, **options))

    def lookup(self, topic: str) -> Location:
        return self._running_loop().run(self._client.lookup(topic))

    def partitions(self, topic: str) -> list[str]:
        return self._running_loop().run(self._client.partitions(topic))

    def _running_loop(self) -> LoopThread:
        if self._loop is None:
            self._loop = LoopThread()
        return self._loop


class _Handoff(Generic[Work]):
    """Work for the loop's thread: however much collects, one call there does it all, in order."""

    def __init__(
        self, loop: LoopThread, do: Callable[[Work], bool], room: Callable[[], Awaitable[None]]
    ) -> None:
        self._loop = loop
        self._do = do
        """Returns False if the work must wait for room."""
        self._room = room
        self._work: deque[Work] = deque()
        self._is_called = False
        self._is_waiting = False

    def put(self, work: Work) -> None:
        self._work.append(work)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        # In this order: work put in from now on calls again.
        self._is_called = False
        if not self._drain() and not self._is_waiting:
            self._is_waiting = True
            self._loop.spawn(self.done())

    async def done(self) -> None:
        """In the loop's thread: wait until all of it is done."""
        while not self._drain():
            await self._room()
        self._is_waiting = False

    def _drain(self) -> bool:
        while self._work:
            if not self._do(self._work[0]):
                return False
            self._work.popleft()
        return True


class PendingSend:
    """A message on its way."""

    def __init__(self, producer: "Producer", payload: Payload, fields: Fields) -> None:
        self._producer = producer
        self.payload = payload
        self.fields = fields
        self.pending: AsyncPendingSend | None = None
        self.error: DanubeError | None = None

    def result(self) -> Receipt:
        """Wait for its Receipt."""
        return self._producer.wait(self)


class Producer(_Opened):
    """See `pydanube.client.Producer`."""

    def __init__(self, loop: LoopThread, producer: AsyncProducer) -> None:
        self._loop = loop
        self._producer = producer
        self._handoff = _Handoff(loop, self._send_there, producer.room_change)
        self._handed_bytes = 0
        self._counting = threading.Lock()
        self._unseen: DanubeError | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._loop.run(self._producer.__aexit__(kind, error, trace))

    def open(self) -> None:
        self._loop.run(self._producer.open())

    @property
    def topic(self) -> str:
        return self._producer.topic

    @property
    def name(self) -> str:
        return self._producer.name

    @property
    def partitions(self) -> list[str]:
        return self._producer.partitions

    @property
    def last_sequence(self) -> int:
        return self._producer.last_sequence

    def send(self, payload: Payload, **fields: Unpack[Fields]) -> Receipt:
        return self._loop.run(self._after_handoff(lambda: self._producer.send(payload, **fields)))

    def send_nowait(self, payload: Payload, **fields: Unpack[Fields]) -> PendingSend:
        """Hand the message over and return at once; failures that nobody waits for are raised by `flush`.

        Raises:
            QueueFull: too much is unanswered: call `ready()`, then send again.
        """
        budget = self._producer.budget
        size = len(payload) + MESSAGE_OVERHEAD_BYTES
        with self._counting:
            pending_bytes = budget.used + self._handed_bytes
            if pending_bytes and pending_bytes + size > budget.limit:
                raise budget.full(self.topic)
            self._handed_bytes += size
        pending = PendingSend(self, payload, fields)
        self._handoff.put(pending)
        return pending

    def ready(self) -> None:
        self._loop.run(self._after_handoff(self._producer.ready))

    def send_many(self, payloads: Iterable[Payload], **fields: Unpack[Fields]) -> list[Run]:
        return self._loop.run(self._after_handoff(lambda: self._producer.send_many(payloads, **fields)))

    def send_table(self, table: "AnyTable", **options: Any) -> list[Run]:
        return self._loop.run(self._after_handoff(lambda: self._producer.send_table(table, **options)))

    def flush(self) -> None:
        self._loop.run(self._after_handoff(self._producer.flush))
        error, self._unseen = self._unseen, None
        if error is not None:
            raise error

    def close(self) -> None:
        try:
            self.flush()
        finally:
            self._loop.run(self._producer.close())

    def wait(self, pending: PendingSend) -> Receipt:
        return self._loop.run(self._after_handoff(lambda: _receipt(pending)))

    async def _after_handoff(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """What was handed over before goes first."""
        await self._handoff.done()
        return await call()

    def _send_there(self, pending: PendingSend) -> bool:
        try:
            pending.pending = self._producer.send_nowait(pending.payload, **pending.fields)
        except QueueFull:
            # There was room when it was handed over, but others were faster.
            return False
        except DanubeError as error:
            pending.error = error
            self._unseen = self._unseen or error
        with self._counting:
            self._handed_bytes -= len(pending.payload) + MESSAGE_OVERHEAD_BYTES
        return True


async def _nothing() -> None:
    pass


async def _receipt(pending: PendingSend) -> Receipt:
    if pending.pending is None:
        assert pending.error is not None
        raise pending.error
    return await pending.pending


class _Messages:
    """Messages on this side, fetched many at a time."""

    def __init__(self, loop: LoopThread, inbox: Inbox) -> None:
        self._loop = loop
        self._inbox = inbox
        self._here: deque[Message] = deque()

    def next(self, timeout: float | None = None) -> Message | None:
        """The next one; None if there will be none."""
        while True:
            try:
                message = self._here.popleft()
            except IndexError:
                chunk = self._loop.run(self._inbox.receive_many(timeout))
                if not chunk:
                    return None
                self._here.extend(chunk)
                continue
            origin = origin_of(message)
            # What a seek has made void since it came over is not handed out.
            if origin.generation == origin.feed.generation:
                return message

    def __iter__(self) -> Iterator[Message]:
        while (message := self.next()) is not None:
            yield message

    def receive(self, timeout: float | None, topic: str) -> Message:
        message = self.next(timeout)
        if message is None:
            raise Timeout(f"{topic}: there are no more messages")
        return message

    def batches(self) -> "Iterator[pa.RecordBatch]":
        while (batch := self._loop.run(self._inbox.next_batch())) is not None:
            yield batch


class Consumer(_Opened):
    """See `pydanube.client.Consumer`."""

    def __init__(self, loop: LoopThread, consumer: AsyncConsumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._messages = _Messages(loop, consumer.inbox)
        self._acks = _Handoff(loop, self._ack_there, _nothing)

    def open(self) -> None:
        self._loop.run(self._consumer.open())

    @property
    def topic(self) -> str:
        return self._consumer.topic

    @property
    def name(self) -> str:
        return self._consumer.name

    @property
    def partitions(self) -> list[str]:
        return self._consumer.partitions

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def receive(self, timeout: float | None = None) -> Message:
        return self._messages.receive(timeout, self.topic)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        return self._messages.batches()

    def decode(self, message: Message) -> Any:
        return self._loop.run(self._consumer.decode(message))

    def ack(self, delivered: Delivered, *, confirm: bool = False) -> None:
        """Tell the broker that messages are done with; with `confirm`, wait until it has heard."""
        if not isinstance(delivered, Message):
            if not hasattr(delivered, "schema"):
                delivered = list(delivered)
            self._consumer.check_delivered(delivered)
        self._acks.put(delivered)
        if confirm:
            self._loop.run(self._confirm())

    def _ack_there(self, delivered: Delivered) -> bool:
        self._consumer.ack(delivered)
        return True

    async def _confirm(self) -> None:
        await self._acks.done()
        await self._consumer.ack((), confirm=True)

    def nack(self, delivered: Delivered, *, delay: float = 0.0, reason: str | None = None) -> None:
        self._loop.run(self._consumer.nack(delivered, delay=delay, reason=reason))

    def seek(self, position: AnyPosition) -> None:
        self._loop.run(self._consumer.seek(position))

    def close(self) -> None:
        self._loop.run(self._drain_and_close())

    async def _drain_and_close(self) -> None:
        await self._acks.done()
        await self._consumer.close()


class Reader(_Opened):
    """See `pydanube.client.Reader`."""

    def __init__(self, loop: LoopThread, reader: AsyncReader) -> None:
        self._loop = loop
        self._reader = reader
        self._messages = _Messages(loop, reader.inbox)

    def open(self) -> None:
        self._loop.run(self._reader.open())

    def close(self) -> None:
        self._loop.run(self._reader.close())

    @property
    def topic(self) -> str:
        return self._reader.topic

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def receive(self, timeout: float | None = None) -> Message:
        return self._messages.receive(timeout, self.topic)

    def decode(self, message: Message) -> Any:
        return self._loop.run(self._reader.decode(message))

    def batches(self) -> "Iterator[pa.RecordBatch]":
        return self._messages.batches()
