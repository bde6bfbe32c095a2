"""Disks that run full on demand: a small file system of our own, or a limit on the size of files.

The file system is a tmpfs in a private mount namespace: nobody else sees it, and it is gone with its keeper. That takes root, or a kernel that lets anybody have a user namespace. Where neither is
there, a limit on file sizes makes the journal's writes fail too; but a write that fails stops the journal for
good, so that disk does not heal.
"""

import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.fault.broker_process import BrokerProcess

LIMIT_BYTES = 64 * 1024
LEFT_BYTES = 4 << 20


class SmallDisk(Protocol):
    data_dir: Path
    prefix: tuple[str, ...]
    """What the broker has to be run with, to see the disk."""
    heals: bool
    """Whether a broker goes on by itself once there is space again."""

    def fill(self, broker: BrokerProcess) -> None: ...
    def free(self, broker: BrokerProcess) -> None: ...
    def close(self) -> None: ...


class NoMountError(Exception):
    """This machine does not let us mount anything."""


class SmallFileSystem:
    """A tmpfs of some megabytes."""

    heals = True

    def __init__(self, mount_point: Path, *, size_mib: int) -> None:
        mount_point.mkdir(parents=True)
        is_root = os.geteuid() == 0
        command = ["unshare", "--mount"] + ([] if is_root else ["--map-root-user"])
        script = f'mount -t tmpfs -o size={size_mib}m danube-fault "$1" && echo mounted && exec cat'
        try:
            self._keeper = subprocess.Popen(
                [*command, "sh", "-c", script, "sh", str(mount_point)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        except OSError as error:
            raise NoMountError(str(error)) from error
        assert self._keeper.stdout is not None
        answer = self._keeper.stdout.readline().strip()
        if answer != "mounted":
            self.close()
            raise NoMountError(answer)
        keeper = str(self._keeper.pid)
        self.prefix = ("nsenter", "--target", keeper, "--mount")
        if not is_root:
            self.prefix += ("--user", "--preserve-credentials")
        self.data_dir = mount_point / "data"
        self._ballast = Path(f"/proc/{keeper}/root{mount_point}") / "ballast"

    def fill(self, broker: BrokerProcess) -> None:
        """Leave room for a few journal files only."""
        free = os.statvfs(self._ballast.parent)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - LEFT_BYTES)

    def free(self, broker: BrokerProcess) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        # Its input ends, so it does, and with it the mount.
        with suppress(BrokenPipeError):
            self._keeper.communicate()


class LimitedFiles:
    """Any disk, on which the broker may not write beyond some point of a file."""

    prefix: tuple[str, ...] = ()
    heals = False

    def __init__(self, directory: Path) -> None:
        self.data_dir = directory / "data"

    def fill(self, broker: BrokerProcess) -> None:
        _, self._hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, self._hard))

    def free(self, broker: BrokerProcess) -> None:
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (self._hard, self._hard))

    def close(self) -> None:
        """There is nothing to give back."""
