"""Native consumers and readers, each with a client of its own, that write down what happens to them.

They are as patient as native producers.
"""

import random
from collections.abc import Iterable
from typing import Any, Literal

import pyarrow as pa

from pydanube import client as native
from pydanube.client import DanubeError
from tests.fault.history import (
    History,
    ReaderHistory,
    Rule,
    StreamHistory,
    SubscriptionHistory,
    TopicHistory,
)
from tests.fault.messages import GarbledError, message_in
from tests.fault.native_producers import PATIENT

WITHHELD_MAX = 200


class NativeConsumer:
    """Takes messages one by one or in batches; acknowledges some, asks for some again, withholds the others."""

    def __init__(
        self,
        address: str,
        history: History,
        subscription: SubscriptionHistory,
        name: str,
        dice: random.Random,
        *,
        kind: Literal["exclusive", "shared", "failover", "key_shared"],
        in_batches: bool,
        ack_share: float,
        nack_share: float = 0.0,
    ) -> None:
        self._history = history
        self._subscription = subscription
        self._name = name
        self._dice = dice
        self._in_batches = in_batches
        self._ack_share = ack_share
        self._nack_share = nack_share
        self._client = native.connect(address, timeout=15, retries=PATIENT)
        self._consumer = self._client.consumer(
            subscription.topic.name,
            subscription=subscription.name,
            type=kind,
            name=name,
            start="earliest",
            prefetch_messages=200,
        )
        self._channel: object = None
        self._stream: StreamHistory | None = None
        self._withheld: list[tuple[StreamHistory, list[int], Any]] = []
        self._withheld_max = WITHHELD_MAX

    async def register(self) -> None:
        await self._client.open()
        await self._consumer.open()
        self.look()

    def look(self) -> StreamHistory | None:
        """Note whether the stream is still the same: the client opens another by itself whenever one is lost."""
        feed = next(iter(self._consumer._feeds.values()))
        channel = None if feed._connection is None else (feed._connection, feed._channel)
        if channel != self._channel:
            self._channel = channel
            if self._stream is not None:
                self._history.stream_ended(self._stream)
            self._stream = None if channel is None else self._history.stream_opened(self._subscription)
        return self._stream

    async def run(self) -> None:
        """Receive until cancelled."""
        try:
            if self._in_batches:
                async for batch in self._consumer.batches():
                    await self._take_batch(batch)
            else:
                # What is at hand is taken together, so that it need not be acknowledged one by one.
                while messages := await self._consumer.inbox.receive_many(None):
                    await self._take_messages(messages)
        except DanubeError as error:
            self._history.object(Rule.UNCLEAN, f"patient consumer {self._name} heard {error!r}")

    async def acknowledge_everything(self) -> None:
        self._ack_share, self._nack_share = 1.0, 0.0
        self._withheld_max = 0
        await self._give_in()

    async def close(self) -> None:
        await self._consumer.close()
        await self._client.close()
        if self._stream is not None:
            self._history.stream_ended(self._stream)

    async def _take_messages(self, messages: list[native.Message]) -> None:
        # The client forgets what it holds when a stream ends, so what it hands out is of the current one.
        rows = [(message.offset or 0, message.payload, message.key or "") for message in messages]
        await self._take(messages, rows)

    async def _take_batch(self, batch: Any) -> None:
        columns = (batch.column(name).to_pylist() for name in ("offset", "payload", "routing_key"))
        await self._take(
            batch, [(offset, payload, key or "") for offset, payload, key in zip(*columns, strict=True)]
        )

    async def _take(self, delivered: Any, rows: list[tuple[int, bytes, str]]) -> None:
        stream = self.look()
        if stream is None:
            return
        fates = []
        for offset, payload, key in rows:
            try:
                self._history.delivered(stream, offset, message_in(payload), key)
            except GarbledError as error:
                self._history.garbled(stream, offset, str(error))
            chance = self._dice.random()
            is_ack = chance < self._ack_share
            fates.append(
                "ack" if is_ack else "nack" if chance < self._ack_share + self._nack_share else "keep"
            )
        offsets = [offset for offset, _, _ in rows]
        # Some of a batch acknowledged, some not: what ranges are for.
        await self._ack(stream, *_chosen(delivered, offsets, fates, "ack"))
        _, nacked = _chosen(delivered, offsets, fates, "nack")
        if len(nacked):
            await self._consumer.nack(nacked, delay=self._dice.choice((0.0, 0.2)), reason="again, please")
        kept, things = _chosen(delivered, offsets, fates, "keep")
        if kept:
            self._withheld.append((stream, kept, things))
        await self._give_in()

    async def _give_in(self) -> None:
        """Acknowledge the oldest of those withheld, beyond what is to be withheld."""
        while sum(len(offsets) for _, offsets, _ in self._withheld) > self._withheld_max:
            stream, offsets, things = self._withheld.pop(0)
            if stream is self.look():
                await self._ack(stream, offsets, things)

    async def _ack(self, stream: StreamHistory, offsets: list[int], things: Any) -> None:
        if not offsets:
            return
        for offset in offsets:
            self._history.ack_started(stream, offset)
        try:
            await self._consumer.ack(things, confirm=True)
        except DanubeError:
            is_confirmed = False
        else:
            is_confirmed = stream is self.look()
        for offset in offsets:
            if is_confirmed:
                self._history.ack_confirmed(stream, offset)
            else:
                self._history.ack_lost(stream, offset)


def _chosen(delivered: Any, offsets: list[int], fates: list[str], fate: str) -> tuple[list[int], Any]:
    """Those with the fate: their offsets, and themselves as `ack` and `nack` take them."""
    chosen = [offset for offset, its_fate in zip(offsets, fates, strict=True) if its_fate == fate]
    if isinstance(delivered, list):
        return chosen, [thing for thing, its_fate in zip(delivered, fates, strict=True) if its_fate == fate]
    return chosen, delivered.filter(pa.array([its_fate == fate for its_fate in fates]))


class NativeReader:
    """Reads a topic from its first message on, without a subscription."""

    def __init__(
        self, address: str, history: History, topic: TopicHistory, name: str, *, in_batches: bool
    ) -> None:
        self._history = history
        self._in_batches = in_batches
        self._client = native.connect(address, timeout=15, retries=PATIENT)
        self.seen: ReaderHistory = history.reader_opened(topic, name)

    async def run(self) -> None:
        """Follow the topic until cancelled."""
        await self._read(None)

    async def read_all(self) -> None:
        """Read up to where the topic ends now."""
        await self._read("latest")

    async def close(self) -> None:
        await self._client.close()

    async def _read(self, end: Literal["latest"] | None) -> None:
        try:
            await self._client.open()
            async with self._client.reader(self.seen.topic.name, end=end, prefetch_messages=500) as reader:
                if self._in_batches:
                    async for batch in reader.batches():
                        columns = (
                            batch.column(name).to_pylist() for name in ("offset", "payload", "routing_key")
                        )
                        self._note(zip(*columns, strict=True))
                else:
                    async for message in reader:
                        self._note([(message.offset, message.payload, message.key)])
        except DanubeError as error:
            self._history.object(Rule.UNCLEAN, f"patient {self.seen} heard {error!r}")

    def _note(self, rows: Iterable[tuple[Any, bytes, str | None]]) -> None:
        for offset, payload, key in rows:
            try:
                self._history.read(self.seen, offset, message_in(payload), key or "")
            except GarbledError as error:
                self._history.object(Rule.GARBLED, f"{self.seen} offset {offset}: {error}")
