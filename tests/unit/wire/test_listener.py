"""The listener: who gets in, by which door, and who does not."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme

from pydanube.protocol.http2 import Headers
from pydanube.protocol.http2.frames import PREFACE
from pydanube.security.certificates import ServerTls
from pydanube.security.settings import Mode, TlsFiles
from pydanube.server.process import SystemClock
from pydanube.wire.grpc_connection import GrpcConnection, GrpcServer
from pydanube.wire.listener import Door, Listener, http2_door


def echo(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
    connection.reply(stream_id, body)


class Native:
    """A protocol of another kind: answers everything with its own first word."""

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._on_lost = on_lost

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(b"native heard " + data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None, **limits: float) -> AsyncIterator[Listener]:
    server = GrpcServer({"/echo": echo})
    listener = Listener([http2_door(server.new_connection), Door(b"DNB1", "danube/1", Native)], **limits)
    await listener.open("127.0.0.1", 0, tls=tls)
    try:
        yield listener
    finally:
        await listener.close()
        await server.connections.drain(0.1)
    while listener.connections_open:
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder / "certificate.pem", folder / "key.pem", folder / "ca.pem"


async def test_the_preface_leads_to_grpc() -> None:
    async with listening() as listener, grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}") as channel:
        assert await channel.unary_unary("/echo")(b"x") == b"x"
        assert listener.connections_open == 1


async def test_a_preface_in_single_bytes_leads_to_grpc() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for byte in PREFACE:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.readexactly(9))[3] == 4
        writer.close()


async def test_other_first_bytes_lead_to_another_door() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"DNB1 hello")
        assert await reader.readexactly(23) == b"native heard DNB1 hello"
        writer.close()


async def test_http1_is_told_what_this_port_speaks() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await reader.read()
        head, body = answer.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 505 ")
        assert b"content-length: %d" % len(body) in head
        assert body == b"this port speaks gRPC and the native protocol\n"
        assert listener.connections_unknown_total == 1
        writer.close()


async def test_unknown_bytes_are_turned_away() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\x16\x03\x01 this is TLS on a plain port")
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with listening(first_bytes_seconds=0.01) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_no_more_connections_than_allowed() -> None:
    async with listening(connections_max=1) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"DNB1")
        await reader.readexactly(17)
        second_reader, second_writer = await asyncio.open_connection("127.0.0.1", listener.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await second_reader.readexactly(1)
        assert listener.connections_refused_total == 1
        writer.close()
        second_writer.close()
        while listener.connections_open:
            await asyncio.sleep(0)
        third_reader, third_writer = await asyncio.open_connection("127.0.0.1", listener.port)
        third_writer.write(b"DNB1")
        await third_reader.readexactly(17)
        third_writer.close()


def tls_of(mode: Mode, certificate: Path, key: Path, ca: Path | None = None) -> ssl.SSLContext:
    files = TlsFiles(cert_file=str(certificate), key_file=str(key), ca_file=None if ca is None else str(ca))
    return ServerTls(mode, files, SystemClock()).context


async def test_tls_with_the_grpc_client(files: tuple[Path, Path, Path]) -> None:
    certificate, key, ca = files
    async with listening(tls_of("tls", certificate, key)) as listener:
        credentials = grpc.ssl_channel_credentials(ca.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{listener.port}", credentials) as channel:
            assert await channel.unary_unary("/echo")(bytes(1_000_000)) == bytes(1_000_000)


async def test_alpn_leads_to_another_door(files: tuple[Path, Path, Path], authority: trustme.CA) -> None:
    certificate, key, _ = files
    async with listening(tls_of("tls", certificate, key)) as listener:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        context.set_alpn_protocols(["danube/1"])
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        writer.write(b"hello")
        assert await reader.readexactly(18) == b"native heard hello"
        writer.close()
        await writer.wait_closed()


async def test_a_client_without_a_certificate_is_refused(
    files: tuple[Path, Path, Path], authority: trustme.CA
) -> None:
    certificate, key, ca = files
    async with listening(tls_of("mtls", certificate, key, ca)) as listener:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        context.set_alpn_protocols(["h2"])
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        authority.issue_cert("client@example.org").configure_cert(context)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
        writer.close()
        await writer.wait_closed()
