"""What is done to the broker. Each fault leaves it running again, and tells the history what happened."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.fault.broker_process import BrokerProcess
from tests.fault.history import History, Rule, SubscriptionHistory

CURSOR_SECONDS_MAX = 5.0
"""An acknowledgement this old is on disk, whatever happens: the journal waits 200 ms, a busy machine longer."""
STREAMS_SECONDS_MAX = 20.0


class Nemesis:
    """Chooses and performs faults; the same seed makes the same choices."""

    def __init__(self, broker: BrokerProcess, history: History, dice: random.Random) -> None:
        self._broker = broker
        self._history = history
        self._dice = dice
        self._faults: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.kill, 4),
            (self.kill_in_recovery, 3),
            (self.kill_at_rotation, 4),
            (self.kill_while_stopping, 3),
            (self.stop, 3),
            (self.pause, 2),
        ]
        self._settled_at: list[tuple[float, dict[SubscriptionHistory, int]]] = []

    def choose(self) -> Callable[[], Awaitable[None]]:
        faults, weights = zip(*self._faults, strict=True)
        chosen: Callable[[], Awaitable[None]] = self._dice.choices(faults, weights)[0]
        return chosen

    async def start(self) -> None:
        self._history.broker_started()
        self._settled_at.clear()
        await self._broker.start()

    def note_cursors(self) -> None:
        """Remember how far the subscriptions are now; called every second or so."""
        if self._broker.is_running:
            self._settled_at.append((asyncio.get_running_loop().time(), self._history.settled()))

    async def kill(self) -> None:
        """SIGKILL under load."""
        await self._kill()
        await self.start()

    async def kill_in_recovery(self) -> None:
        """SIGKILL, and again while the next process starts, once or twice."""
        await self._kill()
        for _ in range(self._dice.randint(1, 2)):
            self._history.broker_started()
            await self._broker.spawn()
            await asyncio.sleep(self._dice.uniform(0.0, 1.0))
            await self._kill()
        await self.start()

    async def kill_at_rotation(self) -> None:
        """SIGKILL within milliseconds of a journal or segment file coming or going."""
        before = _names(self._broker.data_dir)
        deadline = asyncio.get_running_loop().time() + 5.0
        while _names(self._broker.data_dir) == before and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.001)
        await asyncio.sleep(self._dice.choice((0.0, 0.0, 0.002, 0.02)))
        await self._kill()
        await self.start()

    async def kill_while_stopping(self) -> None:
        """SIGTERM, then SIGKILL before it has finished, perhaps."""
        self._history.stop_asked()
        self._broker.ask_to_stop()
        await asyncio.sleep(self._dice.uniform(0.0, 0.2))
        await self._kill()
        await self.start()

    async def stop(self) -> None:
        """SIGTERM, as an operator does it."""
        self._history.stop_asked()
        self._broker.ask_to_stop()
        await self._broker.stopped()
        self._history.broker_ended(clean=True)
        await self._clients_noticed()
        await self.start()

    async def pause(self) -> None:
        """SIGSTOP for a while, as a laptop's lid or a busy hypervisor does it."""
        self._broker.pause()
        await asyncio.sleep(self._dice.uniform(0.2, 3.0))
        self._broker.resume()

    async def _kill(self) -> None:
        await self._broker.kill()
        now = asyncio.get_running_loop().time()
        self._history.broker_ended()
        for moment, settled in self._settled_at:
            if now - moment > CURSOR_SECONDS_MAX:
                self._history.hold(settled)
        # What was younger than that when the process died does not come of age afterwards.
        self._settled_at.clear()
        await self._clients_noticed()

    async def _clients_noticed(self) -> None:
        """Wait until no client believes in a stream of the process that is gone."""
        try:
            async with asyncio.timeout(STREAMS_SECONDS_MAX):
                while self._history.streams:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            believed = sorted(str(stream.subscription) for stream in self._history.streams)
            self._history.object(
                Rule.STUCK, f"{STREAMS_SECONDS_MAX} s after the broker's end clients believe in {believed}"
            )


def _names(directory: Path) -> frozenset[str]:
    return frozenset(str(path) for path in (directory / "wal").rglob("*") if path.suffix != ".tmp")
