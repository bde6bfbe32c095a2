"""The brokers of a cluster as a client sees them: one connection each, and who serves a topic."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from pydanube.client.address import Address
from pydanube.client.connection import Connection, Dialling
from pydanube.client.retries import Patience, Retries
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames

REDIRECTS_MAX: Final = 5

Result = TypeVar("Result")


class Location(NamedTuple):
    """Who serves a topic, and its partitions in order: the topic itself if it has none, empty if it is unknown."""

    address: Address
    partitions: tuple[str, ...]


class Cluster:
    """Dials brokers when they are needed and shares the connections."""

    def __init__(self, seed: Address, dialling: Dialling, retries: Retries) -> None:
        self.seed: Final = seed
        self.retries: Final = retries
        self.timeout: Final = dialling.timeout
        self._dialling = dialling
        self._connections: dict[Address, Connection] = {}
        self._dialled: dict[Address, asyncio.Task[Connection]] = {}
        self._is_closed = False

    async def connection(self, address: Address) -> Connection:
        """The connection to a broker; made if there is none. Many callers share one attempt."""
        if self._is_closed:
            raise Rejected(f"{address}: the client is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        dialled = self._dialled.get(address)
        if dialled is None:
            dialled = asyncio.create_task(self._dial(address))
            dialled.add_done_callback(_seen)
            dialled.add_done_callback(_note_failure)
            self._dialled[address] = dialled
        try:
            return await asyncio.shield(dialled)
        except asyncio.CancelledError:
            if dialled.cancelled():  # the client was closed, not the caller cancelled
                raise Rejected(f"{address}: the client was closed") from None
            raise

    async def _dial(self, address: Address) -> Connection:
        try:
            connection = await Connection.dial(address, self._dialling)
        finally:
            del self._dialled[address]
        self._connections[address] = connection
        return connection

    async def locate(self, topic: str) -> Location:
        """Ask who serves the topic, following redirects."""
        TopicName.parse(topic)
        address = await self._who_to_ask()
        for _ in range(REDIRECTS_MAX + 1):
            connection = await self.connection(address)
            body = await connection.request(
                frames.LOOKUP,
                pb.Lookup(topic=topic).SerializeToString(),
                answer=frames.LOOKED_UP,
                what=f"looking up {topic}",
            )
            answer = pb.LookedUp.FromString(body)
            if answer.here:
                return Location(address, tuple(answer.partitions))
            address = self._as_safe(Address.parse(answer.connect_url))
        raise Unavailable(
            f"{topic} was looked for at {REDIRECTS_MAX + 1} brokers, each of which named another: try again later",
            ErrorCode.TOPIC_MOVED,
        )

    def _as_safe(self, address: Address) -> Address:
        """A client that came over TLS stays on TLS, whatever a broker says of another."""
        return Address(address.host, address.port, tls=address.tls or self.seed.tls)

    async def _who_to_ask(self) -> Address:
        """The broker the client was given, or any other connected one while that is away."""
        try:
            await self.connection(self.seed)
        except Unavailable:
            for address, connection in self._connections.items():
                if connection.is_open:
                    return address
            raise
        return self.seed

    async def with_retries(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Try until it succeeds, fails for good, or patience ends."""
        patience = Patience(self.retries)
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await attempt()
            except Unavailable:
                pause = patience.failed(loop.time())
                if pause is None or self._is_closed:
                    raise
            await asyncio.sleep(pause)

    async def close(self) -> None:
        self._is_closed = True
        for task in list(self._dialled.values()):
            task.cancel()
            with suppress(asyncio.CancelledError, DanubeError):
                await task
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()))


def _note_failure(dialled: "asyncio.Task[Connection]") -> None:
    """Whoever waits hears of it; if nobody does any more, it is not worth a warning."""
    if not dialled.cancelled():
        dialled.exception()


def _seen(dialled: "asyncio.Task[Connection]") -> None:
    """Whoever waited may be gone: a failure then concerns nobody."""
    if not dialled.cancelled():
        dialled.exception()
