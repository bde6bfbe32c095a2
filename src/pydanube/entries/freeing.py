"""Giving the space of removed files back: little by little, one file at a time, while who removed them goes on."""

import os
import time
from collections import deque
from contextlib import suppress
from threading import Condition, Thread

FREED_AT_ONCE_BYTES = 2 << 20
FREEING_PAUSE_SECONDS = 0.005
"""A large file is given back in such steps. Freed in one go, 64 MB kept every sync of the journal waiting for 10 to 15 ms
where the file system tells its device what is free (mount option `discard`); in these steps no sync was held up."""

WAITING_MAX = 32
"""Removed files whose space is still to be given back; who removes one more waits. Each is an open file."""


class Freeing:
    """A thread that is there while there is something to free. A process that ends leaves the rest to the system."""

    def __init__(self) -> None:
        self._files: deque[int] = deque()
        self._changed = Condition()
        self._is_running = False

    def free(self, fd: int) -> None:
        """Take over a file that has no name any more, open for writing: give its space back, and close it."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._files) < WAITING_MAX)
            self._files.append(fd)
            if not self._is_running:
                Thread(target=self._run, name="freeing", daemon=True).start()
                self._is_running = True

    def wait(self) -> None:
        """Until nothing is left to free."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def _run(self) -> None:
        while (fd := self._next()) is not None:
            try:
                _shrink(fd)
            finally:
                os.close(fd)

    def _next(self) -> int | None:
        with self._changed:
            fd = self._files.popleft() if self._files else None
            self._is_running = fd is not None
            self._changed.notify_all()
            return fd


def _shrink(fd: int) -> None:
    """Give back most of the file; closing it gives back the rest."""
    # Failing is no harm: the system frees the whole of it in one go then.
    with suppress(OSError):
        for size in range(os.fstat(fd).st_size - FREED_AT_ONCE_BYTES, 0, -FREED_AT_ONCE_BYTES):
            os.ftruncate(fd, size)
            time.sleep(FREEING_PAUSE_SECONDS)


FREEING = Freeing()
"""One for the process: however many directories it has files in, there is a device below them to be spared."""
