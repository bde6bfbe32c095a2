"""A server on loopback: started, awaited until it answers its own protocol, weighed, stopped by its pids."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Usage
from bench.servers import ServerError

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20
POLL_SECONDS = 0.01
ANSWER_SECONDS_MAX = 2.0
SETTLE_SECONDS_MAX = 30.0
SETTLE_POLL_SECONDS = 0.5
SETTLED_CORES = 0.15


@dataclass(frozen=True, slots=True)
class Greeting:
    """What to say to a port, and how its answer begins once the server is there for clients."""

    port: int
    say: bytes
    hear: bytes = b""

    def answered(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS_MAX) as connection:
                connection.settimeout(ANSWER_SECONDS_MAX)
                connection.sendall(self.say)
                answer = connection.recv(64)
        except OSError:
            return False
        return bool(answer) and answer.startswith(self.hear)


@dataclass(frozen=True, slots=True)
class ServerProcess:
    pid: int
    start_seconds: float

    def usage(self) -> Usage:
        """Cost of the process and of everything it has started that still lives."""
        every = []
        for pid in family(self.pid):
            with suppress(FileNotFoundError, ProcessLookupError):  # ended since it was listed
                every.append(Usage.of(pid))
        return Usage(
            cpu_seconds=sum(usage.cpu_seconds for usage in every),
            rss_bytes=sum(usage.rss_bytes for usage in every),
        )

    def settle(self) -> None:
        """Wait until it has done most of what is left of the work before, but no longer than a while."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        before = self.usage().cpu_seconds
        while time.monotonic() < deadline:
            time.sleep(SETTLE_POLL_SECONDS)
            after = self.usage().cpu_seconds
            if after - before < SETTLED_CORES * SETTLE_POLL_SECONDS:
                return
            before = after


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> list[int]:
    """A process and its descendants, eldest first."""
    members = [pid]
    for member in members:
        with suppress(FileNotFoundError):
            for task in Path(f"/proc/{member}/task").iterdir():
                members += map(int, (task / "children").read_text().split())
    return members


@contextmanager
def serving(
    command: Sequence[str],
    *,
    folder: Path,
    greetings: Sequence[Greeting],
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """Run a server for the length of the body; its output stays in the folder until that is removed."""
    log = folder / "server.log"
    with log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
    try:
        _await_answers(process, log, greetings)
        yield ServerProcess(process.pid, time.monotonic() - began)
    finally:
        _stop(process)


def _await_answers(process: subprocess.Popen[bytes], log: Path, greetings: Sequence[Greeting]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    for greeting in greetings:
        while not greeting.answered():
            if process.poll() is not None or time.monotonic() > deadline:
                last_words = log.read_text(errors="replace").strip()[-300:]
                raise ServerError(f"no answer on port {greeting.port}: {last_words or 'it printed nothing'}")
            time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask every member of the family to end, then end it: a wrapper's child must not outlive the wrapper."""
    members = family(process.pid) if process.poll() is None else []
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS_MAX)
