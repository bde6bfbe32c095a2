"""h2spec and a server for it to judge."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import trustme

HERE = Path(__file__).parent
TOOLS = HERE.parents[2] / ".tools" / "bin"
H2SPEC = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"

StartServer = Callable[..., AbstractContextManager[int]]


@pytest.fixture(scope="session")
def h2spec() -> Path:
    """The path of h2spec, built with Go on first use."""
    program = TOOLS / "h2spec"
    if not program.exists():
        subprocess.run(["go", "install", H2SPEC], env=os.environ | {"GOBIN": str(TOOLS)}, check=True)
    return program


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for the loopback address and its key."""
    folder = tmp_path_factory.mktemp("tls")
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return folder / "certificate.pem", folder / "key.pem"


@pytest.fixture
def start_server() -> StartServer:
    """Start the echo server with options; the context's value is its port."""

    @contextmanager
    def start(*options: str) -> Iterator[int]:
        with subprocess.Popen(
            [sys.executable, str(HERE / "echo_server.py"), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None
            yield int(server.stdout.readline())
            assert server.stdin is not None
            server.stdin.close()
            assert server.wait(20) == 0

    return start
