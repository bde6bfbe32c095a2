"""The driver's own promises: when it writes, what it reports, and what it does with a peer that misbehaves."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from hpack import Encoder

from pydanube.kernel.errors import Unavailable
from pydanube.protocol.http2 import Headers, Http2Limits
from pydanube.protocol.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from pydanube.wire.grpc_connection import GrpcConnection, GrpcServer, asynchronous

WIDE_OPEN = (4).to_bytes(2, "big") + (2**31 - 1).to_bytes(4, "big")
HELLO = (
    PREFACE
    + frame(SETTINGS, 0, 0, WIDE_OPEN)
    + frame(WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65_535).to_bytes(4, "big"))
)


def call(stream_id: int, path: str, body: bytes = b"") -> bytes:
    """A whole unary request; the header block leaves the dynamic table alone."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        ("content-type", "application/grpc"),
    ]
    encoder = Encoder()
    encoder.header_table_size = 0
    block = encoder.encode(fields)
    message = len(body).to_bytes(5, "big") + body
    return frame(HEADERS, END_HEADERS, stream_id, block) + frame(DATA, END_STREAM, stream_id, message)


def frame_kinds(data: bytes) -> list[int]:
    kinds = []
    while data:
        kinds.append(data[3])
        data = data[9 + int.from_bytes(data[:3], "big") :]
    return kinds


