"""A native client that adds nothing: frames as told, answers by number, every wait bounded and failing loudly."""

import asyncio
import contextlib
import ssl
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message

from broker_harness.wire_client import EXCLUSIVE, PATIENCE_SECONDS, SILENCE_SECONDS
from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import arrow, frames
from pydanube.protocol.native.batch import is_batch
from pydanube.protocol.native.bodies import (
    Item,
    Published,
    decode_items,
    decode_published,
    encode_credit,
    encode_ranges,
)
from pydanube.protocol.native.frames import Frame, FrameReader, encode_frame, publish_header

MUCH = (1_000_000, 1 << 30)
"""Credit nobody uses up."""

EARLIEST = pb.Position(kind=pb.Position.EARLIEST)
LATEST = pb.Position(kind=pb.Position.LATEST)
CURSOR = pb.Position(kind=pb.Position.CURSOR)


def at_offset(offset: int) -> pb.Position:
    return pb.Position(kind=pb.Position.OFFSET, value=offset)


def at_time(ms: int) -> pb.Position:
    return pb.Position(kind=pb.Position.TIMESTAMP, value=ms)


class NativeRefusal(Exception):
    """The broker answered ERROR."""

    def __init__(self, error: pb.Error) -> None:
        super().__init__(f"{_name(error.code)}: {error.text}")
        self.error = error
        self.code = ErrorCode(error.code)


@contextlib.contextmanager
def refused_with(code: ErrorCode, text: str = "") -> Iterator[pytest.ExceptionInfo[NativeRefusal]]:
    """What is inside must be refused with this code, and say this."""
    with pytest.raises(NativeRefusal) as caught:
        yield caught
    assert caught.value.code is code, caught.value
    assert text in caught.value.error.text
    assert caught.value.error.status == code.status


