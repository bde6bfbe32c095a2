"""NATS JetStream: the server from its Go module, driven by a small program on its Go client."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare import outputs, tools
from bench.compare.contestants.contestant import Contestant, Durability, Load, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving

SERVER_MODULE = "github.com/nats-io/nats-server/v2"


class NatsService(Service):
    def __init__(self, server: ServerProcess, driver: Path, port: int) -> None:
        super().__init__(server)
        self._driver = driver
        self._port = port

    def publish(self, load: Load) -> Outcome:
        return self._drive("publish", load)

    def consume(self, load: Load) -> Outcome:
        return self._drive("consume", load)

    def fan_out(self, load: Load) -> Outcome:
        return self._drive("fanout", load)

    def latency(self, load: Load) -> Outcome:
        return self._drive("latency", load)

    def _drive(self, work: str, load: Load) -> Outcome:
        return outputs.driver_line(self.run([str(self._driver), work, *load.as_flags(self._port)]))


class Nats(Contestant):
    peer = "nats"

    def __init__(self, durability: Durability) -> None:
        synced = durability is Durability.SYNCED
        self.durability = durability
        self.name = f"NATS JetStream, {durability}"
        self.settings = "file store, sync_interval: always" if synced else "file store, sync_interval: 2m"
        self.reads = not synced
        self._server = self._driver = Path()

    def install(self) -> str:
        self._server = tools.go_program(SERVER_MODULE, "nats-server")
        self._driver = tools.go_driver("nats")
        return subprocess.run(
            [self._server, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()

    @contextmanager
    def serve(self, folder: Path) -> Iterator[NatsService]:
        port = free_port()
        sync = "always" if self.durability is Durability.SYNCED else "2m"
        config = folder / "nats.conf"
        config.write_text(
            f'listen: "127.0.0.1:{port}"\n'
            f'jetstream {{ store_dir: "{folder / "data"}", sync_interval: {sync}, max_file: 64G }}\n'
        )
        command = [str(self._server), "--config", str(config)]
        with serving(command, folder=folder, greetings=[Greeting(port, b"", b"INFO")]) as server:
            yield NatsService(server, self._driver, port)
