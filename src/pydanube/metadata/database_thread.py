"""The thread that owns the database: groups in, results out, nothing shared in between."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from pydanube.kernel.errors import DanubeError, ErrorCode, OutcomeUnknown, Unavailable
from pydanube.metadata.sqlite_database import Database, Operation, Result
from pydanube.metadata.store import Lease

GROUP_OPERATIONS_MAX: Final = 1_000
"""A group is closed once it holds this many; the rest waits for the next commit."""

Waiter = asyncio.Future[Result]
Work = list[tuple[Operation, Waiter]]
Finish = Callable[[Work, Sequence[Result]], None]


class DatabaseThread:
    """Performs whatever has gathered as one commit, then tells the event loop, again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[tuple[int, list[Lease]]] = self._loop.create_future()
        self._ended = asyncio.Event()
        # The submitter bounds what waits here; None asks the thread to end.
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._finish: Finish = lambda work, results: None
        self._broken: DanubeError | None = None
        self._thread = threading.Thread(target=self._run, name="metadata database", daemon=True)

    async def start(self, finish: Finish) -> tuple[int, list[Lease]]:
        """Open the database; return its revision and the leases it holds. `finish` runs on the loop."""
        self._finish = finish
        self._thread.start()
        try:
            return await self._opened
        except BaseException:
            await self.stop()
            raise

    def submit(self, work: Work) -> None:
        self._queue.put(work)

    async def stop(self) -> None:
        """End after everything submitted was performed and answered."""
        self._queue.put(None)
        await self._ended.wait()
        self._thread.join()  # its last act was to set the event

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _serve(self) -> None:
        try:
            database = Database(self._path)
            opened = (database.revision, database.leases())
        except BaseException as error:
            self._loop.call_soon_threadsafe(_answer, self._opened, error)
            return
        self._loop.call_soon_threadsafe(_answer, self._opened, opened)
        try:
            more = True
            while more:
                work, more = self._next_group()
                if work:
                    results = self._perform(database, [operation for operation, _ in work])
                    self._loop.call_soon_threadsafe(self._finish, work, results)
        finally:
            database.close()

    def _next_group(self) -> tuple[Work, bool]:
        """Wait for work, then take all that is there already; False when the thread shall end."""
        group: Work = []
        item = self._queue.get()
        while item is not None:
            group += item
            if len(group) >= GROUP_OPERATIONS_MAX:
                return group, True
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _perform(self, database: Database, operations: Sequence[Operation]) -> Sequence[Result]:
        if self._broken is None:
            try:
                return database.perform(operations)
            except OutcomeUnknown as error:
                # After a failed sync neither the file nor the cache above it can be trusted.
                self._broken = Unavailable(
                    f"the metadata store has stopped: {error.text}", ErrorCode.STORE_FAILED
                )
                return [OutcomeUnknown(error.text) for _ in operations]
            except DanubeError as error:
                return [type(error)(error.text, error.code) for _ in operations]
            except Exception as error:
                self._broken = Unavailable(
                    f"the metadata store has stopped after a bug ({error!r}): restart the broker, report this",
                    ErrorCode.STORE_FAILED,
                )
                return [OutcomeUnknown(self._broken.text) for _ in operations]
        broken = self._broken
        return [Unavailable(broken.text, broken.code) for _ in operations]


def _answer(
    opened: asyncio.Future[tuple[int, list[Lease]]], result: tuple[int, list[Lease]] | BaseException
) -> None:
    if opened.done():
        return  # nobody waits any more
    if isinstance(result, BaseException):
        opened.set_exception(result)
    else:
        opened.set_result(result)
