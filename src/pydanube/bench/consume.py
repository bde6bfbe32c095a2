"""The reading load: everything a topic holds, from the earliest message, by one or more subscriptions."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from types import TracebackType

from pydanube.bench.faces import Delivery, Subscriber, Take, open_faces
from pydanube.bench.plan import STAMP_BYTES, Group, Plan
from pydanube.bench.recorder import Recorder
from pydanube.bench.sequences import SequenceCheck, Verdict


class ConsumeLoad:
    """Some of the plan's subscriptions, each with all its consumers.

    Without checksums the topic was filled by somebody else: then messages are only counted.
    """

    def __init__(
        self, plan: Plan, groups: Sequence[Group], checksums: Mapping[str, int], connections: int
    ) -> None:
        self._plan = plan
        self._connections = connections
        self._readings = [_Reading(plan, group, checksums.get(group.topic)) for group in groups]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "ConsumeLoad":
        try:
            self._faces = cycle(await open_faces(self._stack, self._plan, self._connections))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, recorder: Recorder) -> None:
        """Subscribe and read to the end; to subscribe is part of it, for deliveries begin with it."""
        for reading in self._readings:
            for number in range(self._plan.consumers):
                subscribing = next(self._faces).subscriber(reading.group, number)
                reading.subscribers.append(await self._stack.enter_async_context(subscribing))
        await asyncio.gather(*(reading.run(recorder) for reading in self._readings))

    def verdict(self) -> Verdict:
        return sum((reading.check.verdict() for reading in self._readings), Verdict())


class _Reading:
    """One subscription: its consumers read until all of them together have everything."""

    def __init__(self, plan: Plan, group: Group, checksum: int | None) -> None:
        self.group = group
        self.subscribers: list[Subscriber] = []
        # With several consumers nobody knows in which order their bytes belong together.
        self.check = SequenceCheck(
            group.messages,
            checksum=checksum if plan.consumers == 1 else None,
            is_all=checksum is not None,
        )
        self._complete = asyncio.Event()
        self._numbered = checksum is not None and plan.size >= STAMP_BYTES

    async def run(self, recorder: Recorder) -> None:
        if self.check.is_complete:
            return
        readers = [
            asyncio.create_task(subscriber.read(self._taking(number, recorder), stamped=self._numbered))
            for number, subscriber in enumerate(self.subscribers)
        ]
        complete = asyncio.create_task(self._complete.wait())
        try:
            done, _ = await asyncio.wait((complete, *readers), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (complete, *readers):
                task.cancel()
            await asyncio.gather(complete, *readers, return_exceptions=True)

    def _taking(self, number: int, recorder: Recorder) -> Take:
        """What is done with each delivery of a consumer."""
        asked_ns = time.monotonic_ns()

        def take(delivery: Delivery) -> None:
            nonlocal asked_ns
            recorder.record(
                delivery.at_ns, delivery.at_ns - asked_ns, delivery.messages, len(delivery.payloads)
            )
            self._tick_off(number, delivery)
            if self.check.is_complete:
                self._complete.set()
            asked_ns = time.monotonic_ns()

        return take

    def _tick_off(self, number: int, delivery: Delivery) -> None:
        self.check.receive_bytes(delivery.payloads)
        if not self._numbered:
            self.check.receive_unnumbered(delivery.messages)
            return
        stamps = delivery.stamps
        if isinstance(stamps, range):
            self.check.receive_run(number, stamps.start, len(stamps))
        else:
            self.check.receive(number, stamps)
