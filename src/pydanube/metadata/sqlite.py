"""The standalone back end: one SQLite file, one thread that owns it, commits shared by a group.

The event loop never touches the database. Operations of one loop tick go to the thread together, and
what arrives while a commit is being synced forms the next group: the cost of a sync is shared by all
who wait for it. Reads travel the same way, in order with the writes, and are answered after the
group's commit, so nobody sees what might still be lost.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, ErrorCode, Unavailable
from pydanube.metadata.command_store import CommandStore
from pydanube.metadata.commands import Command, Outcome, Transact
from pydanube.metadata.database_thread import DatabaseThread, Waiter, Work
from pydanube.metadata.history import HISTORY_CHANGES_MAX, History
from pydanube.metadata.sqlite_database import Operation, ReadEntries, ReadEntry, Result
from pydanube.metadata.store import Entry, Put

WAITING_OPERATIONS_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024


class SqliteStore(CommandStore):
    """Facts that survive the process; open it with `await SqliteStore.open(path, clock=clock)`."""

    def __init__(self, clock: Clock, thread: DatabaseThread) -> None:
        super().__init__(clock, History(0))
        self._thread = thread
        self._tick: Work = []
        self._waiting = 0
        self._waiting_bytes = 0

    @classmethod
    async def open(
        cls, path: Path, *, clock: Clock, history_changes_max: int = HISTORY_CHANGES_MAX
    ) -> "SqliteStore":
        """Open or create the database at `path`; its folder is made if needed.

        Raises:
            Corrupt: the file is damaged, or acknowledged writes are missing from it.
            Unavailable: another process has it open, or the disk refuses.
            Rejected: the file belongs to something else or to a newer release.
        """
        store = cls(clock, DatabaseThread(path))
        revision, leases = await store._thread.start(store._finish)
        store._history = History(revision, changes_max=history_changes_max)
        for lease in leases:
            # The clock of the last run means nothing now; a full term is never too short.
            store._hold(lease)
        return store

    async def _execute(self, command: Command) -> Outcome:
        outcome = await self._submit(command)
        assert isinstance(outcome, Outcome)
        return outcome

    async def _read_entry(self, key: str) -> Entry | None:
        entries = await self._submit(ReadEntry(key))
        assert isinstance(entries, list)
        return entries[0] if entries else None

    async def _read_entries(self, prefix: str) -> list[Entry]:
        entries = await self._submit(ReadEntries(prefix))
        assert isinstance(entries, list)
        return entries

    async def _release(self) -> None:
        self._hand_over()
        await self._thread.stop()

    async def _submit(self, operation: Operation) -> Result:
        size = _size(operation)
        if self._waiting >= WAITING_OPERATIONS_MAX or self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise Unavailable(
                f"{self._waiting} metadata operations are waiting for the disk: try again shortly",
                ErrorCode.OVERLOADED,
            )
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        if not self._tick:
            loop.call_soon(self._hand_over)
        self._tick.append((operation, waiter))
        self._waiting += 1
        self._waiting_bytes += size
        return await waiter

    def _hand_over(self) -> None:
        """Give this tick's operations to the thread."""
        if self._tick:
            work, self._tick = self._tick, []
            self._thread.submit(work)

    def _finish(self, work: Work, results: Sequence[Result]) -> None:
        """Record and answer one group, in the order it was performed."""
        for (operation, waiter), result in zip(work, results, strict=True):
            self._waiting -= 1
            self._waiting_bytes -= _size(operation)
            if isinstance(result, Outcome):
                self._history.record(result.changes, result.revision)
            if waiter.done():
                continue  # the caller went away; what it asked for was done all the same
            if isinstance(result, DanubeError):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)


def _size(operation: Operation) -> int:
    if not isinstance(operation, Transact):
        return 0
    return sum(len(write.value) for write in operation.writes if isinstance(write, Put))
