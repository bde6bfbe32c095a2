"""A broker process whose admin port is known, for the commands and calls that go there."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS_MAX = 30
_DANUBE = [sys.executable, "-c", "from pydanube.cli.main import main; main()"]


@dataclass(frozen=True)
class AdminProcess:
    address: str
    admin_addr: str


@contextmanager
def admin_process(folder: Path) -> Iterator[AdminProcess]:
    """A broker that keeps its data in the folder, until the block ends."""
    ports = _free_ports()
    addresses = AdminProcess(*(f"127.0.0.1:{port}" for port in ports))
    file = folder / "danube.yml"
    # Journal files are written in full when they are made: small ones make a broker start at once.
    file.write_text("storage: {wal: {rotation: {max_bytes: 1048576}}}")
    process = subprocess.Popen(
        [
            *(*_DANUBE, "broker", "--config-file", str(file), "--data-dir", str(folder / "data")),
            *("--broker-addr", addresses.address, "--admin-addr", addresses.admin_addr),
            *("--prom-exporter", "off"),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    log: list[str] = []
    for line in process.stderr:
        log.append(line)
        if "broker ready" in line:
            break
    else:
        process.wait(SECONDS_MAX)
        process.stderr.close()
        raise AssertionError("the broker did not start:\n" + "".join(log))
    reader = threading.Thread(target=log.extend, args=(process.stderr,))
    reader.start()
    try:
        yield addresses
    finally:
        process.terminate()
        try:
            process.wait(SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
            reader.join()
            process.stderr.close()


def _free_ports() -> tuple[int, int]:
    """Two ports nobody listens on; held together, so that they differ."""
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
