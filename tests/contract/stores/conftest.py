"""Every durable store, opened the same way; a new one joins by adding itself here."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from pydanube.stores.directory import DirectoryStore  # noqa: E402
from pydanube.stores.memory import MemoryObjects  # noqa: E402
from pydanube.stores.settings import Backend, DurableSettings, open_store, problems  # noqa: E402
from pydanube.stores.store import DurableStore  # noqa: E402
from tests.contract.stores import peer_servers as peers  # noqa: E402
from tests.contract.stores.fault_proxy import FaultProxy  # noqa: E402


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.PeerServer]:
    server = peers.start_seaweedfs(tmp_path_factory.mktemp("seaweedfs"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peers.PeerServer]:
    server = peers.start_azurite(tmp_path_factory.mktemp("azurite"))
    yield server
    server.stop()


def s3_settings(endpoint: str, **changes: object) -> DurableSettings:
    values: dict[str, object] = {
        "backend": Backend.S3,
        "root": f"s3://{peers.BUCKET}/{uuid4().hex}",
        "region": "us-east-1",
        "endpoint": endpoint,
        "access_key": peers.WRITER[0],
        "secret_key": peers.WRITER[1],
        "max_retries": 1,
        "request_timeout_seconds": 20,
    }
    return DurableSettings(**{**values, **changes})  # type: ignore[arg-type]


SERVICE_ACCOUNT = json.dumps(
    {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": "", "gcs_base_url": ""}
)
"""What emulators of Google's store take instead of a key."""


def as_google_would(head: bytes) -> bytes:
    """Google's XML interface is S3's but for who asks and for its own header of create-if-absent."""
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"authorization:")]
    return b"\r\n".join(lines).replace(b"x-goog-if-generation-match: 0", b"if-none-match: *")


@dataclass
class Place:
    """What a back end needs to open itself."""

    folder: Path
    request: pytest.FixtureRequest
    stack: AsyncExitStack


async def open_memory(place: Place) -> DurableStore:
    return MemoryObjects()


async def open_directory(place: Place) -> DurableStore:
    return DirectoryStore(place.folder / "objects")


async def open_directory_elsewhere(place: Place) -> DurableStore:
    """As if what is stored came from another file system."""
    link = os.link

    def link_within_a_directory(source: Path, target: Path, **options: bool) -> None:
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(source))
        link(source, target, **options)

    place.request.getfixturevalue("monkeypatch").setattr(os, "link", link_within_a_directory)
    return DirectoryStore(place.folder / "objects")


async def open_s3(place: Place) -> DurableStore:
    server: peers.PeerServer = place.request.getfixturevalue("seaweedfs")
    return opened(s3_settings(server.endpoint))


async def open_gcs(place: Place) -> DurableStore:
    server: peers.PeerServer = place.request.getfixturevalue("seaweedfs")
    proxy = await place.stack.enter_async_context(FaultProxy(server.port, as_google_would))
    return opened(
        DurableSettings(
            backend=Backend.GCS,
            root=f"gs://{peers.OPEN_BUCKET}/{uuid4().hex}",
            endpoint=proxy.endpoint,
            credentials_json=SERVICE_ACCOUNT,
            max_retries=1,
        )
    )


async def open_azure(place: Place) -> DurableStore:
    server: peers.PeerServer = place.request.getfixturevalue("azurite")
    root = f"az://history-{uuid4().hex}/below"
    settings = DurableSettings(
        backend=Backend.AZBLOB,
        root=root,
        endpoint=f"{server.endpoint}/{peers.AZURITE_ACCOUNT}",
        account_name=peers.AZURITE_ACCOUNT,
        account_key=peers.AZURITE_KEY,
        max_retries=1,
    )
    await asyncio.to_thread(peers.make_azure_container, server, root.split("/")[2])
    return opened(settings)


def opened(settings: DurableSettings) -> DurableStore:
    assert problems(settings, "object_store") == []
    return open_store(settings)


BACKENDS: dict[str, Callable[[Place], Awaitable[DurableStore]]] = {
    "memory": open_memory,
    "directory": open_directory,
    "directory-elsewhere": open_directory_elsewhere,
    "s3": open_s3,
    "gcs": open_gcs,
}
# What pip alone cannot install next to everything else joins where it is asked for.
PEERS = os.environ.get("DANUBE_STORE_PEERS", "").split(",")
if "azurite" in PEERS:
    BACKENDS["azure"] = open_azure
collect_ignore = [] if "aws" in PEERS else ["test_aws_credentials.py"]


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DurableStore]:
    async with AsyncExitStack() as stack:
        opened_store = await BACKENDS[request.param](Place(tmp_path, request, stack))
        yield opened_store
        await opened_store.close()


@pytest.fixture
async def proxy(seaweedfs: peers.PeerServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(seaweedfs.port) as between:
        yield between
