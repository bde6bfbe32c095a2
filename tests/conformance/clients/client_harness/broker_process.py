"""A broker as users run it: a process of its own, stopped by SIGTERM or killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path

PROGRAM = "DANUBE_CONFORMANCE_BROKER"
"""Names another program to run in place of this project's own `danube`."""
READY = "broker ready"
READY_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20
LOG_LINES_MAX = 2_000


class BrokerProcess:
    """One standalone broker on loopback ports of its own; data and ports outlive a restart."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port, self.admin_port, self.metrics_port = free_ports(3)
        self._log: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """The last lines the broker wrote, across restarts."""
        return "".join(self._log)

    def start(self) -> None:
        """Start the broker and return once it says that it serves."""
        assert self._process is None, "the broker is running already"
        command = [
            os.environ.get(PROGRAM, str(Path(sys.executable).with_name("danube"))), "broker", "--mode", "standalone",
            "--data-dir", str(self.data_dir),
            "--broker-addr", f"127.0.0.1:{self.port}",
            "--admin-addr", f"127.0.0.1:{self.admin_port}",
            "--prom-exporter", f"127.0.0.1:{self.metrics_port}",
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        ready = threading.Event()
        threading.Thread(target=self._collect_log, args=(self._process, ready), daemon=True).start()
        if not ready.wait(READY_SECONDS_MAX) or self._process.poll() is not None:
            code = self._process.poll()
            self.kill()
            state = (
                f"still silent after {READY_SECONDS_MAX} s"
                if code is None
                else f"ended with exit code {code}"
            )
            raise AssertionError(f"the broker did not say {READY!r}, {state}; its log:\n{self.log}")

    def stop(self) -> None:
        """Stop by SIGTERM, as an operator does; a clean stop ends with exit code 0."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the broker ignored SIGTERM for {STOP_SECONDS_MAX} s; log:\n{self.log}"
            ) from None
        self._process = None
        assert code == 0, f"the broker ended with exit code {code} after SIGTERM; its log:\n{self.log}"

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, nothing flushed, nobody told."""
        process = self._running()
        process.kill()
        process.wait()
        self._process = None

    def close(self) -> None:
        """Stop it if a scenario has left it running."""
        if self._process is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker is not running"
        return self._process

    def _collect_log(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._log.append(line)
                if READY in line:
                    ready.set()
        # An early end must not leave start() waiting for the full time.
        process.wait()
        ready.set()


def free_ports(count: int) -> list[int]:
    """Loopback ports nobody listens on now; held together so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()
