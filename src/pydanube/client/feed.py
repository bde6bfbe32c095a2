"""Receiving from one topic or partition: a channel that is opened again whenever it is lost."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar, Final, NamedTuple

from pydanube.client.cluster import Cluster
from pydanube.client.connection import Connection
from pydanube.client.credit import Credit
from pydanube.client.errors import TAKEOVER_CODES, Disconnected, Refused, Timeout
from pydanube.client.inbox import Inbox
from pydanube.client.retries import Patience
from pydanube.kernel.errors import DanubeError, Rejected, Unavailable
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import Item, encode_credit
from pydanube.protocol.native.frames import Frame

CLOSE_SECONDS_MAX: Final = 2.0


class Opening(NamedTuple):
    """How a feed opens its channel."""

    kind: int
    body: bytes
    answer: int


class TopicFeed(ABC):
    """The lane of a consumer or reader that comes from one topic."""

    comes_to_an_end: ClassVar[bool] = False
    """Whether CLOSED says that everything has come; it may follow the opening at once when there is nothing."""

    def __init__(self, cluster: Cluster, topic: str, inbox: Inbox, credit: Credit) -> None:
        self.topic: Final = topic
        self.generation = 0
        """Grows with every seek: what was delivered before it is forgotten."""
        self._cluster = cluster
        self._inbox = inbox
        self._credit = credit
        self._loop = asyncio.get_running_loop()
        self._patience = Patience(cluster.retries)
        self._connection: Connection | None = None
        self._channel = 0
        self._opened_at = 0.0
        self._ended_early: DanubeError | None = None
        self._closed_at_once = False
        self._recovery: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_over = False
        """Closed, or at its end: it need not be opened again."""

    @abstractmethod
    def _opening(self) -> Opening:
        """What to ask for, the first time and after each loss."""

    @abstractmethod
    def _opened(self, body: bytes) -> None:
        """The broker agreed."""

    @abstractmethod
    def _received(self, items: list[Item]) -> list[Item]:
        """Take note of what has come; return what goes to the inbox."""

    @abstractmethod
    def _channel_lost(self) -> None:
        """Forget what will come again."""

    @abstractmethod
    def _closed_by_broker(self) -> None:
        """CLOSED came unasked."""

    async def open(self) -> None:
        await self._cluster.with_retries(self._open_channel)

    def revive(self) -> None:
        """After a failure the application has heard of: try again from the beginning."""
        if self._connection is None and not self._is_over:
            self._patience.succeeded()
            self._recover(Disconnected(f"{self.topic}: not connected"))

    async def connected(self) -> Connection:
        """The connection, as soon as there is one again.

        Raises:
            Timeout: there was none within the client's timeout.
        """
        if self._connection is None:
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(self._cluster.timeout):
                    await waiter
            except TimeoutError as error:
                raise Timeout(f"{self.topic}: no connection within {self._cluster.timeout:g} s") from error
        if self._connection is None:
            raise Disconnected(f"{self.topic}: the connection was lost again")
        return self._connection

    def taken(self, messages: int, size: int) -> None:
        """The application has so much of what was delivered."""
        self._grant(self._credit.taken(messages, size))

    def ack(self, first: int, last: int, generation: int) -> None:
        """Offsets delivered in that generation are done with."""
        raise Rejected(f"{self.topic}: offsets {first} to {last} were read, not consumed: they need no ack")

    def _grant(self, grant: tuple[int, int] | None) -> None:
        if grant is not None and self._connection is not None:
            self._connection.send(frames.CREDIT, self._channel, 0, encode_credit(*grant))

    # What the connection calls

    def items_received(self, items: list[Item]) -> None:
        self._credit.delivered(
            sum([item.messages for item in items]), sum([len(item.body) for item in items])
        )
        self._inbox.put(self, self._received(items))

    def frame_received(self, frame: Frame) -> None:
        if frame.kind == frames.CLOSED and self._connection is not None:
            self._let_go()
            self._closed_by_broker()
        elif frame.kind == frames.ERROR and frame.request == 0:
            self._ended(Refused.decode(frame.body, self.topic).error)
        elif frame.kind == frames.CLOSED:
            self._closed_at_once = True
            self._ended(Disconnected(f"{self.topic}: the broker closed the channel at once"))

    def connection_lost(self, error: DanubeError) -> None:
        if self._connection is not None:
            self._connection = None
            self.lost(error)

    def _ended(self, error: DanubeError) -> None:
        """The broker ended the channel, perhaps before we noticed that it had opened it."""
        if self._connection is None:
            self._ended_early = error
        else:
            self._let_go()
            self.lost(error)

    def writable(self) -> None:  # noqa: B027
        """Nothing here waits to publish."""

    def lost(self, error: DanubeError) -> None:
        """The channel is gone: open another, or tell the application why not."""
        if self._is_over:
            return
        self._channel_lost()
        if self._loop.time() - self._opened_at > self._cluster.retries.backoff_max:
            self._patience.succeeded()
        if isinstance(error, Unavailable):
            self._recover(error)
        else:
            self._inbox.fail(self, error)

    def _recover(self, reason: DanubeError) -> None:
        if self._recovery is None:
            self._recovery = self._loop.create_task(self._try_again(reason))

    async def _try_again(self, reason: DanubeError) -> None:
        try:
            while True:
                pause = self._patience.failed(self._loop.time())
                if pause is None:
                    break
                await asyncio.sleep(pause)
                try:
                    await self._open_channel()
                    return
                except DanubeError as error:
                    reason = error
                    if not (isinstance(error, Unavailable) or error.code in TAKEOVER_CODES):
                        break
        finally:
            self._recovery = None
        self._inbox.fail(self, reason)

    async def _open_channel(self) -> None:
        location = await self._cluster.locate(self.topic)
        connection = await self._cluster.connection(location.address)
        channel, body = await self._ask_for_channel(connection)
        if self._closed_at_once and self.comes_to_an_end:
            connection.detach(channel)
            self._closed_by_broker()
            return
        if self._ended_early is not None or not connection.is_open:
            connection.detach(channel)
            raise self._ended_early or Disconnected(f"{self.topic}: the connection was lost at once")
        self._connection, self._channel = connection, channel
        self._opened_at = self._loop.time()
        self._opened(body)
        messages, size = self._credit.opened()
        if messages:
            self._grant((messages, size))
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _ask_for_channel(self, connection: Connection) -> tuple[int, bytes]:
        """The channel's number and what the broker said to it."""
        # Apart from `_open_channel`, which reads these again: within one function mypy, and with it the compiler, takes an
        # attribute to stay None that only others set while it awaits.
        opening = self._opening()
        self._ended_early = None
        self._closed_at_once = False
        return await connection.open_channel(
            self, opening.kind, opening.body, answer=opening.answer, what=f"opening {self.topic}"
        )

    def _let_go(self) -> None:
        """The broker has ended the channel."""
        if self._connection is not None:
            self._connection.detach(self._channel)
            self._connection = None

    # Ending

    async def close(self) -> None:
        self._is_over = True
        if self._recovery is not None:
            self._recovery.cancel()
            with suppress(asyncio.CancelledError):
                await self._recovery
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.detach(self._channel)
        with suppress(DanubeError):
            await connection.request(
                frames.CLOSE,
                b"",
                channel=self._channel,
                answer=frames.CLOSED,
                what=f"closing {self.topic}",
                timeout=CLOSE_SECONDS_MAX,
            )
