"""What other shells can know of running pipelines, and how they stop them: a directory of small files.

For each pipeline there is a record, replaced as a whole, and a lock that its process holds as long as it lives. So a
record whose lock is free is of a process that has ended, whatever the record says and whoever has its number now.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.spark.pipelines.checked_yaml import unknown
from pydanube.spark.pipelines.progress import Progress

Status = Literal["starting", "running", "waiting", "stopping", "stopped", "finished", "failed", "died"]
ALIVE: Final = ("starting", "running", "waiting", "stopping")
_LOOK_EVERY_SECONDS: Final = 0.1


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a pipeline, as far as it has told."""

    name: str
    status: Status
    pid: int
    file: str
    master: str
    checkpoint: str
    started: float
    """Unix time."""
    ended: float | None = None
    progress: Progress | None = None
    error: str | None = None
    """Why it failed, or waits to try again."""


class RunDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def checkpoint(self, name: str) -> Path:
        return self.path / name / "checkpoint"

    @contextmanager
    def claim(self, record: RunRecord) -> Iterator["RunningRecord"]:
        """Be the one run of a pipeline.

        Raises:
            Conflict: another process runs it.
        """
        folder = self.path / record.name
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("ab") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = self._stored(record.name)
                by = f" by process {other.pid}" if other is not None else ""
                raise Conflict(
                    f"pipeline {record.name} is running already{by}: `danube pipeline stop {record.name}` stops it",
                    ErrorCode.VERSION_MISMATCH,
                ) from None
            running = RunningRecord(folder / "run.json", record)
            running.update()
            yield running

    def find(self, name: str) -> RunRecord:
        """The last run of a pipeline.

        Raises:
            Rejected: it never ran here.
        """
        record = self._stored(name)
        if record is None:
            known = [each.name for each in self.all()]
            hint = unknown("pipeline", name, known) if known else f"unknown pipeline {name!r}: none has run"
            raise Rejected(f"{hint} (looked in {self.path})")
        if record.status in ALIVE and not self._is_held(name):
            return msgspec.structs.replace(record, status="died")
        return record

    def all(self) -> list[RunRecord]:
        """The last run of each, by name."""
        names = sorted(file.parent.name for file in self.path.glob("*/run.json"))
        return [self.find(name) for name in names if self._stored(name) is not None]

    def stop(self, name: str, *, seconds: float, force: bool) -> RunRecord:
        """Ask a pipeline to end after its batch, and wait for that.

        Raises:
            Rejected: it does not run.
            Conflict: it did not end in time.
        """
        record = self.find(name)
        if record.status not in ALIVE:
            raise Rejected(f"pipeline {name} is not running: it is {record.status}")
        os.kill(record.pid, signal.SIGTERM)
        if self._ends_within(name, seconds):
            return self.find(name)
        if not force:
            raise Conflict(
                f"pipeline {name} (process {record.pid}) has not ended within {seconds:g} s: wait longer by --timeout, or "
                "use --force; nothing is lost by that, its batch comes again",
                ErrorCode.VERSION_MISMATCH,
            )
        os.kill(record.pid, signal.SIGKILL)
        self._ends_within(name, seconds)
        return self.find(name)

    def _ends_within(self, name: str, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._is_held(name):
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK_EVERY_SECONDS)
        return True

    def _is_held(self, name: str) -> bool:
        try:
            with (self.path / name / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _stored(self, name: str) -> RunRecord | None:
        try:
            return msgspec.json.decode((self.path / name / "run.json").read_bytes(), type=RunRecord)
        except (OSError, msgspec.MsgspecError):
            return None


class RunningRecord:
    """The record of the process that has the lock."""

    def __init__(self, file: Path, record: RunRecord) -> None:
        self._file = file
        self.record = record

    def update(self, **changes: object) -> None:
        """Change some fields, for everybody to see."""
        self.record = msgspec.structs.replace(self.record, **changes)
        draft = self._file.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(self.record))
        draft.replace(self._file)


def default_directory() -> Path:
    """Where state is kept that must survive a restart."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "danube" / "pipelines"
