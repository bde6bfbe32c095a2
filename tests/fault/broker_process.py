"""A real broker process of our own: started, killed, stopped, paused; its data and its log stay."""

import asyncio
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

READY = b"broker ready"
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 10.0

CONFIG = """\
# Small journal files and hardly any cache: rotation, staging and reads from segments happen all the time.
dispatch: {max_unacked_messages: 10000}
storage:
  wal: {rotation: {max_bytes: 1048576}, cache_bytes_max: 1048576}
  local_retention: {time_minutes: null, size_mb: null}
"""


class BrokerFailedError(AssertionError):
    """The process did not do what a broker does: start, or stop when asked."""


class BrokerProcess:
    """One life after the other on the same data directory and port.

    `prefix` is a command that runs the broker in its own place, as `nsenter` does.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data_dir: Path | None = None,
        prefix: Sequence[str] = (),
        config: str = CONFIG,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or directory / "data"
        self.address = f"127.0.0.1:{_free_port()}"
        self._metrics_address = f"127.0.0.1:{_free_port()}"
        self.log_path = directory / "broker.log"
        self._config_path = directory / "broker.yml"
        self._config_path.write_text(config)
        self._prefix = tuple(prefix)
        self._process: asyncio.subprocess.Process | None = None
        self._log_task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the broker is not running"
        return self._process

    async def spawn(self) -> None:
        """Start the process; it recovers meanwhile."""
        assert self._process is None, "the broker is running already"
        self._ready = asyncio.Event()
        self._process = await asyncio.create_subprocess_exec(
            *self._prefix, str(Path(sys.executable).with_name("danube")), "broker", "--mode", "standalone",
            "--data-dir", str(self.data_dir), "--broker-addr", self.address, "--admin-addr", "127.0.0.1:0", "--prom-exporter", self._metrics_address,
            "--config-file", str(self._config_path),
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self._log_task = asyncio.create_task(self._keep_log(self._process, self._ready))

    async def wait_ready(self) -> None:
        """Return once it serves; raise if it ends before, or takes too long."""
        try:
            await asyncio.wait_for(self._ready.wait(), READY_SECONDS_MAX)
        except TimeoutError:
            raise BrokerFailedError(f"the broker did not serve within {READY_SECONDS_MAX} s") from None
        if self._running.returncode is not None:
            code = await self._reap()
            raise BrokerFailedError(f"the broker ended with exit code {code} instead of serving")

    async def start(self) -> None:
        await self.spawn()
        await self.wait_ready()

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Also ends one that is paused."""
        self._signal(signal.SIGKILL)
        await self._reap()

    def ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    async def stopped(self) -> None:
        """Wait for the end that was asked for: exit code 0, in time."""
        try:
            await asyncio.wait_for(self._running.wait(), STOP_SECONDS_MAX)
        except TimeoutError:
            await self.kill()
            raise BrokerFailedError(
                f"the broker did not stop within {STOP_SECONDS_MAX} s of SIGTERM"
            ) from None
        code = await self._reap()
        if code != 0:
            raise BrokerFailedError(f"the broker ended with exit code {code} after SIGTERM, expected 0")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def lags(self) -> dict[tuple[str, str], int]:
        """By topic and subscription, how many messages the broker counts as not acknowledged."""
        host, _, port = self._metrics_address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\nConnection: close\r\n\r\n")
            page = (await asyncio.wait_for(reader.read(), READY_SECONDS_MAX)).decode()
        finally:
            writer.close()
        found = {}
        for line in page.splitlines():
            if line.startswith("danube_subscription_lag_messages{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found[labels["topic"], labels["subscription"]] = int(float(line.rpartition(" ")[2]))
        assert found, f"the broker names no lag: {page[:300]}"
        return found

    def resident_bytes(self) -> int:
        """Memory the process has at the moment."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1]) * 1024

    def log_tail(self, lines: int = 30) -> str:
        """The last lines it wrote, in all its lives."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._running.returncode is None:
            self._running.send_signal(number)

    async def _reap(self) -> int:
        code = await self._running.wait()
        if self._log_task is not None:
            await self._log_task
        self._process = None
        return code

    async def _keep_log(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        with self.log_path.open("ab", buffering=0) as file:
            file.write(f"--- process {process.pid}\n".encode())
            async for line in process.stderr:
                file.write(line)
                if READY in line:
                    ready.set()
            code = await process.wait()
            file.write(f"--- process {process.pid} ended with {code}\n".encode())
        # An early end must not leave somebody waiting for the full time.
        ready.set()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
