"""What a process and all it has started have cost: Spark is a JVM with Python workers that come and go."""

import os
import time
from pathlib import Path

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Of a process and its descendants, with those that have ended and were waited for."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended between the listing and the read
        fields = text.rpartition(")")[2].split()
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children.get(pid, ())
    return total * TICK_SECONDS


def settle(
    root: int, *, quiet_seconds: float = 0.4, idle_share: float = 0.05, seconds_max: float = 20.0
) -> None:
    """Wait until a process does next to nothing: what it tidies up must not count against who is measured next."""
    deadline = time.monotonic() + seconds_max
    spent = cpu_seconds(root)
    while time.monotonic() < deadline:
        time.sleep(quiet_seconds)
        before, spent = spent, cpu_seconds(root)
        if spent - before <= quiet_seconds * idle_share:
            return
