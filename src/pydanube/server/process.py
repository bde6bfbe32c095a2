"""What the operating system has to know of a broker process: memory, garbage, identity, one per data directory."""

import ctypes
import fcntl
import gc
import os
import secrets
import sys
import time
from pathlib import Path
from typing import IO

from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable


class SystemClock:
    """The real clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class SystemDice:
    """Real chance."""

    def new_id(self) -> int:
        return secrets.randbits(62) + 1


def tune_process() -> None:
    """Keep freed memory with the process, collect garbage less often, let the journal thread in quickly.

    Fresh pages are dear on virtual machines: without this, handling large frames costs two to three times
    the CPU (docs/adr/0001). Elsewhere than on glibc this does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        pass
    else:
        trim_threshold, top_pad, mmap_threshold, arena_max = -1, -2, -3, -8
        # What one thread has freed is there for the next: each would keep tens of megabytes for itself otherwise.
        mallopt(arena_max, 1)
        mallopt(trim_threshold, 512 << 20)
        mallopt(top_pad, 64 << 20)
        mallopt(mmap_threshold, 32 << 20)
    # The journal thread comes back from every sync wanting to run at once; 5 ms is longer than the sync itself.
    sys.setswitchinterval(0.0005)
    # Nobody here multiplies matrices: threads of numpy's library would only spin, here and in the converter.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def claim(data_dir: Path) -> IO[str]:
    """Make the data directory ours as long as the returned file is open, or say who has it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = (data_dir / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip()
        lock.close()
        raise Unavailable(
            f"data directory {data_dir} is in use by process {holder or 'unknown'}: stop it, or choose another --data-dir",
            ErrorCode.STORE_FAILED,
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def broker_id(data_dir: Path) -> int:
    """The number this broker goes by for ever, made at its first start."""
    path = data_dir / "node_id"
    if not path.exists():
        scratch = path.with_suffix(".tmp")
        with scratch.open("w") as file:
            file.write(str(secrets.randbits(63) + 1))
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    text = path.read_text().strip()
    if not text.isdigit():
        raise Corrupt(f"{path} holds {text[:40]!r}, expected a decimal number", ErrorCode.METADATA_CORRUPT)
    return int(text)
