"""What a producer and a consumer of one concrete topic have in common: a broker, an id, a ping."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

from pydanube.client.grpc.client import Client
from pydanube.client.grpc.errors import CallFailed
from pydanube.protocol import danube_pb2 as pb

PING_SECONDS: Final = 5.0


class Session(ABC):
    """A registration with the broker that serves the topic, renewed when the broker lets it go."""

    kind: pb.HealthCheckRequest.ClientType

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.endpoint = client.seed
        self.id = 0
        self.is_stale = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self.register()
        self.spawn(self._ping())

    async def register(self) -> None:
        """Look the topic up and register; tried again while the topic is on its way to some broker."""

        async def attempt() -> int:
            self.endpoint = await self.client.lookup(self.topic, self.endpoint)
            return await self._register()

        self.id = await self.client.retries.run(attempt)
        self.is_stale = False

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run in the background until the session is closed."""
        self._tasks.append(asyncio.create_task(work))

    @abstractmethod
    async def _register(self) -> int:
        """Ask the endpoint for an id."""

    async def _ping(self) -> None:
        """Tell the broker we are alive; an unreachable broker is no reason to stop."""
        while True:
            endpoint, own_id = self.endpoint, self.id
            request = pb.HealthCheckRequest(client=self.kind, id=own_id)
            with suppress(CallFailed):
                answer = await self.client.call(
                    endpoint, "/danube.HealthCheck/HealthCheck", request, pb.HealthCheckResponse
                )
                # The session may have been renewed while the answer was under way.
                if answer.status == pb.HealthCheckResponse.CLOSE and own_id == self.id:
                    self.is_stale = True
            await asyncio.sleep(PING_SECONDS)
