"""An admin port in front of stored history that lies in a folder, for the commands that talk to one."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    """The address of an admin port that serves it; the command under test has an event loop of its own."""
    from pydanube.wire.grpc_connection import GrpcServer
    from pydanube.wire.routes import AdminPlane

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> tuple[asyncio.Server, GrpcServer]:
        server = GrpcServer(AdminPlane.of(history).routes())
        return await loop.create_server(server.new_connection, "127.0.0.1", 0), server

    acceptor, server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    yield f"127.0.0.1:{acceptor.sockets[0].getsockname()[1]}"

    async def stop() -> None:
        acceptor.close()
        await server.connections.drain(1.0)

    asyncio.run_coroutine_threadsafe(stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
