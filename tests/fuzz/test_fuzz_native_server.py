"""Arbitrary frames at a running broker's native port: an answer, an ERROR or a close, and everybody else is served.

    pytest tests/fuzz/test_fuzz_native_server.py                     about five seconds
    FUZZ_SECONDS=600 pytest tests/fuzz/test_fuzz_native_server.py    as long as asked

A failure prints the seed that replays it: FUZZ_SEED=… runs that one conversation.
"""

import asyncio
import contextlib
import logging
import os
import random
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import arrow, frames
from pydanube.protocol.native.bodies import decode_items, decode_published, encode_credit, encode_ranges
from pydanube.protocol.native.frames import Frame, FrameReader, encode_frame, publish_header
from pydanube.server.config_file import load_config
from pydanube.server.listeners import AddressFlags
from pydanube.server.standalone import Standalone

SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))
SEED = os.environ.get("FUZZ_SEED")
PATIENCE_SECONDS = 10.0
TOPICS = ["/default/a", "/default/b", "/default/live", "/default/unknown", "bad", ""]
HELLO = pb.Hello(version_min=1, version_max=1, client="fuzz").SerializeToString()
BROKERS_FRAMES = {
    frames.WELCOME,
    frames.ERROR,
    frames.PONG,
    frames.LOOKED_UP,
    frames.PRODUCER_OPENED,
    frames.PUBLISHED,
    frames.SUBSCRIBED,
    frames.READER_OPENED,
    frames.DELIVER,
    frames.ACKED,
    frames.SEEKED,
    frames.CLOSED,
}
pytestmark = pytest.mark.timeout(SECONDS + 90)


def topic_of(channel: int) -> str:
    """So that a conversation remembers what it has opened."""
    return TOPICS[channel % len(TOPICS)]


class Peer:
    """A connection that can be written to and listened to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.frames: list[Frame] = []
        self.is_over = False
        self._reader = reader
        self._cutter = FrameReader(frames.FRAME_BYTES_MAX)
        self.writer = writer

    @classmethod
    async def dial(cls, port: int) -> "Peer":
        peer = cls(*await asyncio.open_connection("127.0.0.1", port))
        peer.writer.write(frames.PREFACE)
        return peer

    async def listen(self, seconds: float) -> None:
        """Take what comes within that time; whatever comes must be something a broker says."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            while not self.is_over:
                data = await asyncio.wait_for(self._reader.read(1 << 18), seconds)
                self.is_over = not data
                for frame in self._cutter.receive(data):
                    self.check(frame)
                    self.frames.append(frame)
            return
        self.is_over = self.is_over or self._reader.at_eof()

    async def answer(self, request: int) -> Frame:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not self.is_over:
            for frame in self.frames:
                if frame.request == request:
                    return frame
                if frame.kind == frames.PUBLISHED and any(
                    item.request == request for item in decode_published(frame.body)
                ):
                    return frame
            await self.listen(0.02)
        raise AssertionError(f"request {request} was not answered")

    @staticmethod
    def check(frame: Frame) -> None:
        assert frame.kind in BROKERS_FRAMES, frame.kind
        if frame.kind == frames.ERROR:
            error = pb.Error.FromString(frame.body)
            code = ErrorCode(error.code)
            assert code is not ErrorCode.INTERNAL, error.text
            assert error.status == code.status
        elif frame.kind == frames.DELIVER:
            assert decode_items(frame.body)
        elif frame.kind == frames.PUBLISHED:
            assert decode_published(frame.body)

    def close(self) -> None:
        self.writer.transport.abort()


