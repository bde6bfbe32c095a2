"""The recent changes, kept once for all watchers.

A watcher is a position in this one bounded list, not a buffer of its own: it costs nothing while it
waits, and one that falls behind further than the list reaches is told so (`HistoryLost`).
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from pydanube.kernel.errors import Unavailable
from pydanube.metadata.store import Change, HistoryLost, covers

HISTORY_CHANGES_MAX: Final = 10_000
HISTORY_BYTES_MAX: Final = 32 * 1024 * 1024


class History:
    """Remembers the last changes and wakes those who wait for more."""

    def __init__(
        self, revision: int, *, changes_max: int = HISTORY_CHANGES_MAX, bytes_max: int = HISTORY_BYTES_MAX
    ) -> None:
        self.oldest = revision  # everything after this revision is remembered
        self.newest = revision
        self.closed = False
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: list[Change] = []
        self._first = 0  # index of the oldest remembered change within `_changes`
        self._dropped = 0  # how many changes were cut off the front of `_changes` so far
        self._bytes = 0
        self._waiters: list[asyncio.Future[None]] = []

    def record(self, changes: Sequence[Change], revision: int) -> None:
        """Add the changes of one command, forget the oldest beyond the bounds, wake the watchers."""
        self.newest = revision
        if not changes:
            return
        self._changes.extend(changes)
        self._bytes += sum(_cost(change) for change in changes)
        while len(self._changes) - self._first > self._changes_max or self._bytes > self._bytes_max:
            forgotten = self._changes[self._first]
            self._first += 1
            self._bytes -= _cost(forgotten)
            self.oldest = forgotten.version
        # Cut in large pieces: shifting the list for every change would cost its whole length each time.
        if self._first > self._changes_max or self._first == len(self._changes):
            del self._changes[: self._first]
            self._dropped += self._first
            self._first = 0
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def position_after(self, version: int) -> int | None:
        """The position of the first change above `version`, or None if some are forgotten or to come."""
        if not self.oldest <= version <= self.newest:
            return None
        index = bisect_right(self._changes, version, lo=self._first, key=lambda change: change.version)
        return self._dropped + index

    def read(self, position: int, limit: int) -> list[Change] | None:
        """Up to `limit` changes from a position, or None if it is forgotten."""
        index = position - self._dropped
        return self._changes[index : index + limit] if index >= self._first else None

    async def wait(self) -> None:
        """Return when there may be something new."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Watch:
    """An endless iterator over the changes of one prefix; see `MetadataStore.watch`."""

    READ_AHEAD_MAX: Final = 256

    def __init__(self, history: History, prefix: str, since_version: int) -> None:
        self._history = history
        self._prefix = prefix
        self._version = since_version
        self._position = history.position_after(since_version)
        self._taken: list[Change] = []  # newest first, so that pop() gives the next

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> Change:
        while not self._taken:
            if self._history.closed:
                raise Unavailable(f"the metadata store is closed: the watch of {self._prefix} ends")
            changes = None
            if self._position is not None:
                changes = self._history.read(self._position, self.READ_AHEAD_MAX)
            if self._position is None or changes is None:
                raise HistoryLost(
                    self._prefix,
                    since_version=self._version,
                    oldest=self._history.oldest,
                    newest=self._history.newest,
                )
            if not changes:
                await self._history.wait()
                continue
            self._position += len(changes)
            self._version = changes[-1].version
            self._taken = [change for change in reversed(changes) if covers(self._prefix, change.key)]
        return self._taken.pop()


def _cost(change: Change) -> int:
    # 200: the objects around the bytes, roughly.
    return 200 + len(change.key) + (len(change.value) if change.value is not None else 0)
