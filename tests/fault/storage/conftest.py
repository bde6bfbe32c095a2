"""A real S3 server for everything here that needs one."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

pytest.register_assert_rewrite("tests.fault.storage.tale", "tests.fault.storage.mortal_process")

from tests.contract.stores import peer_servers  # noqa: E402
from tests.fault.storage import modes  # noqa: E402


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[peer_servers.PeerServer]:
    server = peer_servers.start_seaweedfs(tmp_path_factory.mktemp("seaweedfs"))
    yield server
    server.stop()


@pytest.fixture
def make_mode(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], modes.Mode]:
    def make(name: str) -> modes.Mode:
        if name == "object_store":
            server: peer_servers.PeerServer = request.getfixturevalue("s3_server")
            return modes.object_store(server.endpoint)
        return {"local": modes.local, "shared_fs": modes.shared_fs}[name](tmp_path)

    return make