class MemoryTransport:
    """The in-memory twin of a socket transport: remembers what was written and how it ended."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.ended = ""

    def write(self, data: bytes) -> None:
        assert not self.ended, "write after the end"
        self.writes.append(data)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> object:
        return {"peername": ("127.0.0.1", 1)}.get(name)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = "eof"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended in ("closed", "aborted")


class Held:
    """A service that keeps its calls until the test says what to do with them."""

    def __init__(self) -> None:
        self.calls: list[tuple[GrpcConnection, int]] = []
        self.closed: list[int] = []
        self.drained: list[int] = []

    def hold(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        self.calls.append((connection, stream_id))
        connection.on_closed(stream_id, lambda: self.closed.append(stream_id))
        connection.on_drained(stream_id, lambda: self.drained.append(stream_id))

    def echo(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.reply(stream_id, body)

    def fill(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.start(stream_id)

        def fill() -> None:
            while connection.room(stream_id):
                connection.send(stream_id, bytes(10_000))
                self.calls.append((connection, stream_id))

        connection.on_drained(stream_id, fill)
        connection.on_closed(stream_id, lambda: self.closed.append(stream_id))
        fill()

    def server(self, limits: Http2Limits | None = None) -> GrpcServer:
        return GrpcServer({"/hold": self.hold, "/echo": self.echo, "/fill": self.fill}, limits=limits)


def connect(
    server: GrpcServer, on_lost: Callable[[], None] | None = None
) -> tuple[GrpcConnection, MemoryTransport]:
    connection = server.new_connection(on_lost)
    transport = MemoryTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(HELLO)
    transport.writes.clear()
    return connection, transport


async def one_pass() -> None:
    """Let the loop run what is scheduled for its next pass."""
    await asyncio.sleep(0)


async def test_answers_given_during_a_read_leave_in_one_write() -> None:
    connection, transport = connect(Held().server())
    connection.data_received(b"".join(call(1 + 2 * n, "/echo") for n in range(10)))
    (written,) = transport.writes
    assert frame_kinds(written) == [HEADERS, DATA, HEADERS] * 10
    connection.connection_lost(None)


async def test_answers_given_later_leave_in_one_write_per_connection() -> None:
    held = Held()
    server = held.server()
    pairs = [connect(server) for _ in range(3)]
    for connection, transport in pairs:
        connection.data_received(call(1, "/hold") + call(3, "/hold"))
        assert transport.writes == []
    for connection, stream_id in held.calls:
        connection.reply(stream_id, b"x")
    assert [transport.writes for _, transport in pairs] == [[], [], []]
    await one_pass()
    for connection, transport in pairs:
        (written,) = transport.writes
        assert frame_kinds(written) == [HEADERS, DATA, HEADERS] * 2
        connection.connection_lost(None)
    assert held.closed == []


async def test_a_lost_connection_closes_each_open_call_once() -> None:
    held = Held()
    lost: list[bool] = []
    connection, _ = connect(held.server(), lambda: lost.append(True))
    connection.data_received(call(1, "/hold") + call(3, "/hold") + call(5, "/hold"))
    connection.reply(3, b"")
    connection.connection_lost(ConnectionResetError())
    assert held.closed == [1, 5]
    assert lost == [True]
    for stream_id in (1, 3, 5):
        connection.send(stream_id, b"nobody hears this")
        connection.finish(stream_id, Unavailable("gone"))
        assert connection.room(stream_id) >= 0
    await one_pass()
    assert held.closed == [1, 5]


async def test_a_reset_closes_its_call_only() -> None:
    held = Held()
    connection, _ = connect(held.server())
    connection.data_received(call(1, "/hold") + call(3, "/hold"))
    connection.data_received(frame(RST_STREAM, 0, 1, bytes(4)))
    assert held.closed == [1]
    connection.connection_lost(None)
    assert held.closed == [1, 3]


async def test_asking_to_be_told_of_an_end_that_has_been_is_told_at_once() -> None:
    held = Held()
    connection, _ = connect(held.server())
    connection.data_received(call(1, "/hold"))
    connection.connection_lost(None)
    seen: list[int] = []
    connection.on_closed(1, lambda: seen.append(1))
    assert seen == [1]


async def test_a_failing_callback_does_not_silence_the_others(caplog) -> None:
    held = Held()
    connection, _ = connect(held.server())
    connection.data_received(call(1, "/hold") + call(3, "/hold"))

    def fail() -> None:
        raise ValueError("a bug in a service")

    connection.on_closed(1, fail)
    connection.connection_lost(None)
    assert held.closed == [3]
    assert "a bug in a service" in caplog.text


async def test_nothing_is_written_while_the_transport_is_full() -> None:
    held = Held()
    connection, transport = connect(held.server())
    connection.data_received(call(1, "/hold") + call(3, "/hold"))
    connection.start(1)
    connection.pause_writing()
    assert connection.room(1) == 0
    connection.reply(3, b"waits")
    await one_pass()
    assert transport.writes == []
    connection.resume_writing()
    await one_pass()
    assert frame_kinds(b"".join(transport.writes)) == [HEADERS, HEADERS, DATA, HEADERS]
    assert held.drained == [1]
    assert connection.room(1) > 0
    connection.connection_lost(None)


async def test_a_peer_that_pings_without_reading_is_cut_off() -> None:
    held = Held()
    server = held.server(Http2Limits(control_bytes_max=1000))
    connection, transport = connect(server)
    connection.data_received(call(1, "/hold"))
    connection.pause_writing()
    for _ in range(200):
        connection.data_received(frame(PING, 0, 0, bytes(8)))
    assert transport.ended == "aborted"
    assert held.closed == [1]
    connection.connection_lost(None)
    assert server.protocol_errors_total == 1


async def test_a_protocol_error_is_explained_before_the_end() -> None:
    held = Held()
    connection, transport = connect(held.server())
    connection.data_received(call(1, "/hold"))
    connection.data_received(frame(DATA, 0, 99, b"on an idle stream"))
    assert transport.ended == "eof"
    assert frame_kinds(transport.writes[-1]) == [GOAWAY]
    assert held.closed == [1]
    connection.reply(1, b"too late")
    await one_pass()
    connection.connection_lost(None)
    assert held.closed == [1]


async def test_a_peer_that_does_not_let_us_close_is_aborted() -> None:
    connection, transport = connect(Held().server())
    connection.data_received(frame(DATA, 0, 99, b"on an idle stream"))
    connection._closing_since -= 60
    connection.tick()
    assert transport.ended == "aborted"
    connection.connection_lost(None)


async def test_a_silent_peer_is_closed_and_its_calls_with_it() -> None:
    held = Held()
    connection, transport = connect(
        held.server(Http2Limits(keepalive_seconds=0, keepalive_timeout_seconds=0))
    )
    connection.data_received(call(1, "/hold"))
    while not transport.ended:
        connection.tick()
    assert held.closed == [1]
    connection.connection_lost(None)


async def test_counters_tell_what_happened() -> None:
    held = Held()
    server = held.server()
    connection, _ = connect(server)
    connection.data_received(call(1, "/echo") + call(3, "/nothing") + call(5, "/hold"))
    connection.data_received(frame(RST_STREAM, 0, 5, bytes(4)))
    assert (server.connections.total, len(server.connections.open)) == (1, 1)
    connection.connection_lost(None)
    assert len(server.connections.open) == 0
    assert (server.calls_total, server.failures_total, server.resets_total) == (3, 1, 1)


async def test_the_task_of_a_cancelled_call_is_cancelled() -> None:
    ended: list[str] = []

    async def wait(body: bytes, headers: Headers) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return b""

    server = GrpcServer({"/wait": asynchronous(wait)})
    connection, _ = connect(server)
    connection.data_received(call(1, "/wait"))
    await one_pass()
    connection.data_received(frame(RST_STREAM, 0, 1, bytes(4)))
    while server.connections.tasks:
        await one_pass()
    assert ended == ["ended"]
    connection.connection_lost(None)


async def test_extra_info_comes_from_the_transport() -> None:
    connection, _ = connect(Held().server())
    assert connection.extra_info("peername") == ("127.0.0.1", 1)
    connection.connection_lost(None)
    assert connection.extra_info("peername") is None


# --- over real sockets


@asynccontextmanager
async def listening(server: GrpcServer) -> AsyncIterator[int]:
    acceptor = await asyncio.get_running_loop().create_server(server.new_connection, "127.0.0.1", 0)
    try:
        yield acceptor.sockets[0].getsockname()[1]
    finally:
        acceptor.close()
        await server.connections.drain(0.1)


async def test_a_reader_that_stops_reading_the_socket_bounds_what_is_sent() -> None:
    held = Held()
    server = held.server()
    loop = asyncio.get_running_loop()
    async with listening(server) as port:
        with socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.setblocking(False)
            await loop.sock_sendall(stalled, HELLO + call(1, "/fill"))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HELLO)
            sent, stream_id = -1, 1
            while sent != len(held.calls) or sent == 0:
                sent = len(held.calls)
                for _ in range(10):
                    writer.write(call(stream_id, "/echo", b"barrier%d" % stream_id))
                    await reader.readuntil(b"barrier%d" % stream_id)
                    stream_id += 2
            # Socket buffers, the transport's 256 KiB, one pump and one queue, in messages of 10 kB.
            assert sent * 10_000 < 16 * 1024 * 1024
            writer.close()


async def test_a_vanished_client_is_noticed_while_idle() -> None:
    held = Held()
    server = held.server()
    loop = asyncio.get_running_loop()
    async with listening(server) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, HELLO + call(1, "/hold"))
            while not held.calls:
                await one_pass()
        while server.connections.open:
            await one_pass()
    assert held.closed == [1]