class Conversation:
    """One peer of doubtful manners."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rudeness = self.dice.choice([0.0, 0.02, 0.2, 1.0])
        self.producers: list[tuple[int, int, str]] = []
        self.next_request = 2

    async def run(self, port: int) -> list[int]:
        """What types of frames came back."""
        peer = await Peer.dial(port)
        try:
            if self.dice.random() < 0.97:
                peer.writer.write(encode_frame(frames.HELLO, 0, 1, HELLO))
            for _ in range(self.dice.randrange(1, 12)):
                data = b"".join(self.frame() for _ in range(self.dice.randrange(1, 20)))
                peer.writer.write(self.mutated(data))
                with contextlib.suppress(ConnectionError):
                    await peer.writer.drain()
                await peer.listen(self.dice.choice([0.0, 0.001, 0.01]))
                self.learn(peer)
                if peer.is_over:
                    break
            return [frame.kind for frame in peer.frames]
        finally:
            peer.close()

    def learn(self, peer: Peer) -> None:
        for frame in peer.frames[-20:]:
            if frame.kind == frames.PRODUCER_OPENED:
                opened = pb.ProducerOpened.FromString(frame.body)
                known = (frame.channel, opened.producer_id, topic_of(frame.channel))
                if known not in self.producers and len(self.producers) < 50:
                    self.producers.append(known)

    def frame(self) -> bytes:
        dice = self.dice
        kind = dice.randrange(1, 25)
        if dice.random() < self.rudeness:
            kind = dice.choice([kind, dice.randrange(256)])
            return struct.pack(
                "<IBBHII",
                size := dice.choice([0, 1, 8, 16, 40, 300]),
                kind,
                dice.choice([0, 0, 0, 1]),
                0,
                dice.randrange(8),
                dice.randrange(40),
            ) + dice.randbytes(size)
        if kind in BROKERS_FRAMES or kind == frames.HELLO:
            kind = dice.choice([frames.PUBLISH, frames.PUBLISH, frames.PUBLISH, frames.CREDIT, frames.ACK])
        if kind == frames.PUBLISH:
            return self.publish()
        channel = 0 if kind in (frames.PING, frames.LOOKUP) else dice.randrange(1, 12)
        return encode_frame(kind, channel, self.request(), self.body(kind, channel))

    def request(self) -> int:
        self.next_request += 1
        return self.next_request

    def publish(self) -> bytes:
        dice = self.dice
        channel, identifier, topic = (
            dice.choice(self.producers) if self.producers else (dice.randrange(12), 5, TOPICS[0])
        )
        topic = dice.choice([topic] * 9 + TOPICS)
        if dice.random() < 0.5:
            row = StreamMessage(
                msg_id=MsgID(producer_id=identifier, topic_name=topic),
                payload=dice.randbytes(dice.choice([0, 10, 5000])),
            )
            if dice.random() < 0.2:
                row.attributes[dice.choice(["x-ttl", "x-deliver-after", "y"])] = dice.choice(["1", "x", "50"])
            body = row.SerializeToString()
        else:
            head = pb.BatchHead(producer_id=identifier, ttl=dice.choice([0, 0, 1, 1 << 62]))
            payloads = [dice.randbytes(dice.randrange(50)) for _ in range(dice.randrange(1, 60))]
            body = arrow.encode_payloads(payloads, head, codec=dice.randrange(3))
        if dice.random() < 0.1:
            body = self.scribbled(body)
        sequence = dice.choice([0, 0, 0, 1, 2, 3, dice.getrandbits(64)])
        return publish_header(channel, self.request(), sequence, len(body)) + body

    def body(self, kind: int, channel: int) -> bytes:
        dice = self.dice
        topic = topic_of(channel)
        position = pb.Position(kind=dice.randrange(5), value=dice.choice([0, 3, 50, 1 << 63]))  # type: ignore[arg-type]
        ranges = [(first, first + dice.choice([0, 1, 30, 1 << 40])) for first in dice.sample(range(200), 3)]
        messages: dict[int, Any] = {
            frames.LOOKUP: pb.Lookup(topic=topic),
            frames.OPEN_PRODUCER: pb.OpenProducer(
                topic=topic,
                name=dice.choice(["p", "q", ""]),
                dispatch=0 if topic.endswith("live") else 1,  # type: ignore[arg-type]
                idempotent=dice.random() < 0.3,
                exclusive=dice.random() < 0.05,
            ),
            frames.SUBSCRIBE: pb.Subscribe(
                topic=topic,
                subscription=dice.choice("stuv"),
                consumer=dice.choice("abc"),
                type=dice.randrange(4),  # type: ignore[arg-type]
                key_filters=dice.choice([[], ["k*"]]),
                start=position,
                unacked_max=dice.choice([0, 1, 10, (1 << 32) - 1]),
            ),
            frames.OPEN_READER: pb.OpenReader(topic=topic, start=position, end=dice.choice([None, position])),
            frames.NACK: pb.Nack(
                ranges=[pb.Range(first=first, last=last) for first, last in ranges],
                delay_ms=dice.choice([0, 5, (1 << 32) - 1]),
            ),
            frames.SEEK: pb.Seek(position=position),
        }
        if kind in messages:
            message: bytes = messages[kind].SerializeToString()
            return message
        if kind == frames.CREDIT:
            return encode_credit(
                dice.choice([0, 5, 1000, (1 << 32) - 1]), dice.choice([0, 100, 1 << 20, (1 << 64) - 1])
            )
        if kind == frames.ACK:
            return encode_ranges(ranges)
        return dice.randbytes(dice.randrange(64)) if kind in (frames.PING, frames.PONG) else b""

    def mutated(self, data: bytes) -> bytes:
        return self.scribbled(data) if self.dice.random() < 0.3 * self.rudeness else data

    def scribbled(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.dice.randrange(1, 4)):
            at = self.dice.randrange(len(changed))
            choice = self.dice.randrange(3)
            if choice == 0:
                changed[at] = self.dice.randrange(256)
            elif choice == 1:
                changed[at:at] = self.dice.randbytes(self.dice.randrange(1, 10))
            else:
                del changed[at : at + self.dice.randrange(1, 10)]
            if not changed:
                return b"\x00"
        return bytes(changed)


class Honest:
    """A client beside the others, which must be served whatever those do."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sent = 0

    @classmethod
    async def dial(cls, port: int) -> "Honest":
        peer = await Peer.dial(port)
        for topic, reliable, channel in (
            ("/default/honest", 1, 1),
            ("/default/a", 1, 9),
            ("/default/live", 0, 8),
        ):
            opening = pb.OpenProducer(topic=topic, name="honest", dispatch=reliable)  # type: ignore[arg-type]
            peer.writer.write(
                (encode_frame(frames.HELLO, 0, 5, HELLO) if channel == 1 else b"")
                + encode_frame(frames.OPEN_PRODUCER, channel, channel, opening.SerializeToString())
            )
            assert (await peer.answer(channel)).kind == frames.PRODUCER_OPENED
        subscribe = pb.Subscribe(topic="/default/honest", subscription="s", consumer="c")
        peer.writer.write(encode_frame(frames.SUBSCRIBE, 2, 2, subscribe.SerializeToString()))
        assert (await peer.answer(2)).kind == frames.SUBSCRIBED
        return cls(peer)

    async def check(self) -> None:
        """Publish one message and get it."""
        peer = self.peer
        opened = next(f for f in peer.frames if f.kind == frames.PRODUCER_OPENED and f.channel == 1)
        identifier = pb.ProducerOpened.FromString(opened.body).producer_id
        row = StreamMessage(
            msg_id=MsgID(producer_id=identifier, topic_name="/default/honest"), payload=b"%d" % self.sent
        ).SerializeToString()
        request = 1000 + self.sent
        peer.writer.write(encode_frame(frames.CREDIT, 2, 0, encode_credit(1, 1000)))
        peer.writer.write(publish_header(1, request, 0, len(row)) + row)
        await peer.answer(request)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.has_it() and time.monotonic() < deadline:
            await peer.listen(0.01)
        assert self.has_it(), "the honest client did not get its message"
        peer.writer.write(encode_frame(frames.ACK, 2, 0, encode_ranges([(self.sent, self.sent)])))
        peer.frames = [opened]
        self.sent += 1

    def has_it(self) -> bool:
        items = [decode_items(frame.body) for frame in self.peer.frames if frame.kind == frames.DELIVER]
        return any(item.base == self.sent for some in items for item in some)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    file = tmp_path / "danube.yml"
    file.write_text("storage: {wal: {fsync: never, rotation: {max_bytes: 4194304}}}")
    addresses = AddressFlags(broker_addr="127.0.0.1:0", admin_addr="127.0.0.1:0", prom_exporter="off")
    config = load_config(file, environment={}, data_dir=str(tmp_path / "data"), addresses=addresses)
    server = Standalone(config)
    await server.start()
    yield server.client_port
    await server.stop()


