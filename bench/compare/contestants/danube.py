"""Our broker, driven by `danube bench` with our Python client."""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from bench.compare import outputs
from bench.compare.contestants.contestant import Contestant, Durability, Load, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving
from bench.danube_api import connected
from bench.servers import compiled_modules

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes.fromhex("000000 04 00 00000000")
DANUBE = str(Path(sys.executable).parent / "danube")


class DanubeService(Service):
    def __init__(self, server: ServerProcess, protocol: str, port: int) -> None:
        super().__init__(server)
        self._protocol = protocol
        self._address = f"127.0.0.1:{port}"
        self._port = port

    def publish(self, load: Load) -> Outcome:
        return self._bench("publish", load, "--producers", str(load.producers), "--topics", str(load.topics))

    def consume(self, load: Load) -> Outcome:
        return self._bench("consume", load)

    def fan_out(self, load: Load) -> Outcome:
        return self._bench("consume", load, "--consumers", str(load.consumers))

    def latency(self, load: Load) -> Outcome:
        return self._bench("latency", load, "--rate", str(load.rate))

    def _bench(self, work: str, load: Load, *more: str) -> Outcome:
        command = [
            DANUBE,
            "bench",
            work,
            "--broker",
            self._address,
            "--protocol",
            self._protocol,
            "--reliable",
        ]
        command += ["--size", str(load.size), "--count", str(load.count), *more, "--output", "json"]
        return outputs.danube_bench(self.run(command), messages=load.count * load.consumers)

    @contextmanager
    def crowd(self, *, topics: int, connections: int) -> Iterator[None]:
        """Give the broker topics nobody uses and connections that say nothing."""
        with connected(self._address) as api:
            for number in range(topics):
                api.create_producer(f"/default/idle-{number}", "idle", reliable=True)
        with ExitStack() as stack:
            for _ in range(connections):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", self._port)))
                connection.sendall(PREFACE + EMPTY_SETTINGS)
            yield


class Danube(Contestant):
    peer = "danube"
    durability = Durability.SYNCED

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self.name = f"pydanube, {protocol}"
        self.settings = f"reliable topic, {protocol} protocol, fdatasync before every ack (its default)"
        self.reads = protocol == "native"

    def install(self) -> str:
        return f"pydanube {version('pydanube')}, {compiled_modules()} compiled modules"

    @contextmanager
    def serve(self, folder: Path) -> Iterator[DanubeService]:
        port = free_port()
        command = [DANUBE, "broker", "--mode", "standalone", "--data-dir", str(folder / "data")]
        command += ["--broker-addr", f"127.0.0.1:{port}", "--admin-addr", f"127.0.0.1:{free_port()}"]
        command += ["--prom-exporter", f"127.0.0.1:{free_port()}"]
        greeting = Greeting(port, PREFACE + EMPTY_SETTINGS)
        with serving(command, folder=folder, greetings=[greeting]) as server:
            yield DanubeService(server, self._protocol, port)
