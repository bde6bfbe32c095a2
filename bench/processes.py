"""What a process has cost so far, read from the kernel's own books."""

import os
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
