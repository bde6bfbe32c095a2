"""A standalone broker inside the test's event loop: real sockets, real disk, a clock that can be moved forward."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import yaml

from broker_harness.native_wire import NativeClient
from broker_harness.wire_client import WireClient
from pydanube.broker import facts
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FailurePolicy, Policies
from pydanube.metadata import SqliteStore
from pydanube.server.config_file import load_config
from pydanube.server.listeners import AddressFlags
from pydanube.server.process import SystemClock
from pydanube.server.standalone import Standalone


class MovableClock(SystemClock):
    """The real clock, plus what the test has skipped."""

    def __init__(self) -> None:
        self._skipped_ms = 0

    def advance(self, ms: int) -> None:
        self._skipped_ms += ms

    def now_ms(self) -> int:
        return super().now_ms() + self._skipped_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._skipped_ms


class RunningBroker:
    """A broker that can be stopped, given other facts while it is down, and started again on the same port."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.clock = MovableClock()
        self.port = 0
        self.metrics_port = _free_port() if settings.pop("metrics", False) else None
        self._folder = folder
        self._settings = settings
        self._server: Standalone | None = None
        self._clients: list[WireClient | NativeClient] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        file = self._folder / "danube.yml"
        file.write_text(yaml.safe_dump(self._settings))
        config = load_config(
            file,
            environment={},
            data_dir=str(self._folder / "data"),
            addresses=AddressFlags(
                broker_addr=self.address,
                admin_addr="127.0.0.1:0",
                prom_exporter="off" if self.metrics_port is None else f"127.0.0.1:{self.metrics_port}",
            ),
        )
        self._server = Standalone(config, clock=self.clock)
        await self._server.start()
        self.port = self._server.client_port
        self.admin_address = f"127.0.0.1:{self._server.admin_port}"

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.stop()

    def client(self, credentials: grpc.ChannelCredentials | None = None) -> WireClient:
        """A client with a connection of its own."""
        client = WireClient(self.address, credentials)
        self._clients.append(client)
        return client

    async def native(self, tls: ssl.SSLContext | None = None, token: str | None = None) -> NativeClient:
        """A native connection that has been welcomed."""
        client = await NativeClient.connect(self.address, tls, token)
        self._clients.append(client)
        return client

    async def dial(self, tls: ssl.SSLContext | None = None) -> NativeClient:
        """A connection on which nothing was said yet, to speak the native protocol on."""
        client = await NativeClient.dial(self.address, tls)
        self._clients.append(client)
        return client

    async def metric(self, name: str, tls: ssl.SSLContext | None = None, token: str | None = None) -> float:
        """The sum of all series of a metric; the broker must have been started with `metrics=True`."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.metrics_port, ssl=tls, server_hostname="localhost" if tls else None
        )
        writer.write(f"GET /metrics HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        assert text.startswith("HTTP/1.1 200 "), text
        lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def put_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy) -> None:
        """Store a subscription's failure policy, as an operator would; the broker must be down."""
        key = facts.failure_policy_key(TopicName.parse(topic), subscription)
        await self._put(key, facts.encode(policy))

    async def put_window(self, topic: str, subscription: str, messages_max: int) -> None:
        """Store a subscription's own window; the broker must be down."""
        record = facts.DispatchFacts(max_unacked_messages=messages_max)
        await self._put(facts.dispatch_key(TopicName.parse(topic), subscription), facts.encode(record))

    async def put_topic_policies(self, topic: str, policies: Policies) -> None:
        """Store a topic's own limits; the broker must be down."""
        await self._put(facts.topic_policy_key(TopicName.parse(topic)), facts.encode(policies))

    async def _put(self, key: str, value: bytes) -> None:
        assert self._server is None, "stop the broker first: it owns its metadata"
        (self._folder / "data").mkdir(exist_ok=True)
        store = await SqliteStore.open(self._folder / "data" / "metadata.sqlite3", clock=self.clock)
        try:
            await store.put(key, value)
        finally:
            await store.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


StartBroker = Callable[..., Awaitable[RunningBroker]]
"""The fixture of that name: settings as in the broker's file, and failure policies by topic and subscription."""
