"""A hand-driven HTTP/2 client for the core's tests: frames out, frames in, no sockets."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hpack import Decoder, Encoder

from pydanube.protocol.grpc import GrpcServerConnection
from pydanube.protocol.http2 import Event, Http2Limits
from pydanube.protocol.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
)

REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Echo/Unary"),
    (":authority", "127.0.0.1"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


class Frame(NamedTuple):
    kind: int
    flags: int
    stream_id: int
    payload: bytes


def read_frames(data: bytes) -> list[Frame]:
    """Take apart what the server wrote; it must consist of whole frames."""
    frames = []
    while data:
        length = int.from_bytes(data[:3], "big")
        assert len(data) >= 9 + length
        frames.append(Frame(data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
        data = data[9 + length :]
    return frames


def message(body: bytes) -> bytes:
    """A length-prefixed gRPC message."""
    return len(body).to_bytes(5, "big") + body


class Client:
    """A client and the server connection it talks to; `now` is the time the server sees."""

    def __init__(self, limits: Http2Limits | None = None, settings: bytes = b"") -> None:
        self.server = GrpcServerConnection(limits or Http2Limits())
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.now = 100.0
        self.deliver(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.greeting = self.frames()

    def deliver(self, data: bytes) -> list[Event]:
        return self.server.receive(data, self.now)

    def frames(self) -> list[Frame]:
        """What the server has to say now."""
        return read_frames(self.server.data_to_send())

    def block(self, *fields: tuple[str, str]) -> bytes:
        return self.encoder.encode(list(fields or REQUEST))

    def open(self, stream_id: int, *, ends: bool = False) -> list[Event]:
        flags = END_HEADERS | END_STREAM if ends else END_HEADERS
        return self.deliver(frame(HEADERS, flags, stream_id, self.block()))

    def data(self, stream_id: int, payload: bytes, *, ends: bool = False) -> list[Event]:
        return self.deliver(frame(DATA, END_STREAM if ends else 0, stream_id, payload))

    def call(self, stream_id: int, body: bytes = b"") -> list[Event]:
        return self.open(stream_id) + self.data(stream_id, message(body), ends=True)

    def goaway(self) -> int | None:
        """The error code of the server's GOAWAY, if it sent one."""
        for sent in self.frames():
            if sent.kind == GOAWAY:
                return int.from_bytes(sent.payload[4:8], "big")
        return None

    def resets(self) -> list[tuple[int, int]]:
        """(stream, error code) of the server's RST_STREAM frames."""
        sent = [f for f in self.frames() if f.kind == RST_STREAM]
        return [(f.stream_id, int.from_bytes(f.payload, "big")) for f in sent]

    def response(self, stream_id: int) -> tuple[dict[str, str], bytes]:
        """Headers and trailers together, and the body, of a response now complete."""
        fields: dict[str, str] = {}
        body = b""
        for sent in self.frames():
            if sent.stream_id == stream_id and sent.kind == HEADERS:
                fields |= dict(self.decoder.decode(sent.payload))
            if sent.stream_id == stream_id and sent.kind == DATA:
                body += sent.payload
        return fields, body


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture(scope="session")
def new_client() -> Callable[..., Client]:
    return Client
