"""Redis Streams: the Debian package, driven by redis-benchmark, and by its Go client where readers follow."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare import outputs, tools
from bench.compare.contestants.contestant import Contestant, Durability, Load, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving

READ_COUNT = 1000
GROUP = "readers"


class RedisService(Service):
    def __init__(self, server: ServerProcess, driver: Path, port: int) -> None:
        super().__init__(server)
        self._driver = driver
        self._port = port

    def publish(self, load: Load) -> Outcome:
        """XADD, pipelined; several topics are picked at random, which is what redis-benchmark can do."""
        key = f"{load.topic}:0" if load.topics == 1 else f"{load.topic}:__rand_int__"
        spread = ["-r", str(load.topics)] if load.topics > 1 else []
        options = ["-c", str(load.producers), "-P", str(load.in_flight), "-n", str(load.count), *spread]
        text = self._benchmark(*options, "XADD", key, "*", "d", "x" * load.size)
        return outputs.redis_benchmark(text, requests=load.count)

    def consume(self, load: Load) -> Outcome:
        """XREADGROUP without acks, a thousand messages a call, as the other readers do not ack either."""
        group = f"{GROUP}-{load.count}"
        self.run([*self._client("redis-cli"), "XGROUP", "CREATE", f"{load.topic}:0", group, "0"])
        calls = load.count // READ_COUNT
        read = ["XREADGROUP", "GROUP", group, "reader", "COUNT", str(READ_COUNT), "NOACK"]
        text = self._benchmark("-c", "1", "-n", str(calls), *read, "STREAMS", f"{load.topic}:0", ">")
        return outputs.redis_benchmark(text, requests=calls, messages_per_request=READ_COUNT)

    def fan_out(self, load: Load) -> Outcome:
        return self._drive("fanout", load)

    def latency(self, load: Load) -> Outcome:
        return self._drive("latency", load)

    def _client(self, program: str) -> list[str]:
        return [program, "-h", "127.0.0.1", "-p", str(self._port)]

    def _benchmark(self, *arguments: str) -> str:
        return self.run([*self._client("redis-benchmark"), "--csv", *arguments])

    def _drive(self, work: str, load: Load) -> Outcome:
        return outputs.driver_line(self.run([str(self._driver), work, *load.as_flags(self._port)]))


class Redis(Contestant):
    peer = "redis"

    def __init__(self, durability: Durability) -> None:
        synced = durability is Durability.SYNCED
        self.durability = durability
        self.name = f"Redis Streams, {durability}"
        self._sync = "always" if synced else "everysec"
        self.settings = f"appendonly yes, appendfsync {self._sync}"
        self.reads = not synced
        self._server = ""
        self._driver = Path()

    def install(self) -> str:
        self._server = tools.debian_package("redis-server", "redis-server")
        tools.debian_package("redis-tools", "redis-benchmark")
        self._driver = tools.go_driver("redis")
        answer = subprocess.run(
            [self._server, "--version"], capture_output=True, text=True, check=True
        ).stdout
        return " ".join(answer.split()[:3])

    @contextmanager
    def serve(self, folder: Path) -> Iterator[RedisService]:
        port = free_port()
        # Snapshots off: the append-only file is what makes a stream durable, a second copy would only slow it.
        command = [
            self._server,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
        ]
        command += ["--appendonly", "yes", "--appendfsync", self._sync]
        with serving(command, folder=folder, greetings=[Greeting(port, b"PING\r\n", b"+PONG")]) as server:
            yield RedisService(server, self._driver, port)
