"""An admin port in front of stored history that lies in a folder, for the commands that talk to one."""

import asyncio
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.security.certificates import ServerTls
from pydanube.security.settings import TlsFiles
from pydanube.server.process import SystemClock
from pydanube.wire.admin_calls import methods
from pydanube.wire.grpc_connection import GrpcServer, Handler, asynchronous
from pydanube.wire.storage_admin_service import StorageAdminService

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("stored_history")

from stored_history import StoredHistory  # noqa: E402


@pytest.fixture
def history(tmp_path: Path) -> StoredHistory:
    """A topic without segments yet."""
    folder = tmp_path / "store"
    folder.mkdir()
    return StoredHistory(folder)


@pytest.fixture
def admin_addr(history: StoredHistory) -> Iterator[str]:
    """The address of an admin port that serves it."""
    with serving(history) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture
def tls_admin(history: StoredHistory, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The same by TLS: its address, and the certificate to trust."""
    authority = trustme.CA()
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "chain.pem", tmp_path / "key.pem"
    authority.cert_pem.write_to_path(str(ca))
    certificate = authority.issue_cert("127.0.0.1")
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key))
    files = TlsFiles(cert_file=str(chain), key_file=str(key))
    with serving(history, ServerTls("tls", files, SystemClock()).context) as port:
        yield f"https://127.0.0.1:{port}", ca


@contextmanager
def serving(history: StoredHistory, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port, on an event loop in a thread: the command under test has a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[asyncio.Server, GrpcServer]:
        server = GrpcServer(_routes(history))
        return await loop.create_server(server.new_connection, "127.0.0.1", 0, ssl=tls), server

    async def stop(acceptor: asyncio.Server, server: GrpcServer) -> None:
        acceptor.close()
        await server.connections.drain(1.0)

    try:
        acceptor, server = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield acceptor.sockets[0].getsockname()[1]
        finally:
            asyncio.run_coroutine_threadsafe(stop(acceptor, server), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _routes(history: StoredHistory) -> dict[str, Handler]:
    """What there is to say about storage, and that every topic is a reliable one."""

    async def describe_topic(body: bytes) -> pb.DescribeTopicResponse:
        name = pb.DescribeTopicRequest.FromString(body).name
        return pb.DescribeTopicResponse(name=name, broker_id="7", delivery="Reliable")

    answers = StorageAdminService(history).methods() | methods(
        "danube_admin.TopicAdmin", {"DescribeTopic": describe_topic}
    )
    return {path: asynchronous(answer) for path, answer in answers.items()}
