"""What a process has cost so far, read from the kernel's own books."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_seconds: float
    rss_bytes: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        root = Path(f"/proc/{pid}")
        resident_pages = int((root / "statm").read_text().split()[1])
        return cls(
            cpu_seconds=max(_live_threads(root), _whole_process(root)), rss_bytes=resident_pages * PAGE_BYTES
        )


def _live_threads(root: Path) -> float:
    """CPU of all threads alive now, to the nanosecond."""
    spent_ns = 0
    for task in (root / "task").iterdir():
        try:
            spent_ns += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # the thread ended between the listing and the read
    return spent_ns / 1e9


def _whole_process(root: Path) -> float:
    """CPU of the process including threads that have ended; coarse, and rounded down by a tick each."""
    fields = (root / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_SECONDS


def await_quiet_disk(pid: int, *, quiet_seconds: float = 0.3, seconds_max: float = 10.0) -> bool:
    """Wait until a process has stopped writing; False if it still writes after `seconds_max`.

    A broker tidies up after a burst (stages, prepares files). That must not count against who is measured next.
    """
    deadline = time.monotonic() + seconds_max
    written = _bytes_written(pid)
    while time.monotonic() < deadline:
        time.sleep(quiet_seconds)
        before, written = written, _bytes_written(pid)
        if written == before:
            return True
    return False


def _bytes_written(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("write_bytes"))
