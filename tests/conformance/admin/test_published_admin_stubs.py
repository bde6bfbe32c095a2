"""Administration by the stubs the published tools are built on: the crate danube-core, over tonic.

The binary `danube-admin` itself is on no registry; what it sends and reads is these messages.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from client_harness.broker_process import BrokerProcess
from client_harness.programs import BUILDS, protoc_command, run, unless_built

SOURCE = Path(__file__).parent / "rust"
CALL_SECONDS_MAX = 30
BUILD_SECONDS_MAX = 3_600


@pytest.fixture(scope="module")
def program() -> Path:
    """Built once, and again when its source has changed."""
    target = BUILDS / "rust-admin-target"
    product = target / "debug" / "conformance-admin"
    with unless_built(
        "rust-admin", [SOURCE / "Cargo.toml", SOURCE / "src" / "main.rs"], product
    ) as must_build:
        if must_build:
            environment = {"CARGO_TARGET_DIR": str(target), "PROTOC": str(protoc_command())}
            run(["cargo", "build", "--quiet"], cwd=SOURCE, environment=environment)
    return product


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("administered"))
    broker.start()
    yield broker
    broker.close()


class Tool:
    def __init__(self, program: Path, broker: BrokerProcess) -> None:
        self._command = [str(program), f"http://127.0.0.1:{broker.admin_port}"]

    def says(self, *words: str) -> Any:
        """The answer to a call that must succeed."""
        done = self._run(words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def is_refused(self, *words: str) -> str:
        """Status and text of a call that must not."""
        done = self._run(words)
        assert (done.returncode, done.stdout) == (1, ""), done.stdout
        return done.stderr

    def _run(self, words: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._command, *words], capture_output=True, text=True, timeout=CALL_SECONDS_MAX, check=False
        )


@pytest.fixture(scope="module")
def tool(program: Path, alone: BrokerProcess) -> Tool:
    return Tool(program, alone)


pytestmark = pytest.mark.timeout(BUILD_SECONDS_MAX)
"""The first test waits for the compiler."""


def test_brokers_and_cluster(tool: Tool, alone: BrokerProcess) -> None:
    [broker] = tool.says("brokers", "list")
    assert (broker["role"], broker["status"]) == ("None", "active")
    assert broker["addr"] == alone.url
    assert broker["admin"] == f"http://127.0.0.1:{alone.admin_port}"
    assert broker["metrics"] == f"127.0.0.1:{alone.metrics_port}"
    assert tool.says("brokers", "leader") == "not_found"
    assert tool.says("brokers", "namespaces") == ["default", "system"]
    assert tool.says("brokers", "activate", broker["id"]) is True
    status = tool.says("cluster", "status")
    assert status == {
        "leader": int(broker["id"]),
        "self": int(broker["id"]),
        "voters": [int(broker["id"])],
        "learners": [],
    }
    assert tool.is_refused("brokers", "unload", broker["id"]).startswith("FailedPrecondition: ")
    for words in (("brokers", "balance"), ("brokers", "rebalance")):
        assert tool.is_refused(*words).startswith("Unimplemented: ")


def test_namespaces(tool: Tool) -> None:
    assert tool.says("namespaces", "create", "shop") is True
    assert "exists already" in tool.is_refused("namespaces", "create", "shop")
    assert tool.says("namespaces", "topics", "shop") == []
    assert "max_message_size" in json.loads(tool.says("namespaces", "policies", "shop"))
    assert tool.says("namespaces", "delete", "shop") is True
    assert "shop" not in tool.says("brokers", "namespaces")


def test_topics(tool: Tool) -> None:
    assert tool.says("topics", "create", "/default/plain", "0") is True
    assert tool.says("topics", "create", "/default/kept", "1") is True
    assert tool.says("topics", "create-partitions", "/default/wide", "2") is True
    deliveries = {each["name"]: each["delivery"] for each in tool.says("topics", "list", "default")}
    assert deliveries == {
        "/default/plain": "NonReliable",
        "/default/kept": "Reliable",
        "/default/wide-part-0": "Reliable",
        "/default/wide-part-1": "Reliable",
    }
    described = tool.says("topics", "describe", "/default/kept")
    assert described == {"name": "/default/kept", "delivery": "Reliable", "subscriptions": []}
    assert tool.says("topics", "subscriptions", "/default/kept") == []
    assert tool.says("topics", "delete", "/default/kept") is True
    assert "/default/kept" not in [each["name"] for each in tool.says("topics", "list", "default")]


def test_schemas(tool: Tool) -> None:
    first, second = '{"type": "object"}', '{"type": "object", "properties": {"a": {"type": "string"}}}'
    assert tool.says("schemas", "register", "orders", "json_schema", first) == {"version": 1, "new": True}
    assert tool.says("schemas", "register", "orders", "json_schema", first) == {"version": 1, "new": False}
    assert tool.says("schemas", "register", "orders", "json_schema", second)["version"] == 2
    assert tool.says("schemas", "latest", "orders") == {
        "subject": "orders",
        "version": 2,
        "type": "json_schema",
    }
    assert tool.says("schemas", "versions", "orders") == [1, 2]
    assert tool.is_refused("schemas", "latest", "none").startswith("NotFound: ")


def test_roles_and_bindings(tool: Tool) -> None:
    assert tool.says("roles", "create", "writer", "Lookup", "Produce") is True
    assert tool.says("roles", "get", "writer") == {"name": "writer", "permissions": ["Lookup", "Produce"]}
    assert tool.says("roles", "list") == ["writer"]
    where = ("topic", "/default/orders")
    assert tool.says("bindings", "create", "b1", "ada", "writer", *where) is True
    assert tool.says("bindings", "list", *where) == [{"id": "b1", "name": "ada", "roles": ["writer"]}]
    assert tool.says("bindings", "delete", "b1", *where) is True
    assert tool.says("roles", "delete", "writer") is True
    assert tool.is_refused("roles", "get", "writer").startswith("NotFound: ")
    assert tool.is_refused("roles", "create", "flyer", "Fly").startswith("InvalidArgument: ")
