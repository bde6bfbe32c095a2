"""What every protocol's connections share: one write pass per loop tick, one timer, one way to end."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

log = logging.getLogger("pydanube.wire")

_TICK_SECONDS: Final = 1.0


class ServedConnection(ABC):
    """One connection as its server sees it."""

    @abstractmethod
    def flush(self) -> None:
        """Write everything that may be written now."""

    @abstractmethod
    def tick(self) -> None:
        """A second has passed."""

    @abstractmethod
    def shutdown(self) -> None:
        """Say goodbye; what is under way may finish."""

    @abstractmethod
    def abort(self) -> None:
        """Close now."""


class WritePass:
    """Collects the connections that have something to say and writes for all of them, once per turn of the loop.

    Shared by the servers of a process, so that a commit answers the clients of every protocol in one pass.
    """

    def __init__(self, before_write: Callable[[], None] = lambda: None) -> None:
        # Runs before anything is written, so that what calls set in motion leaves with their answers.
        self.before_write: Final = before_write
        self._loop = asyncio.get_running_loop()
        self._dirty: list[ServedConnection] = []

    def add(self, connection: ServedConnection) -> None:
        """The connection has something to write."""
        if not self._dirty:
            self._loop.call_soon(self.run)
        self._dirty.append(connection)

    def run(self) -> None:
        """Write for every connection listed. Happens by itself at the next turn of the loop."""
        self.before_write()
        dirty = self._dirty
        self._dirty = []
        for connection in dirty:
            connection.flush()


class ConnectionRegister:
    """The open connections of one protocol, and the tasks of their slower requests."""

    def __init__(self) -> None:
        self.open: Final[set[ServedConnection]] = set()
        self.tasks: Final[set[asyncio.Task[None]]] = set()
        self.total = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None

    def opened(self, connection: ServedConnection) -> None:
        self.total += 1
        self.open.add(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)

    def lost(self, connection: ServedConnection) -> None:
        self.open.discard(connection)
        if not self.open:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._all_closed is not None:
                self._all_closed.set()

    async def drain(self, seconds: float) -> None:
        """Announce the end, let open calls finish for up to `seconds`, then close what is left."""
        for connection in list(self.open):
            connection.shutdown()
        if self.open:
            self._all_closed = asyncio.Event()
            try:
                async with asyncio.timeout(seconds):
                    await self._all_closed.wait()
            except TimeoutError:
                log.info("connections=%d closed before their calls had ended", len(self.open))
        for connection in list(self.open):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
        for connection in list(self.open):
            connection.tick()
