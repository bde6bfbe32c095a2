"""A broker in a process of its own, on the same ports in all its lives."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml

from pydanube.client import blocking
from pydanube.client.retries import Retries
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.spark.connection import Connection

SECONDS_MAX = 60


class BrokerProcess:
    program: Sequence[str] = (str(Path(sys.executable).with_name("danube")),)

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder / "data"
        self.address, self.admin_address = (f"127.0.0.1:{port}" for port in _free_ports())
        self.url = f"danube://{self.address}"
        self.connection = Connection(self.url)
        self._log = folder / "broker.log"
        self._config = folder / "danube.yml"
        self._config.write_text(yaml.safe_dump(settings))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self.program, "broker", "--config-file", str(self._config),
                    "--data-dir", str(self.data_dir), "--broker-addr", self.address,
                    "--admin-addr", self.admin_address, "--prom-exporter", "off",
                ],
                stdout=log,
                stderr=log,
            )  # fmt: skip
        patient = Retries(attempts_max=1_000, backoff_max=0.2, seconds_max=SECONDS_MAX)
        try:
            with blocking.connect(self.url, retries=patient):
                pass
        except Exception:
            raise AssertionError(f"the broker did not start:\n{self.log_tail()}") from None

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def client(self) -> blocking.Client:
        """To be used with `with`."""
        return blocking.connect(self.url)

    def publish(self, topic: str, payloads: Iterable[bytes], **fields: Any) -> None:
        """Messages with the same fields, all stored on return; `partitions=` makes the topic have some."""
        partitions = fields.pop("partitions", None)
        with self.client() as client, client.producer(topic, partitions=partitions) as producer:
            producer.send_many(list(payloads), **fields)

    def seal(self, topic: str) -> None:
        """Everything published so far is in segments on return; of a partitioned topic, name a partition."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        with grpc.insecure_channel(self.admin_address, options) as channel:
            seal = channel.unary_unary("/pydanube.storage.v1.StorageAdmin/Seal")
            seal(pb.SealRequest(topic=topic).SerializeToString(), timeout=SECONDS_MAX)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(SECONDS_MAX)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


StartBroker = Callable[..., BrokerProcess]
"""The fixture of that name: settings as in the broker's file."""
