"""Arbitrary and mutated frames at the HTTP/2 core: only documented outcomes, within the limits, never an exception.

    pytest tests/fuzz/test_fuzz_http2.py                     about five seconds
    FUZZ_SECONDS=600 pytest tests/fuzz/test_fuzz_http2.py    as long as asked

A failure prints the seed that replays it: FUZZ_SEED=… runs that one conversation.
"""

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hpack import Encoder

from pydanube.protocol.grpc import Call, GrpcServerConnection
from pydanube.protocol.http2 import Cancelled, Event, Http2Limits
from pydanube.protocol.http2.frames import (
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    frame,
)

SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))
SEED = os.environ.get("FUZZ_SEED")
LIMITS = Http2Limits(
    concurrent_streams_max=20,
    connection_window_bytes=200_000,
    stream_window_bytes=20_000,
    reserved_bytes_max=50_000,
    body_bytes_max=100_000,
    connection_queue_bytes_max=200_000,
    control_bytes_max=20_000,
)
DOCUMENTED_ERRORS = {
    NO_ERROR,
    PROTOCOL_ERROR,
    FLOW_CONTROL_ERROR,
    STREAM_CLOSED,
    FRAME_SIZE_ERROR,
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
}
REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Echo/Unary"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
pytestmark = pytest.mark.timeout(SECONDS + 60)


def message(body: bytes) -> bytes:
    return len(body).to_bytes(5, "big") + body