class NativeClient:
    """One connection. Frames are sorted as they come: answers by request, the rest by channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.welcome = pb.Welcome()
        self.received: list[Frame] = []
        """Everything that came, in order."""
        self._reader = reader
        self._writer = writer
        self._numbers = iter(range(1, 1 << 31))
        self._answers: dict[int, asyncio.Queue[Frame | Published]] = defaultdict(asyncio.Queue)
        self._channels: dict[int, asyncio.Queue[Frame]] = defaultdict(asyncio.Queue)
        self._over = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def dial(cls, address: str, tls: ssl.SSLContext | None = None) -> "NativeClient":
        """Connect and say nothing."""
        host, _, port = address.rpartition(":")
        name = None if tls is None else host
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls, server_hostname=name))

    @classmethod
    async def connect(
        cls, address: str, tls: ssl.SSLContext | None = None, token: str | None = None
    ) -> "NativeClient":
        """Connect and shake hands."""
        client = await cls.dial(address, tls)
        client.write(frames.PREFACE)
        hello = pb.Hello(version_min=1, version_max=1, client="test", token=token)
        answer = await client.request(frames.HELLO, hello)
        client.welcome = pb.Welcome.FromString(answer.body)
        return client

    async def close(self) -> None:
        """Go away without a word."""
        self._reading.cancel()
        self._writer.transport.abort()
        await asyncio.gather(self._reading, return_exceptions=True)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def stop_reading(self) -> None:
        """Leave what comes in the sockets' buffers."""
        self._reading.cancel()
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def new_number(self) -> int:
        return next(self._numbers)

    def send(self, kind: int, message: Message | bytes = b"", *, channel: int = 0, request: int = 0) -> None:
        body = message if isinstance(message, bytes) else message.SerializeToString()
        self.write(encode_frame(kind, channel, request, body))

    async def request(self, kind: int, message: Message | bytes = b"", *, channel: int = 0) -> Frame:
        """Ask and wait for the one answer."""
        number = self.new_number()
        self.send(kind, message, channel=channel, request=number)
        frame = await self.answer(number)
        assert isinstance(frame, Frame), frame
        return frame

    async def answer(self, request: int) -> Frame | Published:
        frame = await self._next(self._answers[request], f"answer to request {request}")
        if isinstance(frame, Frame) and frame.kind == frames.ERROR:
            raise NativeRefusal(pb.Error.FromString(frame.body))
        return frame

    async def said_on(self, channel: int, within: float = PATIENCE_SECONDS) -> Frame:
        """The next frame of a channel that answers no request."""
        return await self._next(self._channels[channel], f"frame on channel {channel}", within)

    async def is_silent_on(self, channel: int, seconds: float = SILENCE_SECONDS) -> bool:
        with contextlib.suppress(TimeoutError):
            frame = await asyncio.wait_for(self._channels[channel].get(), seconds)
            raise AssertionError(f"unexpected frame of type {frame.kind}: {frame.body[:200]!r}")
        return not self._over.is_set()

    async def closed_with(self) -> ErrorCode | None:
        """Wait for the broker to close; the code it gave for that, if any."""
        await asyncio.wait_for(self._over.wait(), PATIENCE_SECONDS)
        errors = [f for f in self.received if f.kind == frames.ERROR and f.channel == 0 and f.request == 0]
        return ErrorCode(pb.Error.FromString(errors[-1].body).code) if errors else None

    async def ping(self, body: bytes = b"ping") -> bytes:
        return (await self.request(frames.PING, body)).body

    async def look_up(self, topic: str) -> pb.LookedUp:
        return pb.LookedUp.FromString((await self.request(frames.LOOKUP, pb.Lookup(topic=topic))).body)

    async def open_producer(
        self, topic: str, name: str = "producer", *, reliable: bool = True, channel: int = 0, **fields: Any
    ) -> "NativeProducer":
        channel = channel or self.new_number()
        message = pb.OpenProducer(
            topic=topic, name=name, dispatch=pb.RELIABLE if reliable else pb.NON_RELIABLE, **fields
        )
        answer = await self.request(frames.OPEN_PRODUCER, message, channel=channel)
        assert (answer.kind, answer.channel) == (frames.PRODUCER_OPENED, channel)
        return NativeProducer(self, channel, topic, name, pb.ProducerOpened.FromString(answer.body))

    async def subscribe(
        self,
        topic: str,
        subscription: str = "subscription",
        name: str = "consumer",
        *,
        kind: int = EXCLUSIVE,
        credit: tuple[int, int] = MUCH,
        channel: int = 0,
        **fields: Any,
    ) -> "NativeConsumer":
        channel = channel or self.new_number()
        message = pb.Subscribe(
            topic=topic,
            subscription=subscription,
            consumer=name,
            type=pb.SubscriptionType.Name(kind),
            **fields,
        )
        answer = await self.request(frames.SUBSCRIBE, message, channel=channel)
        assert (answer.kind, answer.channel) == (frames.SUBSCRIBED, channel)
        consumer = NativeConsumer(self, channel, topic, pb.Subscribed.FromString(answer.body))
        consumer.give(*credit)
        return consumer

    async def open_reader(
        self,
        topic: str,
        start: pb.Position = EARLIEST,
        end: pb.Position | None = None,
        *,
        credit: tuple[int, int] = MUCH,
    ) -> "NativeReader":
        channel = self.new_number()
        message = pb.OpenReader(topic=topic, start=start, end=end)
        answer = await self.request(frames.OPEN_READER, message, channel=channel)
        assert (answer.kind, answer.channel) == (frames.READER_OPENED, channel)
        reader = NativeReader(self, channel, topic, pb.ReaderOpened.FromString(answer.body))
        reader.give(*credit)
        return reader

    async def _next(self, queue: asyncio.Queue[Any], what: str, within: float = PATIENCE_SECONDS) -> Any:
        try:
            return await asyncio.wait_for(queue.get(), within)
        except TimeoutError:
            state = "closed" if self._over.is_set() else "open"
            seen = [(f.kind, f.channel, f.request) for f in self.received[-5:]]
            raise AssertionError(
                f"no {what} within {within} s; the connection is {state}, last seen {seen}"
            ) from None

    async def _read(self) -> None:
        cutter = FrameReader(frames.FRAME_BYTES_MAX)
        try:
            while data := await self._reader.read(1 << 18):
                for frame in cutter.receive(data):
                    self._sort(frame)
        except (ConnectionError, ssl.SSLError):
            pass
        self._over.set()
        self._writer.close()

    def _sort(self, frame: Frame) -> None:
        self.received.append(frame)
        if frame.kind == frames.PUBLISHED:
            for published in decode_published(frame.body):
                self._answers[published.request].put_nowait(published)
        elif frame.request:
            self._answers[frame.request].put_nowait(frame)
        else:
            self._channels[frame.channel].put_nowait(frame)


