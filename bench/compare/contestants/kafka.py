"""Kafka: one node in KRaft mode from its published artifacts, driven by its own performance tools.

ProducerPerformance is one producer on one topic, ConsumerPerformance one reader; for more of either, and for
latency at a rate, a small program on the same client with the same settings takes over.
"""

import base64
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.compare import outputs, tools
from bench.compare.contestants.contestant import Contestant, Durability, Load, Service
from bench.compare.outputs import Outcome
from bench.compare.serving import Greeting, ServerProcess, free_port, serving

ARTIFACTS = (("org.apache.kafka", "kafka_2.13", "[4.1,5)"), ("org.apache.kafka", "kafka-tools", "[4.1,5)"))
PRODUCER_SETTINGS = ("acks=all", "batch.size=65536", "linger.ms=5")
WARM_UP_SHARE = 5
# As the distribution's own start script sets them.
SERVER_JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
API_VERSIONS_REQUEST = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class KafkaService(Service):
    def __init__(self, server: ServerProcess, libraries: Path, classes: Path, port: int) -> None:
        super().__init__(server)
        self._tool = ["java", "-cp", f"{libraries}/*"]
        self._driver = ["java", "-cp", f"{classes}:{libraries}/*", "KafkaDriver"]
        self._port = port

    def publish(self, load: Load) -> Outcome:
        if load.producers > 1 or load.topics > 1:
            return self._drive("publish", load)
        warm_up = load.count // WARM_UP_SHARE
        command = [*self._tool, "org.apache.kafka.tools.ProducerPerformance", "--topic", f"{load.topic}-0"]
        command += ["--bootstrap-server", f"127.0.0.1:{self._port}", "--throughput", "-1"]
        command += ["--num-records", str(load.count), "--record-size", str(load.size)]
        command += ["--warmup-records", str(warm_up), "--command-property", *PRODUCER_SETTINGS]
        return outputs.kafka_producer(self.run(command))

    def consume(self, load: Load) -> Outcome:
        command = [*self._tool, "org.apache.kafka.tools.ConsumerPerformance", "--topic", f"{load.topic}-0"]
        command += ["--bootstrap-server", f"127.0.0.1:{self._port}", "--num-records", str(load.count)]
        return outputs.kafka_consumer(self.run([*command, "--timeout", "60000"]))

    def fan_out(self, load: Load) -> Outcome:
        return self._drive("fanout", load)

    def latency(self, load: Load) -> Outcome:
        return self._drive("latency", load)

    def _drive(self, work: str, load: Load) -> Outcome:
        return outputs.driver_line(self.run([*self._driver, work, *load.as_flags(self._port)]))


class Kafka(Contestant):
    peer = "kafka"
    pilot_messages = 50_000

    def __init__(self, durability: Durability) -> None:
        synced = durability is Durability.SYNCED
        self.durability = durability
        self.name = f"Kafka, {durability}"
        self.settings = "acks=all, flush.messages=1" if synced else "acks=all, flush left to the system"
        self.reads = not synced
        self._libraries = self._classes = Path()

    def install(self) -> str:
        self._libraries = tools.maven_libraries("kafka", ARTIFACTS)
        self._classes = tools.java_driver("KafkaDriver", self._libraries)
        jar = next(self._libraries.glob("kafka_2.13-*.jar"))
        return f"Kafka {jar.stem.rpartition('-')[2]}"

    @contextmanager
    def serve(self, folder: Path) -> Iterator[KafkaService]:
        port, controller_port = free_port(), free_port()
        config = folder / "server.properties"
        config.write_text(_server_properties(folder / "data", port, controller_port, self.durability))
        # In front of it something that no tool takes for an option.
        cluster_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        java = ["java", "-cp", f"{self._libraries}/*"]
        format_storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(config)]
        subprocess.run(format_storage, check=True, capture_output=True, cwd=folder)
        command = [java[0], *SERVER_JVM, *java[1:], "kafka.Kafka", str(config)]
        with serving(command, folder=folder, greetings=[Greeting(port, API_VERSIONS_REQUEST)]) as server:
            yield KafkaService(server, self._libraries, self._classes, port)


def _server_properties(data: Path, port: int, controller_port: int, durability: Durability) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if durability is Durability.SYNCED:
        settings["log.flush.interval.messages"] = "1"
    return "".join(f"{key}={value}\n" for key, value in settings.items())