async def test_any_conversation_ends_in_answers_errors_or_a_close(
    port: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**40)
    started = time.monotonic()
    honest = await Honest.dial(port)
    answers: Counter[int] = Counter()
    caplog.set_level(logging.ERROR)
    while True:
        seeds = [seed + n for n in range(1 if SEED else 4)]  # some at once, to meet each other
        try:
            for heard in await asyncio.gather(*(Conversation(one).run(port) for one in seeds)):
                answers.update(heard)
            await honest.check()
            errors = [record for record in caplog.records if record.exc_info]
            assert not errors, errors[0].getMessage()
            said = capsys.readouterr().out
            assert "failed" not in said, said
        except Exception as error:
            raise AssertionError(f"replay with FUZZ_SEED={seed} (or one of the three behind it)") from error
        seed += len(seeds)
        if SEED or time.monotonic() - started > SECONDS:
            break
    honest.peer.close()
    # Most conversations must get somewhere, or nothing was tested.
    assert SEED or (answers[frames.DELIVER] and answers[frames.PUBLISHED] and answers[frames.SUBSCRIBED])


def test_the_fuzzer_would_notice() -> None:
    """A canary: a broker that blames itself, or says what only clients say, does not pass."""
    for kind, message in (
        (frames.ERROR, pb.Error(code=ErrorCode.INTERNAL.number, status=ErrorCode.INTERNAL.status)),
        (frames.PUBLISH, pb.Error()),
    ):
        with pytest.raises(AssertionError):
            Peer.check(Frame(kind, 0, 0, message.SerializeToString()))