@dataclass
class NativeChannel:
    client: NativeClient
    number: int
    topic: str

    async def close(self) -> None:
        answer = await self.client.request(frames.CLOSE, channel=self.number)
        assert (answer.kind, answer.channel) == (frames.CLOSED, self.number)

    async def ended(self) -> None:
        """Wait for the broker to end the channel with nothing wrong."""
        frame = await self._control()
        assert frame.kind == frames.CLOSED, frame.kind

    async def failed(self) -> NativeRefusal:
        """Wait for the broker to end the channel, and say why it did."""
        frame = await self._control()
        assert frame.kind == frames.ERROR, frame.kind
        return NativeRefusal(pb.Error.FromString(frame.body))

    async def _control(self) -> Frame:
        while True:
            frame = await self.client.said_on(self.number)
            if frame.kind != frames.DELIVER:
                return frame


class NativeProducer(NativeChannel):
    """A producer's channel and what its messages are stamped with."""

    def __init__(
        self, client: NativeClient, number: int, topic: str, name: str, opened: pb.ProducerOpened
    ) -> None:
        super().__init__(client, number, topic)
        self.name = name
        self.opened = opened
        self.id = opened.producer_id

    def row(self, payload: bytes | str, **fields: Any) -> bytes:
        fields = {
            "msg_id": MsgID(producer_id=self.id, topic_name=self.topic),
            "publish_time": 1_700_000_000_000,
            "producer_name": self.name,
        } | fields
        return StreamMessage(payload=_bytes(payload), **fields).SerializeToString()

    def head(self, **fields: Any) -> pb.BatchHead:
        fields = {
            "producer_id": self.id,
            "producer_name": self.name,
            "publish_time": 1_700_000_000_000,
        } | fields
        return pb.BatchHead(**fields)

    def batch(
        self, payloads: Sequence[bytes | str], head: pb.BatchHead | None = None, **columns: Any
    ) -> bytes:
        return arrow.encode_payloads(
            [_bytes(payload) for payload in payloads], head or self.head(), **columns
        )

    def publish(self, body: bytes, sequence: int = 0) -> int:
        """Send without waiting; the number of the request."""
        request = self.client.new_number()
        self.client.write(publish_header(self.number, request, sequence, len(body)) + body)
        return request

    async def published(self, request: int) -> Published:
        answer = await self.client.answer(request)
        assert isinstance(answer, Published), answer
        return answer

    async def send(self, body: bytes, sequence: int = 0) -> Published:
        return await self.published(self.publish(body, sequence))

    async def send_rows(self, *payloads: bytes | str) -> list[Published]:
        requests = [self.publish(self.row(payload)) for payload in payloads]
        return [await self.published(request) for request in requests]

    async def send_batch(self, *payloads: bytes | str) -> Published:
        return await self.send(self.batch(payloads))


class Received(NamedTuple):
    """One message out of an item."""

    offset: int
    payload: str
    attempt: int
    message: StreamMessage


