"""Fills topics with numbered messages, so that a reader can tell whether all came."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle, islice
from types import TracebackType

from crc32c import crc32c

from pydanube.bench.faces import Publisher, connected, open_faces
from pydanube.bench.payloads import numbered, pool
from pydanube.bench.plan import Group, Plan, Protocol, Stream
from pydanube.bench.recorder import Recorder


class FillLoad:
    """One producer per topic, so that the order of the messages is known.

    The subscriptions of `groups` are made before, by gRPC: they begin with the next message.
    """

    def __init__(
        self, plan: Plan, streams: Sequence[Stream], groups: Sequence[Group], connections: int
    ) -> None:
        self._plan = plan
        self._streams = streams
        self._groups = groups
        self._connections = connections
        self._pool = pool(size=plan.size, seed=plan.seed)
        self._publishers: list[Publisher] = []
        self._stack = AsyncExitStack()
        self.checksums: dict[str, int] = {}
        """Of all payloads of each topic, in order."""

    async def __aenter__(self) -> "FillLoad":
        try:
            faces = await open_faces(self._stack, self._plan, self._connections)
            for stream, face in zip(self._streams, cycle(faces), strict=False):
                self._publishers.append(await self._stack.enter_async_context(face.publisher(stream)))
            if self._groups:
                await self._subscribe()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def run(self, recorder: Recorder) -> None:
        await asyncio.gather(
            *(
                self._fill(stream, publisher, recorder)
                for stream, publisher in zip(self._streams, self._publishers, strict=True)
            )
        )

    async def _subscribe(self) -> None:
        async with connected(self._plan.with_(protocol=Protocol.GRPC)) as face:
            for group in self._groups:
                async with face.subscriber(group, 0):
                    pass

    async def _fill(self, stream: Stream, publisher: Publisher, recorder: Recorder) -> None:
        messages = numbered(self._pool, first=0, count=stream.messages)
        checksum = 0
        while turn := list(islice(messages, self._plan.batch_messages)):
            checksum = crc32c(b"".join(turn), checksum)
            await publisher.send(turn, None, recorder)
        await publisher.drain()
        self.checksums[stream.topic] = checksum
