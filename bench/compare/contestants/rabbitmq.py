"""RabbitMQ from Debian: quorum and classic queues driven by PerfTest, streams by a program on the stream client.

Publishers wait for confirms throughout. A quorum queue confirms after its log is synced; a classic queue is what
a client gets that asks for nothing special; a stream confirms before the sync. (The streams' own performance
tool is not published as an artifact.)
"""

import subprocess
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare import outputs, tools
from bench.compare.contestants.contestant import Contestant, Durability, Load, NotApplicableError, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving
from bench.load import LoadError

ARTIFACTS = (("com.rabbitmq", "perf-test", "[2.20,)"), ("com.rabbitmq", "stream-client", "[1.0,)"))
# Not the one in sbin: that changes to another user, who may not write to our folder.
SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"
STREAM_PEER_PROPERTIES = bytes.fromhex("0000000c 0011 0001 00000001 00000000")
PREFETCH = "1000"
ACK_EVERY = "100"


class QueueService(Service):
    """Queues of one kind over AMQP, by PerfTest."""

    def __init__(self, server: ServerProcess, libraries: Path, port: int, kind: list[str]) -> None:
        super().__init__(server)
        self._tool = ["java", "-cp", f"{libraries}/*", "com.rabbitmq.perf.PerfTest"]
        self._tool += ["--uri", f"amqp://guest:guest@127.0.0.1:{port}", "--auto-delete", "false", *kind]
        self._consuming = ["--qos", PREFETCH, "--multi-ack-every", ACK_EVERY]

    def publish(self, load: Load) -> Outcome:
        if load.topics > 1:
            raise NotApplicableError("PerfTest opens a channel and a thread for every queue it publishes to")
        each = load.count // load.producers
        command = [*self._tool, *self._publishing(load), "--queue", load.topic, "--consumers", "0"]
        command += ["--producers", str(load.producers), "--pmessages", str(each)]
        return self._outcome(command, each * load.producers, received=False)

    def consume(self, load: Load) -> Outcome:
        command = [*self._tool, *self._consuming, "--queue", load.topic, "--predeclared", "--producers", "0"]
        command += ["--consumers", "1", "--cmessages", str(load.count)]
        return self._outcome(command, load.count, received=True)

    def fan_out(self, load: Load) -> Outcome:
        command = [*self._tool, *self._publishing(load), *self._consuming, "--producers", "1"]
        command += ["--type", "fanout", "--exchange", load.topic, "--queue-pattern", f"{load.topic}-%d"]
        command += ["--queue-pattern-from", "1", "--queue-pattern-to", str(load.consumers)]
        command += ["--consumers", str(load.consumers), "--pmessages", str(load.count)]
        command += ["--cmessages", str(load.count)]
        return self._outcome(command, load.count * load.consumers, received=True)

    def latency(self, load: Load) -> Outcome:
        command = [*self._tool, *self._publishing(load), *self._consuming, "--queue", f"{load.topic}-latency"]
        command += ["--producers", "1", "--consumers", "1", "--rate", str(load.rate)]
        outcome = self._outcome(
            [*command, "--time", str(max(1, load.count // load.rate))], load.count, received=True
        )
        if outcome.p99_us == 0:
            raise LoadError("PerfTest measured no latency")
        return outcome

    def _publishing(self, load: Load) -> list[str]:
        return ["--flag", "persistent", "--confirm", str(load.in_flight), "--size", str(load.size)]

    def _outcome(self, command: list[str], messages: int, *, received: bool) -> Outcome:
        return outputs.perf_test(self.run(command), messages=messages, received=received)


class StreamService(Service):
    """Streams over their own protocol."""

    def __init__(self, server: ServerProcess, libraries: Path, classes: Path, port: int) -> None:
        super().__init__(server)
        self._driver = ["java", "-cp", f"{classes}:{libraries}/*", "StreamDriver"]
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
        return outputs.driver_line(self.run([*self._driver, work, *load.as_flags(self._port)]))


class RabbitMq(Contestant):
    peer = "rabbitmq"
    pilot_messages = 10_000

    def __init__(self) -> None:
        self._server = ""
        self.libraries = Path()

    def install(self) -> str:
        self._server = tools.debian_package("rabbitmq-server", SERVER)
        self.libraries = tools.maven_libraries("rabbitmq", ARTIFACTS)
        query = ["dpkg-query", "--show", "--showformat", "${Version}", "rabbitmq-server"]
        return f"RabbitMQ {subprocess.run(query, capture_output=True, text=True, check=False).stdout}"

    @abstractmethod
    def service(self, server: ServerProcess, amqp_port: int, stream_port: int) -> Service: ...

    @contextmanager
    def serve(self, folder: Path) -> Iterator[Service]:
        amqp, stream, mapper, distribution = (free_port() for _ in range(4))
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{amqp}\nstream.listeners.tcp.1 = 127.0.0.1:{stream}\n"
        )
        (folder / "plugins").write_text("[rabbitmq_stream].\n")
        environment = {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"compare{amqp}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        # The port mapper would otherwise be started as a daemon that outlives the server.
        port_mapper = subprocess.Popen(["epmd", "-address", "127.0.0.1", "-port", str(mapper)])
        greetings = [Greeting(amqp, AMQP_HEADER, METHOD_FRAME), Greeting(stream, STREAM_PEER_PROPERTIES)]
        try:
            with serving(
                [self._server], folder=folder, greetings=greetings, environment=environment
            ) as server:
                yield self.service(server, amqp, stream)
        finally:
            port_mapper.terminate()
            port_mapper.wait()


class RabbitMqQuorum(RabbitMq):
    name = "RabbitMQ quorum queue, synced"
    durability = Durability.SYNCED
    settings = "quorum queue, persistent, confirms"
    reads = True

    def service(self, server: ServerProcess, amqp_port: int, stream_port: int) -> Service:
        return QueueService(server, self.libraries, amqp_port, ["--quorum-queue"])


class RabbitMqClassic(RabbitMq):
    name = "RabbitMQ classic queue, default"
    durability = Durability.DEFAULT
    settings = "durable classic queue, persistent, confirms"
    reads = True

    def service(self, server: ServerProcess, amqp_port: int, stream_port: int) -> Service:
        return QueueService(server, self.libraries, amqp_port, [])


class RabbitMqStream(RabbitMq):
    name = "RabbitMQ stream, default"
    durability = Durability.DEFAULT
    settings = "stream, confirms"
    reads = True
    pilot_messages = 50_000

    def __init__(self) -> None:
        super().__init__()
        self._classes = Path()

    def install(self) -> str:
        version = super().install()
        self._classes = tools.java_driver("StreamDriver", self.libraries)
        return version

    def service(self, server: ServerProcess, amqp_port: int, stream_port: int) -> Service:
        return StreamService(server, self.libraries, self._classes, stream_port)
