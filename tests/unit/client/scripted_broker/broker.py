"""The broker, its connections and its topics."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from google.protobuf.message import Message as ProtobufMessage

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native import frames
from pydanube.protocol.native.arrow import decode_record_batch
from pydanube.protocol.native.batch import is_batch, message_count
from pydanube.protocol.native.bodies import (
    NO_OFFSET,
    decode_credit,
    decode_ranges,
    encode_item_header,
    encode_published,
)
from pydanube.protocol.native.frames import Frame, FrameReader, encode_frame

Action = Callable[["Peer", Frame], None]


@dataclass
class Entry:
    base: int
    count: int
    body: bytes


@dataclass
class Topic:
    """Entries, what producers sent, what subscriptions have acked."""

    entries: list[Entry] = field(default_factory=list)
    next_offset: int = 0
    epochs: dict[str, int] = field(default_factory=dict)
    last_sequences: dict[str, int] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    acked: dict[str, set[int]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    sequences: list[tuple[int, int]] = field(default_factory=list)
    """First sequence and count of every publish that arrived, taken or not."""

    def append(self, body: bytes) -> Entry:
        entry = Entry(self.next_offset, message_count(body), body)
        self.entries.append(entry)
        self.next_offset += entry.count
        return entry

    def payloads(self) -> list[bytes]:
        """Everything stored, message by message."""
        found: list[bytes] = []
        for entry in self.entries:
            if is_batch(entry.body):
                found += decode_record_batch(entry.body).column("payload").to_pylist()
            else:
                found.append(StreamMessage.FromString(entry.body).payload)
        return found


@dataclass
class Channel:
    """A producer, consumer or reader of one connection."""

    kind: int
    topic: str
    name: str = ""
    epoch: int = 0
    idempotent: bool = False
    position: int = 0
    end: int | None = None
    messages: int = 0
    size: int = 0


class ScriptedBroker:
    """Honest, but for the frames a script stands for."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.peers: list[Peer] = []
        self.frames: list[Frame] = []
        """Everything received, but for pings."""
        self.redirects: dict[str, str] = {}
        self.partitions: dict[str, list[str]] = {}
        self.welcome = pb.Welcome(
            version=1,
            broker="scripted",
            frame_bytes_max=frames.FRAME_BYTES_MAX,
            publish_window_bytes=32 * 1024 * 1024,
            channels_max=100,
            idle_seconds_max=60,
        )
        self.reliable = True
        self._scripts: dict[int, deque[Action]] = {}
        self._server: asyncio.Server | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self.port = 0
        self.loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"danube://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._server = await self.loop.create_server(lambda: Peer(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up and do not answer any more; it may be started again on the same port."""
        if self._server is not None:
            self._server.close()
            self.drop_all()
            await self._server.wait_closed()
            self._server = None

    def drop_all(self) -> None:
        for peer in list(self.peers):
            peer.drop()

    def script(self, kind: int, *actions: Action) -> None:
        """Each of the next frames of that kind is met by one action, in order; the others honestly."""
        self._scripts.setdefault(kind, deque()).extend(actions)

    def topic(self, name: str) -> Topic:
        return self.topics.setdefault(name, Topic())

    def count(self, kind: int) -> int:
        return sum(frame.kind == kind for frame in self.frames)

    async def received(self, kind: int, count: int = 1) -> None:
        """Wait until that many frames of a kind have come."""
        if self.count(kind) < count:
            future = asyncio.get_running_loop().create_future()
            self._waiters.append((kind, count, future))
            async with asyncio.timeout(10):
                await future

    def handle(self, peer: "Peer", frame: Frame) -> None:
        if frame.kind != frames.PING:
            self.frames.append(frame)
        actions = self._scripts.get(frame.kind)
        if actions:
            actions.popleft()(peer, frame)
        else:
            peer.honestly(frame)
        for kind, count, future in self._waiters:
            if self.count(kind) >= count and not future.done():
                future.set_result(None)


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.broker = broker
        self.channels: dict[int, Channel] = {}
        self.is_muted = False
        self._reader = FrameReader(frames.FRAME_BYTES_MAX, preface=frames.PREFACE)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.broker.peers.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.peers:
            self.broker.peers.remove(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.receive(data):
            if self in self.broker.peers:
                self.broker.handle(self, frame)

    def drop(self) -> None:
        if self in self.broker.peers:
            self.broker.peers.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading."""
        assert self._transport is not None
        self._transport.pause_reading()

    def resume(self) -> None:
        assert self._transport is not None
        self._transport.resume_reading()

    def close_channel(self, number: int) -> None:
        self.channels.pop(number, None)

    def send(
        self, kind: int, channel: int = 0, request: int = 0, body: ProtobufMessage | bytes = b""
    ) -> None:
        if self.is_muted or self._transport is None:
            return
        data = body if isinstance(body, bytes) else body.SerializeToString()
        self._transport.write(encode_frame(kind, channel, request, data))

    def send_raw(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def fail(
        self, channel: int, request: int, code: ErrorCode, text: str = "as scripted", **more: Any
    ) -> None:
        error = pb.Error(code=code.number, text=text, status=code.status, **more)
        self.send(frames.ERROR, channel, request, error)

    # Honest behaviour

    def honestly(self, frame: Frame) -> None:
        answers: dict[int, Action] = {
            frames.HELLO: Peer._hello,
            frames.PING: Peer._ping,
            frames.LOOKUP: Peer._lookup,
            frames.OPEN_PRODUCER: Peer._open_producer,
            frames.PUBLISH: Peer._publish,
            frames.SUBSCRIBE: Peer._subscribe,
            frames.OPEN_READER: Peer._open_reader,
            frames.CREDIT: Peer._credit,
            frames.ACK: Peer._ack,
            frames.NACK: Peer._nack,
            frames.SEEK: Peer._seek,
            frames.CLOSE: Peer._close,
        }
        answers[frame.kind](self, frame)

    def _hello(self, frame: Frame) -> None:
        self.send(frames.WELCOME, 0, frame.request, self.broker.welcome)

    def _ping(self, frame: Frame) -> None:
        self.send(frames.PONG, 0, frame.request, frame.body)

    def _lookup(self, frame: Frame) -> None:
        topic = pb.Lookup.FromString(frame.body).topic
        elsewhere = self.broker.redirects.get(topic)
        answer = pb.LookedUp(
            here=elsewhere is None,
            connect_url=elsewhere,
            partitions=self.broker.partitions.get(topic, [topic]),
        )
        self.send(frames.LOOKED_UP, 0, frame.request, answer)

    def _open_producer(self, frame: Frame) -> None:
        request = pb.OpenProducer.FromString(frame.body)
        topic = self.broker.topic(request.topic)
        current = topic.epochs.get(request.name, 0)
        if request.HasField("epoch") and request.epoch != current:
            self.fail(frame.channel, frame.request, ErrorCode.PRODUCER_FENCED, "a newer session exists")
            return
        epoch = current if request.HasField("epoch") else current + 1
        topic.epochs[request.name] = epoch
        self.channels[frame.channel] = Channel(
            frames.OPEN_PRODUCER, request.topic, request.name, epoch, request.idempotent
        )
        last = topic.last_sequences.get(request.name, 0)
        opened = pb.ProducerOpened(producer_id=7, epoch=epoch, last_sequence=last)
        self.send(frames.PRODUCER_OPENED, frame.channel, frame.request, opened)

    def _publish(self, frame: Frame) -> None:
        channel = self.channels.get(frame.channel)
        if channel is None:
            self.fail(frame.channel, frame.request, ErrorCode.CHANNEL_UNKNOWN)
            return
        topic = self.broker.topic(channel.topic)
        count = message_count(frame.body)
        topic.sequences.append((frame.sequence, count))
        if channel.idempotent:
            if topic.epochs[channel.name] != channel.epoch:
                self.fail(frame.channel, frame.request, ErrorCode.PRODUCER_FENCED)
                return
            last = topic.last_sequences.get(channel.name, 0)
            if frame.sequence + count - 1 <= last:
                offset = topic.offsets.get((channel.name, frame.sequence), NO_OFFSET)
                self._published(frame, count, offset)
                return
            if frame.sequence != last + 1:
                self.fail(frame.channel, frame.request, ErrorCode.SEQUENCE_GAP, expected_sequence=last + 1)
                return
            topic.last_sequences[channel.name] = last + count
        entry = topic.append(frame.body)
        topic.offsets[channel.name, frame.sequence] = entry.base
        self._published(frame, count, entry.base if self.broker.reliable else NO_OFFSET)
        for peer in self.broker.peers:
            peer.deliver()

    def _published(self, frame: Frame, count: int, offset: int) -> None:
        self.send(frames.PUBLISHED, frame.channel, 0, encode_published(frame.request, count, offset))

    def _subscribe(self, frame: Frame) -> None:
        request = pb.Subscribe.FromString(frame.body)
        topic = self.broker.topic(request.topic)
        if request.subscription not in topic.acked:
            topic.acked[request.subscription] = set()
            topic.starts[request.subscription] = self._position(topic, request.start)
        start = topic.starts[request.subscription]
        self.channels[frame.channel] = Channel(
            frames.SUBSCRIBE, request.topic, request.subscription, position=start
        )
        dispatch = pb.RELIABLE if self.broker.reliable else pb.NON_RELIABLE
        self.send(
            frames.SUBSCRIBED, frame.channel, frame.request, pb.Subscribed(consumer_id=1, dispatch=dispatch)
        )

    def _open_reader(self, frame: Frame) -> None:
        request = pb.OpenReader.FromString(frame.body)
        topic = self.broker.topic(request.topic)
        start = self._position(topic, request.start)
        end = self._position(topic, request.end) if request.HasField("end") else None
        self.channels[frame.channel] = Channel(frames.OPEN_READER, request.topic, position=start, end=end)
        opened = pb.ReaderOpened(next_offset=start, end_offset=end)
        self.send(frames.READER_OPENED, frame.channel, frame.request, opened)

    def _position(self, topic: Topic, position: pb.Position) -> int:
        if position.kind == pb.Position.OFFSET:
            return position.value
        return 0 if position.kind == pb.Position.EARLIEST else topic.next_offset

    def _credit(self, frame: Frame) -> None:
        channel = self.channels.get(frame.channel)
        if channel is None:  # ended by us, which the client cannot know yet
            return
        messages, size = decode_credit(frame.body)
        channel.messages += messages
        channel.size += size
        self.deliver()

    def deliver(self) -> None:
        """Send what credit allows."""
        for number, channel in list(self.channels.items()):
            if channel.kind == frames.OPEN_PRODUCER:
                continue
            topic = self.broker.topic(channel.topic)
            for entry in topic.entries:
                end = entry.base + entry.count
                if channel.end is not None:
                    end = min(end, channel.end)
                if channel.messages <= 0 or channel.size <= 0:
                    break
                if channel.position >= end or self._is_acked(topic, channel, entry):
                    continue
                skip = max(0, channel.position - entry.base)
                channel.position = end
                channel.messages -= end - entry.base - skip
                channel.size -= len(entry.body)
                attempt = topic.attempts[channel.name, entry.base] = (
                    topic.attempts.get((channel.name, entry.base), 0) + 1
                )
                base = entry.base if self.broker.reliable else NO_OFFSET
                header = encode_item_header(
                    base, 1_000, skip, end - entry.base - skip, attempt, len(entry.body)
                )
                self.send(frames.DELIVER, number, 0, header + entry.body)
            if channel.end is not None and channel.position >= channel.end:
                self.close_channel(number)
                self.send(frames.CLOSED, number)

    def _is_acked(self, topic: Topic, channel: Channel, entry: Entry) -> bool:
        acked = topic.acked.get(channel.name, set())
        return all(offset in acked for offset in range(entry.base, entry.base + entry.count))

    def _ack(self, frame: Frame) -> None:
        channel = self.channels[frame.channel]
        for first, last in decode_ranges(frame.body):
            self.broker.topic(channel.topic).acked[channel.name].update(range(first, last + 1))
        if frame.request:
            self.send(frames.ACKED, frame.channel, frame.request)

    def _nack(self, frame: Frame) -> None:
        if frame.request:
            self.send(frames.ACKED, frame.channel, frame.request)

    def _seek(self, frame: Frame) -> None:
        channel = self.channels[frame.channel]
        topic = self.broker.topic(channel.topic)
        position = self._position(topic, pb.Seek.FromString(frame.body).position)
        topic.starts[channel.name] = channel.position = position
        topic.acked[channel.name] = set()
        self.send(frames.SEEKED, frame.channel, 0, pb.Seeked(next_offset=position))
        self.deliver()
        self.send(frames.SEEKED, frame.channel, frame.request, pb.Seeked(next_offset=position))

    def _close(self, frame: Frame) -> None:
        self.close_channel(frame.channel)
        self.send(frames.CLOSED, frame.channel, frame.request)