class NativeDeliveries(NativeChannel):
    """What consumers and readers share: credit and deliveries."""

    def __init__(self, client: NativeClient, number: int, topic: str) -> None:
        super().__init__(client, number, topic)
        self._messages: list[Received] = []
        self._items: list[Item] = []

    def give(self, messages: int, size: int = MUCH[1]) -> None:
        self.client.send(frames.CREDIT, encode_credit(messages, size), channel=self.number)

    async def item(self, within: float = PATIENCE_SECONDS) -> Item:
        """The next item as it came."""
        while not self._items:
            frame = await self.client.said_on(self.number, within)
            assert frame.kind == frames.DELIVER, f"frame of type {frame.kind}: {frame.body[:300]!r}"
            self._items += decode_items(frame.body)
        return self._items.pop(0)

    async def take(self, count: int) -> list[Received]:
        """The next messages, whatever items they come in."""
        while len(self._messages) < count:
            self._messages += unpacked(await self.item(), self.topic)
        taken, self._messages = self._messages[:count], self._messages[count:]
        return taken

    async def payloads(self, count: int) -> list[str]:
        return [received.payload for received in await self.take(count)]

    async def offsets(self, count: int) -> list[int]:
        return [received.offset for received in await self.take(count)]

    async def assert_silent(self, seconds: float = SILENCE_SECONDS) -> None:
        assert not self._messages, self._messages
        assert not self._items, self._items
        assert await self.client.is_silent_on(self.number, seconds), "the connection is closed"


class NativeConsumer(NativeDeliveries):
    """A consumer's channel."""

    def __init__(self, client: NativeClient, number: int, topic: str, subscribed: pb.Subscribed) -> None:
        super().__init__(client, number, topic)
        self.subscribed = subscribed

    async def ack(self, first: int, last: int | None = None) -> None:
        """Acknowledge a range and wait until the broker has it."""
        await self.ack_ranges([(first, first if last is None else last)])

    async def ack_ranges(self, ranges: list[tuple[int, int]]) -> None:
        answer = await self.client.request(frames.ACK, encode_ranges(ranges), channel=self.number)
        assert (answer.kind, answer.channel, answer.body) == (frames.ACKED, self.number, b"")

    async def take_acked(self, count: int) -> list[str]:
        taken = await self.take(count)
        await self.ack_ranges([(received.offset, received.offset) for received in taken])
        return [received.payload for received in taken]

    async def nack(self, first: int, last: int | None = None, **fields: Any) -> None:
        ranges = [pb.Range(first=first, last=first if last is None else last)]
        answer = await self.client.request(frames.NACK, pb.Nack(ranges=ranges, **fields), channel=self.number)
        assert answer.kind == frames.ACKED

    async def seek(self, position: pb.Position) -> int:
        """Move the subscription; the answer's offset."""
        answer = await self.client.request(frames.SEEK, pb.Seek(position=position), channel=self.number)
        assert (answer.kind, answer.channel) == (frames.SEEKED, self.number)
        return int(pb.Seeked.FromString(answer.body).next_offset)

    async def seeked(self) -> int:
        """Wait to be told that the subscription was moved; what came before is dropped, as the contract says."""
        frame = await self._control()
        assert frame.kind == frames.SEEKED, frame.kind
        self._items.clear()
        self._messages.clear()
        return int(pb.Seeked.FromString(frame.body).next_offset)


class NativeReader(NativeDeliveries):
    """A reader's channel."""

    def __init__(self, client: NativeClient, number: int, topic: str, opened: pb.ReaderOpened) -> None:
        super().__init__(client, number, topic)
        self.opened = opened

    async def rest(self) -> list[Received]:
        """Everything up to the end the broker declares."""
        while True:
            frame = await self.client.said_on(self.number)
            if frame.kind != frames.DELIVER:
                assert frame.kind == frames.CLOSED, frame.kind
                taken, self._messages = self._messages, []
                return taken
            for item in decode_items(frame.body):
                self._messages += unpacked(item, self.topic)


def unpacked(item: Item, topic: str) -> list[Received]:
    """The messages an item means."""
    if is_batch(item.body):
        bodies = arrow.rows(item.body, topic, item.skip, item.messages)
    else:
        assert (item.skip, item.messages) == (0, 1)
        bodies = [item.body]
    assert len(bodies) == item.messages
    found = []
    for number, body in enumerate(bodies):
        message = StreamMessage.FromString(body)
        offset = item.base + item.skip + number
        found.append(Received(offset, message.payload.decode(errors="replace"), item.attempt, message))
    return found


def _bytes(payload: bytes | str) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def _name(code: int) -> str:
    return ErrorCode(code).name
