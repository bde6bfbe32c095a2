"""The contestants: how each server is started, told apart and stopped."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.processes import Usage

OURS = "pydanube"
OURS_INTERPRETED = "pydanube, interpreted"
GRPC_GO = "grpc-go"
GRPCIO = "grpcio.aio"

START_SECONDS_MAX = 30
ROOT = Path(__file__).resolve().parent.parent


class ServerError(Exception):
    """A contestant did not come up; the message ends with the last line it printed."""


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    address: str
    pid: int
    metrics_address: str = ""

    @property
    def is_broker(self) -> bool:
        return self.name in (OURS, OURS_INTERPRETED)

    def usage(self) -> Usage:
        return Usage.of(self.pid)


def compiled_modules() -> int:
    """How many of the broker's modules are compiled; 0 means it runs interpreted anyway."""
    return len(list((ROOT / "src" / "pydanube").rglob("*.so")))


@contextmanager
def running_broker(
    scratch: Path, *, name: str = OURS, max_unacked_messages: int | None = None
) -> Iterator[Server]:
    """A standalone broker with an empty data directory of its own."""
    folder = scratch / f"broker-{free_address().rpartition(':')[2]}"
    folder.mkdir(parents=True)
    address, metrics = free_address(), free_address()
    command = [str(Path(sys.executable).parent / "danube"), "broker", "--mode", "standalone"]
    command += ["--data-dir", str(folder / "data"), "--broker-addr", address]
    command += ["--admin-addr", free_address(), "--prom-exporter", metrics]
    if max_unacked_messages is not None:
        config = folder / "broker.yml"
        config.write_text(yaml.safe_dump({"dispatch": {"max_unacked_messages": max_unacked_messages}}))
        command += ["--config-file", str(config)]
    environment = {"PYDANUBE_PURE": "1"} if name == OURS_INTERPRETED else {}
    with running(command, folder / "broker.log", environment) as pid:
        yield Server(name, address, pid, metrics)


@contextmanager
def running_grpcio(scratch: Path) -> Iterator[Server]:
    address = free_address()
    command = [sys.executable, "-m", "bench.grpcio_server"]
    with running([*command, "--address", address], scratch / "grpcio.log") as pid:
        yield Server(GRPCIO, address, pid)


@contextmanager
def running_grpc_go(scratch: Path, server: Path) -> Iterator[Server]:
    address = free_address()
    with running([str(server), "-address", address], scratch / "grpc-go.log") as pid:
        yield Server(GRPC_GO, address, pid)


@contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    try:
        _await_ready(process, log)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while b"ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            last_words = log.read_text().strip().rpartition("\n")[2]
            raise ServerError(f"{log.stem}: {last_words or 'it printed nothing'}")
        time.sleep(0.05)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
