"""The driver against the real gRPC client, over loopback."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.http2 import Headers
from pydanube.wire.grpc_connection import GrpcConnection, GrpcServer, asynchronous

MIB = 1024 * 1024
CLIENT_OPTIONS = [("grpc.max_receive_message_length", 8 * MIB), ("grpc.max_send_message_length", 8 * MIB)]


class Service:
    """A service that echoes, streams, fails and remembers what became of its streams."""

    def __init__(self) -> None:
        self.cancelled: asyncio.Queue[int] = asyncio.Queue()
        self.sent = 0

    def routes(self) -> dict[str, object]:
        return {
            "/test.Echo/Unary": self.echo,
            "/test.Echo/Later": self.later,
            "/test.Echo/Async": asynchronous(self.answer),
            "/test.Echo/Header": self.header,
            "/test.Echo/Reject": self.reject,
            "/test.Echo/Bug": self.bug,
            "/test.Echo/Count": self.count,
            "/test.Echo/Idle": self.idle,
            "/test.Echo/Flood": self.flood,
        }

    def echo(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.reply(stream_id, body)

    def later(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        asyncio.get_running_loop().call_soon(connection.reply, stream_id, body)

    async def answer(self, body: bytes, headers: Headers) -> bytes:
        await asyncio.sleep(0)
        if body == b"reject":
            raise Rejected("not this one")
        return body.upper()

    def header(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.reply(stream_id, (headers.get("authorization") or "none").encode())

    def reject(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        raise Rejected("100% wröng\n", ErrorCode.TOPIC_UNKNOWN)

    def bug(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        raise ValueError("the password is swordfish")

    def count(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.start(stream_id)
        left = int(body)

        def fill() -> None:
            nonlocal left
            while left and connection.room(stream_id):
                connection.send(stream_id, b"%08d" % left, b"!" * 1000)
                left -= 1
            if not left:
                connection.finish(stream_id)

        connection.on_drained(stream_id, fill)
        fill()

    def idle(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.start(stream_id)
        connection.on_closed(stream_id, lambda: self.cancelled.put_nowait(stream_id))

    def flood(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        connection.start(stream_id)

        def fill() -> None:
            while connection.room(stream_id):
                connection.send(stream_id, bytes(10_000))
                self.sent += 1

        connection.on_drained(stream_id, fill)
        connection.on_closed(stream_id, lambda: self.cancelled.put_nowait(stream_id))
        fill()


class Bench:
    def __init__(self, service: Service, server: GrpcServer, port: int, channel: grpc.aio.Channel) -> None:
        self.service = service
        self.server = server
        self.port = port
        self.channel = channel

    async def call(self, method: str, body: bytes = b"", **options: object) -> bytes:
        return await self.channel.unary_unary(f"/test.Echo/{method}")(body, **options)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    service = Service()
    server = GrpcServer(service.routes())
    loop = asyncio.get_running_loop()
    acceptor = await loop.create_server(server.new_connection, "127.0.0.1", 0)
    port = acceptor.sockets[0].getsockname()[1]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CLIENT_OPTIONS) as channel:
        yield Bench(service, server, port, channel)
    acceptor.close()
    await server.connections.drain(1.0)


async def test_a_unary_call_is_answered(bench: Bench) -> None:
    assert await bench.call("Unary", b"hello") == b"hello"


async def test_an_empty_message_is_a_message(bench: Bench) -> None:
    assert await bench.call("Unary", b"") == b""


async def test_an_answer_may_come_after_the_read(bench: Bench) -> None:
    assert await bench.call("Later", b"hello") == b"hello"


@pytest.mark.parametrize("size", [16 * 1024, 65_535, MIB, 4 * MIB])
async def test_large_messages_pass_both_windows(bench: Bench, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    assert await bench.call("Unary", body[:size]) == body[:size]


async def test_many_large_messages_at_once_do_not_starve_each_other(bench: Bench) -> None:
    bodies = [bytes([n]) * MIB for n in range(24)]
    assert await asyncio.gather(*(bench.call("Unary", body) for body in bodies)) == bodies


async def test_a_message_over_the_limit_is_out_of_range(bench: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Unary", bytes(4 * MIB + 1))
    assert failure.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert await bench.call("Unary", b"still alive") == b"still alive"


async def test_many_calls_at_once_get_their_own_answers(bench: Bench) -> None:
    bodies = [b"%d" % n for n in range(500)]
    assert await asyncio.gather(*(bench.call("Unary", body) for body in bodies)) == bodies


async def test_a_coroutine_may_answer(bench: Bench) -> None:
    assert await bench.call("Async", b"hello") == b"HELLO"
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Async", b"reject")
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_headers_reach_the_handler(bench: Bench) -> None:
    for token in ("Bearer one", "Bearer two", "Bearer one"):
        assert await bench.call("Header", metadata=(("authorization", token),)) == token.encode()


async def test_a_deadline_on_every_call_changes_nothing(bench: Bench) -> None:
    for timeout in (5, 6.5, 7.25):
        assert await bench.call("Unary", b"x", timeout=timeout) == b"x"


async def test_a_danube_error_becomes_its_status_and_text(bench: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Reject")
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND
    assert failure.value.details() == "100% wröng\n"


async def test_a_bug_is_internal_and_leaks_nothing(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Bug")
    assert failure.value.code() is grpc.StatusCode.INTERNAL
    assert "swordfish" not in failure.value.details()
    assert len([r for r in caplog.records if r.name == "pydanube.wire" and r.exc_info]) == 1


async def test_an_unknown_method_is_unimplemented(bench: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Nothing")
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_compressed_message_is_unimplemented(bench: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await bench.call("Unary", bytes(1000), compression=grpc.Compression.Gzip)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_delivers_everything_in_order(bench: Bench) -> None:
    stream = bench.channel.unary_stream("/test.Echo/Count")(b"2000")
    numbers = [int(message[:8]) async for message in stream]
    assert numbers == list(range(2000, 0, -1))


async def test_stream_headers_arrive_before_any_message(bench: Bench) -> None:
    stream = bench.channel.unary_stream("/test.Echo/Idle")(b"")
    await stream.initial_metadata()
    stream.cancel()
    await bench.service.cancelled.get()


async def test_a_cancelled_stream_is_reported_once(bench: Bench) -> None:
    stream = bench.channel.unary_stream("/test.Echo/Idle")(b"")
    await stream.initial_metadata()
    stream.cancel()
    await bench.service.cancelled.get()
    await bench.call("Unary")
    assert bench.service.cancelled.empty()


async def test_a_lost_connection_is_noticed_while_idle(bench: Bench) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{bench.port}") as channel:
        streams = [channel.unary_stream("/test.Echo/Idle")(b"") for _ in range(3)]
        for stream in streams:
            await stream.initial_metadata()
        for connection in list(bench.server.connections.open):
            connection.abort()
        for _ in streams:
            await bench.service.cancelled.get()
    assert bench.service.cancelled.empty()


async def test_a_reader_that_stops_bounds_what_is_queued(bench: Bench) -> None:
    stream = bench.channel.unary_stream("/test.Echo/Flood")(b"")
    await stream.read()
    await bench.call("Unary")
    sent_before = -1
    while bench.service.sent != sent_before:
        sent_before = bench.service.sent
        for _ in range(20):
            await bench.call("Unary")
    # The client's windows and buffers plus one queue, in messages of 10 kB.
    assert bench.service.sent * 10_000 < 32 * MIB
    stream.cancel()
    await bench.service.cancelled.get()


async def test_draining_lets_open_calls_finish(bench: Bench) -> None:
    stream = bench.channel.unary_stream("/test.Echo/Idle")(b"")
    await stream.initial_metadata()
    draining = asyncio.create_task(bench.server.connections.drain(5.0))
    await asyncio.sleep(0)
    (connection,) = bench.server.connections.open
    connection.send(1, b"last words")
    connection.finish(1)
    assert [message async for message in stream] == [b"last words"]
    await draining
    assert not bench.server.connections.open
