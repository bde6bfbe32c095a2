"""What a broker does by itself: look at every subscription regularly, forget the idle, apply retention."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from pydanube.broker.broker import Broker
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError

log = structlog.get_logger("pydanube.broker")

TICK_MS = 500
SWEEP_MS = 30_000
IDLE_MS_MAX = 60 * 60 * 1_000
"""Producers and consumers not seen for an hour are forgotten."""


class Housekeeping:
    """Runs the regular duties until stopped. One that fails is logged and tried again next time."""

    def __init__(self, broker: Broker, clock: Clock, *, retention_check_ms: int) -> None:
        self._broker = broker
        self._clock = clock
        self._duties: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (TICK_MS, self._tick),
            (SWEEP_MS, self._sweep),
            (retention_check_ms, self._retain),
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for interval_ms, duty in self._duties:
            self._tasks.append(asyncio.get_running_loop().create_task(self._repeat(interval_ms, duty)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, interval_ms: int, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1_000)
            try:
                await duty()
            except DanubeError as error:
                log.error("housekeeping failed", duty=duty.__name__.strip("_"), error=error.text)

    async def _tick(self) -> None:
        self._broker.ticks += 1
        for topic in self._broker.topics:
            if isinstance(topic, ReliableTopic):
                for subscription in topic.durable:
                    if subscription.lag:
                        subscription.tick()

    async def _sweep(self) -> None:
        await self._broker.drop_idle_live_subscriptions()
        await self._broker.forget_idle(idle_ms_max=IDLE_MS_MAX)

    async def _retain(self) -> None:
        settings, now_ms = self._broker.settings, self._clock.now_ms()
        for topic in self._broker.topics:
            if isinstance(topic, ReliableTopic):
                await topic.apply_retention(settings.retention_of(topic.name), now_ms)
                await topic.log.drop_copies(settings.copies, now_ms=now_ms)
