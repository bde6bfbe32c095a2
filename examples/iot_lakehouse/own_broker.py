"""A broker for the time of a run, on free ports, with its data in a temporary folder."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydanube.client import blocking
from pydanube.client.retries import Retries

PATIENT = Retries(attempts_max=1_000, backoff_max=0.2, seconds_max=60)
STOP_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Broker:
    url: str
    admin_address: str


@contextmanager
def own_broker() -> Iterator[Broker]:
    address, admin_address = _free_addresses()
    with tempfile.TemporaryDirectory(prefix="danube-broker-") as folder:
        program = str(Path(sys.executable).with_name("danube"))
        command = [program, "broker", "--data-dir", folder, "--broker-addr", address]
        command += ["--admin-addr", admin_address, "--prom-exporter", "off"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"danube://{address}"
            with blocking.connect(url, retries=PATIENT):
                pass
            yield Broker(url, admin_address)
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_addresses() -> tuple[str, str]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{other.getsockname()[1]}"
