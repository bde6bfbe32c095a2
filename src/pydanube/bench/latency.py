"""The end-to-end load: messages at a rate, each carrying the moment it was due, measured where it arrives."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import cycle, groupby
from types import TracebackType
from typing import Final

from pydanube.bench.faces import Delivery, Publisher, Subscriber, open_faces
from pydanube.bench.payloads import pool
from pydanube.bench.plan import STAMP_BYTES, Plan
from pydanube.bench.publish import send_paced
from pydanube.bench.recorder import Measured, Recorder
from pydanube.bench.sequences import Verdict
from pydanube.kernel.errors import DanubeError, Unavailable

ATTACH_SECONDS_MAX: Final = 15.0
_PROBE_SECONDS: Final = 0.1


class LatencyLoad:
    """All producers and consumers of the plan, in one process, so that they share a clock.

    A message's stamp is the moment it was due, so a sender that is held up does not hide the wait. What was
    due before the clock started belongs to the warm-up.
    """

    def __init__(self, plan: Plan, connections: int) -> None:
        self._plan = plan
        self._connections = connections
        self._tail = pool(size=plan.size, seed=plan.seed)[0][STAMP_BYTES:]
        self._publishers: list[Publisher] = []
        self._arrivals = _Arrivals()
        self._readers: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._published = Recorder(0)

    async def __aenter__(self) -> "LatencyLoad":
        try:
            faces = cycle(await open_faces(self._stack, self._plan, self._connections))
            for stream in self._plan.streams():
                self._publishers.append(await self._stack.enter_async_context(next(faces).publisher(stream)))
            for group_number, group in enumerate(self._plan.groups()):
                for number in range(self._plan.consumers):
                    subscriber = await self._stack.enter_async_context(next(faces).subscriber(group, number))
                    self._readers.append(asyncio.create_task(self._arrivals.read(group_number, subscriber)))
            await self._await_attached()
            await self._send(self._plan.warmup, Recorder(time.monotonic_ns()))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def run(self, recorder: Recorder) -> None:
        self._published = Recorder(recorder.first_ns)
        self._arrivals.recorder = recorder
        await self._send(self._plan.count, self._published)
        await self._arrivals.until(lambda: recorder.messages >= self._expected())

    def published(self) -> Measured:
        """How long the producers waited for their answers."""
        return self._published.measured(cpu_seconds=0.0)

    def verdict(self) -> Verdict:
        difference = self._expected() - self._arrivals.recorder.messages
        return Verdict(lost=max(difference, 0), duplicated=max(-difference, 0))

    def _expected(self) -> int:
        return (self._plan.count - self._published.errors) * self._plan.subscriptions

    async def _send(self, count: int, recorder: Recorder) -> None:
        await send_paced(self._publishers, count, self._plan.rate, recorder, self._stamped)

    def _stamped(self, count: int, due_ns: int) -> Sequence[bytes]:
        return [due_ns.to_bytes(STAMP_BYTES, "little") + self._tail] * count

    async def _await_attached(self) -> None:
        """Probe until every subscription delivers: what a non-reliable topic sends before that is lost."""
        groups = self._plan.reading_groups
        deadline = time.monotonic() + ATTACH_SECONDS_MAX
        while len(self._arrivals.attached) < groups:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{groups - len(self._arrivals.attached)} of {groups} subscriptions received nothing within"
                    f" {ATTACH_SECONDS_MAX:g} s: look into the broker's log, or use fewer topics"
                )
            now_ns = time.monotonic_ns()
            for publisher in self._publishers:
                await publisher.send(self._stamped(1, now_ns), now_ns, Recorder(now_ns))
                await publisher.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._arrivals.until(lambda: len(self._arrivals.attached) >= groups)

    async def _close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self._stack.aclose()


class _Arrivals:
    """What all consumers receive, told to one recorder."""

    def __init__(self) -> None:
        self.attached: set[int] = set()
        # Nothing is due that late: until the clock starts, everything is warm-up.
        self.recorder = Recorder(1 << 63)
        self._news = asyncio.Event()
        self._failure: DanubeError | None = None

    async def read(self, group: int, subscriber: Subscriber) -> None:
        def take(delivery: Delivery) -> None:
            self.attached.add(group)
            self._record(delivery)
            self._news.set()

        try:
            await subscriber.read(take, stamped=True)
        except DanubeError as error:
            self._failure = error
            self._news.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()

    def _record(self, delivery: Delivery) -> None:
        recorder = self.recorder
        size = len(delivery.payloads) // delivery.messages
        # Messages of one group of the pace bear the same stamp.
        for stamp_ns, same in groupby(delivery.stamps):
            if stamp_ns >= recorder.first_ns:
                messages = sum(1 for _ in same)
                recorder.record(delivery.at_ns, delivery.at_ns - stamp_ns, messages, messages * size)
