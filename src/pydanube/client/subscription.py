"""A consumer's part of one topic: its channel of the subscription, and its acks."""

import asyncio
from typing import Final

from pydanube.client.ack_ranges import AckRanges
from pydanube.client.cluster import Cluster
from pydanube.client.connection import Connection
from pydanube.client.credit import Credit
from pydanube.client.errors import Disconnected
from pydanube.client.feed import Opening, TopicFeed
from pydanube.client.inbox import Inbox
from pydanube.client.position import Position
from pydanube.kernel.errors import Conflict, ErrorCode, OutcomeUnknown
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import RANGES_MAX, Item, encode_ranges
from pydanube.protocol.native.frames import Frame

REASON_CHARACTERS_MAX: Final = 1000
DELAY_MS_MAX: Final = 0xFFFF_FFFF
ACKS_HELD_SECONDS_MAX: Final = 0.005
"""How long acks wait for others to leave with them: a frame for each batch would cost as much as reading it."""


class SubscribedTopic(TopicFeed):
    """Acks collect until the application waits for more messages, or for a moment, and leave as ranges."""

    def __init__(
        self, cluster: Cluster, request: pb.Subscribe, topic: str, inbox: Inbox, credit: Credit
    ) -> None:
        super().__init__(cluster, topic, inbox, credit)
        self._request = pb.Subscribe()
        self._request.CopyFrom(request)
        self._request.topic = topic
        self._acks = AckRanges()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._is_unconfirmed = False
        """Acks were sent without asking for an answer."""
        self.is_reliable = True

    def ack(self, first: int, last: int, generation: int) -> None:
        """Note that these offsets are done with; those delivered before a seek no longer count."""
        if generation != self.generation:
            return
        acks = self._acks
        if first == acks.last + 1:  # the way of most
            acks.last = last
            return
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACKS_HELD_SECONDS_MAX, self.send_acks)
        acks.add(first, last)

    def send_acks(self) -> None:
        """Send what was noted so far."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        ranges = self._acks.take()
        self._is_unconfirmed = self._is_unconfirmed or bool(ranges)
        # Without a connection they are void: the messages will come again.
        if self._connection is not None:
            for start in range(0, len(ranges), RANGES_MAX):
                body = encode_ranges(ranges[start : start + RANGES_MAX])
                self._connection.send(frames.ACK, self._channel, 0, body)

    async def confirm(self) -> None:
        """Send the acks noted so far and wait until the broker has them.

        Raises:
            OutcomeUnknown: they are lost, or only their answer; the messages may come again.
        """
        ranges = self._acks.take()
        if not ranges and not self._is_unconfirmed:
            return
        self._is_unconfirmed = False
        # One without ranges confirms those sent before: a channel's frames are read in order.
        for start in range(0, max(1, len(ranges)), RANGES_MAX):
            body = encode_ranges(ranges[start : start + RANGES_MAX])
            if self._connection is None:
                raise OutcomeUnknown(
                    f"{self.topic}: the connection was lost: what was not acknowledged comes again"
                )
            await self._ask(self._connection, frames.ACK, body, frames.ACKED, "acknowledging")

    def nack(
        self, ranges: list[tuple[int, int]], generation: int, *, delay_ms: int, reason: str | None
    ) -> None:
        if generation != self.generation or self._connection is None:
            return
        for start in range(0, len(ranges), RANGES_MAX):
            nack = pb.Nack(
                ranges=[
                    pb.Range(first=first, last=last) for first, last in ranges[start : start + RANGES_MAX]
                ],
                delay_ms=delay_ms,
                reason=reason,
            )
            self._connection.send(frames.NACK, self._channel, 0, nack.SerializeToString())

    async def seek(self, position: Position) -> None:
        """Move the subscription; what was delivered before is dropped when the broker says so."""
        self.send_acks()
        body = pb.Seek(position=position.encode()).SerializeToString()
        await self._ask(await self.connected(), frames.SEEK, body, frames.SEEKED, "seeking")

    async def _ask(self, connection: Connection, kind: int, body: bytes, answer: int, what: str) -> None:
        try:
            await connection.request(
                kind, body, channel=self._channel, answer=answer, what=f"{what} on {self.topic}"
            )
        except Disconnected as error:
            raise OutcomeUnknown(f"{self.topic}: {what} was not answered: {error}") from error

    def frame_received(self, frame: Frame) -> None:
        if frame.kind == frames.SEEKED:
            # Somebody moved the subscription. If it was us, this comes before the answer.
            self.generation += 1
            self._acks.clear()
            self._forget()
        else:
            super().frame_received(frame)

    def _opening(self) -> Opening:
        return Opening(frames.SUBSCRIBE, self._request.SerializeToString(), frames.SUBSCRIBED)

    def _opened(self, body: bytes) -> None:
        self.is_reliable = pb.Subscribed.FromString(body).dispatch == pb.RELIABLE

    def _received(self, items: list[Item]) -> list[Item]:
        """Messages that come are a sign that things go well."""
        self._patience.succeeded()
        return items

    def _channel_lost(self) -> None:
        self._acks.clear()
        self._forget()

    def _closed_by_broker(self) -> None:
        # Subscribing again would only take the subscription back, and so on for ever.
        self.lost(
            Conflict(
                f"{self.topic}: another consumer named {self._request.consumer} took over subscription "
                f"{self._request.subscription}: give each consumer a name of its own",
                ErrorCode.CONSUMER_EXCLUSIVE,
            )
        )

    def _forget(self) -> None:
        """Drop what the application has not taken: it comes again, or is not wanted."""
        messages, size = self._inbox.drop(self)
        self._grant(self._credit.taken(messages, size))

    async def close(self) -> None:
        self.send_acks()
        await super().close()
