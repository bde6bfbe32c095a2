"""Our broker, driven by `danube bench` with our Python client."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from bench.compare import outputs
from bench.compare.contestants.contestant import Contestant, Durability, Load, NotApplicableError, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving
from bench.danube_api import connected
from bench.servers import compiled_modules

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes.fromhex("000000 04 00 00000000")
OURS = "pydanube, native"
DANUBE = str(Path(sys.executable).parent / "danube")


class DanubeService(Service):
    def __init__(self, server: ServerProcess, port: int, *, protocol: str, send: str) -> None:
        super().__init__(server)
        self._address = f"127.0.0.1:{port}"
        self._port = port
        self._protocol = protocol
        self._send = send
        self._fan_outs = 0

    def publish(self, load: Load) -> Outcome:
        return self._bench("publish", load, *self._publishing(load, load.topic))

    def consume(self, load: Load) -> Outcome:
        self._needs_native()
        return self._bench("consume", load, "--topic", f"/default/{load.topic}")

    def fan_out(self, load: Load) -> Outcome:
        """One process publishes, one reads what it publishes.

        Each knows its own time only. Both end the same way, so the time between their ends and the time of
        publishing add up to the time from the first message sent to the last one received.
        """
        self._needs_native()
        self._fan_outs += 1
        # A new topic each time, since readers begin at its beginning; made here, or they would find none.
        topic = f"{load.topic}-{self._fan_outs}"
        with connected(self._address) as api:
            api.create_producer(f"/default/{topic}", "maker", reliable=True)
        reading = ["--topic", f"/default/{topic}", "--subscriptions", str(load.consumers)]
        with ThreadPoolExecutor(1) as publisher:
            publishing = publisher.submit(self._ended, "publish", load, *self._publishing(load, topic))
            read, read_end = self._ended("consume", load, *reading)
            published, publish_end = publishing.result()
        return Outcome(read.messages, published.seconds + read_end - publish_end)

    def latency(self, load: Load) -> Outcome:
        return self._bench("latency", load, "--rate", str(load.rate))

    def _publishing(self, load: Load, topic: str) -> list[str]:
        options = [
            "--topic",
            f"/default/{topic}",
            "--producers",
            str(load.producers),
            "--topics",
            str(load.topics),
        ]
        return [*options, "--warmup", "0", "--send", self._send]

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
        return outputs.danube_bench(self.run(command))

    def _ended(self, work: str, load: Load, *more: str) -> tuple[Outcome, float]:
        return self._bench(work, load, *more), time.monotonic()

    def _needs_native(self) -> None:
        if self._protocol != "native":
            raise NotApplicableError(
                "a gRPC subscription begins with the next message: nothing to catch up with"
            )

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

    def __init__(
        self, name: str, settings: str, *, protocol: str, send: str, publishes_only: bool = False
    ) -> None:
        self.name = name
        self.publishes_only = publishes_only
        # A hundred batches, or messages enough to fill the calls under way some hundred times.
        self.pilot_messages = 100_000 if protocol == "native" else 4_000
        self.settings = f"{settings}; fdatasync before every ack, as by default"
        self.reads = name == OURS
        self._protocol = protocol
        self._send = send

    def install(self) -> str:
        pure = os.environ.get("PYDANUBE_PURE") == "1"
        return f"pydanube {version('pydanube')}, {0 if pure else compiled_modules()} compiled modules"

    @contextmanager
    def serve(self, folder: Path) -> Iterator[DanubeService]:
        port = free_port()
        command = [DANUBE, "broker", "--mode", "standalone", "--data-dir", str(folder / "data")]
        command += ["--broker-addr", f"127.0.0.1:{port}", "--admin-addr", f"127.0.0.1:{free_port()}"]
        command += ["--prom-exporter", f"127.0.0.1:{free_port()}"]
        greeting = Greeting(port, PREFACE + EMPTY_SETTINGS)
        with serving(command, folder=folder, greetings=[greeting]) as server:
            yield DanubeService(server, port, protocol=self._protocol, send=self._send)


def ours() -> list[Danube]:
    return [
        Danube(OURS, "native protocol, lists of 1,000 given to the client", protocol="native", send="many"),
        Danube(
            f"{OURS}, one by one",
            "native protocol, one call of the client a message",
            protocol="native",
            send="nowait",
            publishes_only=True,
        ),
        Danube(
            "pydanube, gRPC", "Danube's gRPC protocol, one call a message", protocol="grpc", send="nowait"
        ),
    ]
