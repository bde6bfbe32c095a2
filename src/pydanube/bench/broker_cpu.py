"""What a broker on this machine costs, from the kernel's own books; nothing is asked of the broker."""

import os
import socket
import time
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_LISTEN: Final = "0A"
_SETTLED_SHARE: Final = 0.05
_PROC: Final = Path("/proc")


def pid_of_listener(host: str, port: int) -> int | None:
    """The process that listens on the port, if the host is this machine and the process may be looked at."""
    if not _is_this_machine(host):
        return None
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in _PROC.iterdir():
        if process.name.isdigit() and _holds_any(process, sockets):
            return int(process.name)
    return None


def cpu_seconds(pid: int) -> float:
    """CPU used so far: threads alive now to the nanosecond, or the whole process if that is more."""
    root = _PROC / str(pid)
    fields = (root / "stat").read_text().rpartition(")")[2].split()
    whole = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
    spent_ns = 0
    for task in (root / "task").iterdir():
        try:
            spent_ns += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # the thread ended between the listing and the read
    return max(spent_ns / 1e9, whole)


def await_quiet(pid: int, *, look_seconds: float = 0.25, seconds_max: float = 15.0) -> bool:
    """Wait until the broker has tidied up after the last stage; False if it never came to rest."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        before = cpu_seconds(pid)
        time.sleep(look_seconds)
        if cpu_seconds(pid) - before < _SETTLED_SHARE * look_seconds:
            return True
    return False


def _is_this_machine(host: str) -> bool:
    try:
        address = socket.gethostbyname(host)
    except OSError:
        return host == "::1"
    if address.startswith("127."):
        return True
    # Only an address of this machine can be bound.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _holds_any(process: Path, sockets: set[str]) -> bool:
    try:
        return any(os.readlink(file) in sockets for file in (process / "fd").iterdir())
    except OSError:  # another user's process, or one that has just ended
        return False
