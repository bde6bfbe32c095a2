"""The publishing load: as fast as possible, or at a rate."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from types import TracebackType
from typing import Final

from pydanube.bench.faces import Publisher, open_faces
from pydanube.bench.pace import Pace
from pydanube.bench.payloads import pool
from pydanube.bench.plan import Plan, Stream
from pydanube.bench.recorder import Recorder
from pydanube.bench.ticker import Ticker

OPENED_AT_ONCE: Final = 64


class PublishLoad:
    """Some of the plan's streams, each a producer on its topic."""

    def __init__(self, plan: Plan, streams: Sequence[Stream], connections: int) -> None:
        self._plan = plan
        self._streams = streams
        self._connections = connections
        self._publishers: list[Publisher] = []
        self._stack = AsyncExitStack()
        # Made once: a turn hands over the same list, so the load itself costs nothing per message.
        self._turn = list(islice(cycle(pool(size=plan.size, seed=plan.seed)), plan.batch_messages))

    async def __aenter__(self) -> "PublishLoad":
        try:
            faces = await open_faces(self._stack, self._plan, self._connections)
            publishers = [
                face.publisher(stream) for stream, face in zip(self._streams, cycle(faces), strict=False)
            ]
            # Many at once: what the broker stores of them then shares its syncs.
            for first in range(0, len(publishers), OPENED_AT_ONCE):
                opening = map(self._stack.enter_async_context, publishers[first : first + OPENED_AT_ONCE])
                for opened in await asyncio.gather(*opening, return_exceptions=True):
                    if isinstance(opened, BaseException):
                        raise opened
                    self._publishers.append(opened)
            await self._send([stream.warmup for stream in self._streams], Recorder(time.monotonic_ns()))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, recorder: Recorder) -> None:
        await self._send([stream.messages for stream in self._streams], recorder)

    async def _send(self, counts: list[int], recorder: Recorder) -> None:
        if self._plan.rate:
            share = sum(stream.messages for stream in self._streams) / self._plan.count
            await send_paced(self._publishers, sum(counts), self._plan.rate * share, recorder, self._take)
        else:
            await asyncio.gather(
                *(
                    self._flood(publisher, count, recorder)
                    for publisher, count in zip(self._publishers, counts, strict=True)
                )
            )

    async def _flood(self, publisher: Publisher, count: int, recorder: Recorder) -> None:
        turn = self._turn
        for _ in range(count // len(turn)):
            await publisher.send(turn, None, recorder)
        if rest := count % len(turn):
            await publisher.send(turn[:rest], None, recorder)
        await publisher.drain()

    def _take(self, count: int, due_ns: int) -> Sequence[bytes]:
        return self._turn[:count] if count <= len(self._turn) else list(islice(cycle(self._turn), count))


Take = Callable[[int, int], Sequence[bytes]]
"""Makes so many payloads for messages that were due at a moment."""


async def send_paced(
    publishers: Sequence[Publisher], count: int, rate: float, recorder: Recorder, take: Take
) -> None:
    """Send each group when it is due, publishers taking turns by message; all are answered at the end."""
    pace = Pace(rate=rate, begin_ns=time.monotonic_ns())
    ticker = Ticker()
    turn = 0
    try:
        while count:
            group = pace.due(time.monotonic_ns())
            if group is None:
                await ticker.until(pace.next_due_ns)
                continue
            due_ns, wanted = group
            wanted = min(wanted, count)
            count -= wanted
            each, more = divmod(wanted, len(publishers))
            for step in range(len(publishers) if each else more):
                publisher = publishers[(turn + step) % len(publishers)]
                await publisher.send(take(each + (step < more), due_ns), due_ns, recorder)
            turn = (turn + more) % len(publishers)
    finally:
        ticker.close()
    for publisher in publishers:
        await publisher.drain()