class Conversation:
    """One connection, a peer of doubtful manners, and a service that answers at random."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.server = GrpcServerConnection(LIMITS, message_bytes_max=100_000)
        self.rudeness = self.dice.choice([0.0, 0.01, 0.05, 0.3, 1.0])
        self.encoder = Encoder()
        self.now = 1.0
        self.next_stream = 1
        self.calls: set[int] = set()  # not yet answered
        self.handed_over: set[int] = set()
        self.cancelled: set[int] = set()
        self.output = b""
        self.paused = False

    def run(self) -> None:
        # Mostly a proper beginning, for little is learnt behind a bad one.
        if self.dice.random() < 0.97:
            self.feed(PREFACE + frame(SETTINGS, 0, 0, b""))
        for _ in range(self.dice.randrange(60)):
            data = b"".join(self.some_frame() for _ in range(self.dice.randrange(1, 5)))
            self.feed(self.mutated(data))
            self.act()
            self.check()
        self.check_output()

    def feed(self, data: bytes) -> None:
        cut = self.dice.randrange(len(data) + 1) if data else 0
        for piece in (data[:cut], data[cut:]):
            for event in self.server.receive(piece, self.now):
                if isinstance(event, Call):
                    assert event.stream_id not in self.handed_over, "handed over twice"
                    self.handed_over.add(event.stream_id)
                    self.calls.add(event.stream_id)
                else:
                    assert isinstance(event, Cancelled)
                    # Also a call already answered, whose answer was still waiting for a window.
                    assert event.stream_id in self.handed_over, "cancelled but never handed over"
                    assert event.stream_id not in self.cancelled, "cancelled twice"
                    self.cancelled.add(event.stream_id)
                    self.calls.discard(event.stream_id)

    def some_frame(self) -> bytes:
        dice = self.dice
        if dice.random() >= self.rudeness:
            return self.polite_frame()
        stream_id = dice.choice([0, self.next_stream, max(1, self.next_stream - 2), dice.randrange(40)])
        kind = dice.choice([0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, dice.randrange(256)])
        flags = dice.choice([0, 1, 4, 5, 5, 8, 13, 0x20, 0x2D, dice.randrange(256)])
        if kind == HEADERS:
            if dice.random() < 0.8:
                stream_id = self.next_stream
                self.next_stream += 2
                flags = dice.choice([4, 4, 4, 5, 0])
            return frame(kind, flags, stream_id, self.some_block())
        payload = {
            0: lambda: message(dice.randbytes(dice.choice([0, 1, 10, 3000, 16_000])))[
                : dice.randrange(16_384)
            ],
            2: lambda: dice.randbytes(5),
            3: lambda: dice.randbytes(4),
            4: lambda: b"".join(
                dice.randrange(8).to_bytes(2, "big")
                + dice.choice([0, 1, 100, 16_384, 2**31 - 1]).to_bytes(4, "big")
                for _ in range(dice.randrange(3))
            ),
            6: lambda: dice.randbytes(8),
            7: lambda: dice.randbytes(8),
            8: lambda: dice.choice([0, 1, 1000, 2**31 - 1]).to_bytes(4, "big"),
            9: self.some_block,
        }.get(kind, lambda: dice.randbytes(dice.randrange(20)))()
        return frame(kind, flags, stream_id, payload)

    def polite_frame(self) -> bytes:
        """Something a client may say."""
        dice = self.dice
        opened = dice.randrange(1, self.next_stream + 1) | 1
        choice = dice.randrange(12)
        if choice == 0:
            return frame(6, 0, 0, dice.randbytes(8))
        if choice == 1:
            return frame(8, 0, 0, dice.choice([1, 1000, 100_000]).to_bytes(4, "big"))
        if choice == 2 and opened < self.next_stream:
            return frame(8, 0, opened, dice.choice([1, 1000, 100_000]).to_bytes(4, "big"))
        if choice == 3 and opened < self.next_stream:
            return frame(RST_STREAM, 0, opened, dice.randrange(14).to_bytes(4, "big"))
        if choice == 4:
            return frame(SETTINGS, 0, 0, b"\x00\x04" + dice.choice([0, 10, 65_535, 10**6]).to_bytes(4, "big"))
        if choice == 5:
            return frame(2, 0, opened, bytes(5))
        if choice == 6:
            return self.unfinished_call()
        return self.whole_call()

    def unfinished_call(self) -> bytes:
        stream_id = self.next_stream
        self.next_stream += 2
        start = frame(HEADERS, 4, stream_id, self.encoder.encode(REQUEST))
        size = self.dice.choice([10, 30_000, 90_000, 200_000, 2**32 - 1])
        return start + frame(0, 0, stream_id, size.to_bytes(5, "big") + bytes(self.dice.randrange(10_000)))

    def whole_call(self) -> bytes:
        body = message(self.dice.randbytes(self.dice.choice([0, 10, 1000, 30_000])))
        stream_id = self.next_stream
        self.next_stream += 2
        pieces = [body[at : at + 10_000] for at in range(0, len(body), 10_000)]
        written = [frame(HEADERS, 4, stream_id, self.encoder.encode(REQUEST))]
        written += [frame(0, 0, stream_id, piece) for piece in pieces]
        return b"".join(written) + frame(0, 1, stream_id, b"")

    def some_block(self) -> bytes:
        if self.dice.random() < 0.1:
            return self.dice.randbytes(self.dice.randrange(40))
        fields = list(REQUEST)
        if self.dice.random() < 0.3:
            fields.append((f"x-{self.dice.randrange(9)}", str(self.dice.randrange(99))))
        if self.dice.random() < 0.1:
            self.dice.shuffle(fields)
        return self.encoder.encode(fields)

    def mutated(self, data: bytes) -> bytes:
        if self.dice.random() >= 0.3 * self.rudeness or not data:
            return data
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
                break
        return bytes(changed)

    def act(self) -> None:
        """What a service and a driver may do at any time."""
        server, dice = self.server, self.dice
        for stream_id in [s for s in self.calls if dice.random() < 0.5]:
            choice = dice.randrange(5)
            body = bytes(dice.choice([0, 10, 1000, 40_000]))
            if choice == 0:
                server.reply(stream_id, body)
                self.calls.discard(stream_id)
            elif choice == 1:
                server.fail(stream_id, dice.randrange(17), "no\n")
                self.calls.discard(stream_id)
            elif choice == 2:
                server.start(stream_id)
            elif choice == 3 and server.room(stream_id):
                server.send(stream_id, body, b"suffix")
            elif choice == 4:
                server.finish(stream_id)
                self.calls.discard(stream_id)
        if dice.random() < 0.05:
            self.paused = not self.paused
            server.pause() if self.paused else server.resume()
        if not self.paused:
            self.output += server.data_to_send()
            server.take_drained()
        if dice.random() < 0.02:
            server.shutdown()
        self.now += dice.choice([0.0, 0.0, 0.1, 5.0])
        for event in server.tick(self.now):
            self.calls.discard(event.stream_id)

    def check(self) -> None:
        """The limits hold at every step."""
        server = self.server
        streams = server._streams.values()
        assert len(streams) <= LIMITS.concurrent_streams_max
        assert (
            sum(stream.body_bytes for stream in streams if not stream.delivered)
            <= LIMITS.connection_window_bytes
        )
        assert len(server._buffer) < LIMITS.frame_bytes_max + 9
        assert server._outbox.queued_bytes == sum(stream.queue_bytes for stream in streams)
        assert server._bodies._reserved_bytes == sum(stream.reserved_bytes for stream in streams)

    def check_output(self) -> None:
        """Whole frames, no response twice, and only errors that are documented."""
        ended: set[int] = set()
        for kind, flags, stream_id, payload in self.frames_written():
            if kind == GOAWAY:
                assert int.from_bytes(payload[4:8], "big") in DOCUMENTED_ERRORS
            elif kind == RST_STREAM:
                ended.add(stream_id)
            elif kind in (0, HEADERS):
                assert stream_id not in ended, "something follows the end of a stream"
                if flags & 1:
                    ended.add(stream_id)

    def frames_written(self) -> Iterator[tuple[int, int, int, bytes]]:
        data = self.output
        while data:
            length = int.from_bytes(data[:3], "big")
            assert len(data) >= 9 + length
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]
            data = data[9 + length :]


def test_any_conversation_has_a_documented_outcome() -> None:
    if SEED:
        Conversation(int(SEED)).run()
        return
    seed = random.SystemRandom().randrange(2**40)
    started = time.monotonic()
    calls = 0
    while time.monotonic() - started < SECONDS:
        conversation = Conversation(seed)
        try:
            conversation.run()
        except Exception as error:
            raise AssertionError(f"replay with FUZZ_SEED={seed}") from error
        calls += len(conversation.handed_over)
        seed += 1
    # Most conversations must get somewhere, or nothing was tested.
    assert calls > 0


def test_the_fuzzer_would_notice() -> None:
    """A canary: a core that hands a call over twice does not pass."""

    class Stutter:
        def __init__(self, server: GrpcServerConnection) -> None:
            self._server = server

        def __getattr__(self, name: str) -> Any:
            return getattr(self._server, name)

        def receive(self, data: bytes, now: float) -> list[Event]:
            return [event for event in self._server.receive(data, now) for _ in range(2)]

    def stuttering(seed: int) -> Conversation:
        conversation = Conversation(seed)
        conversation.server = Stutter(conversation.server)  # type: ignore[assignment]
        return conversation

    def run_many() -> None:
        for seed in range(200):
            stuttering(seed).run()

    with pytest.raises(AssertionError):
        run_many()
