"""Who plays: three topics, their gRPC and native producers, subscriptions of all four kinds, readers."""

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Literal

from pydanube.client import Batching
from pydanube.protocol import danube_pb2 as pb
from tests.fault.clients import Consumer, Habits, Producer
from tests.fault.history import End, History, Order, SubscriptionHistory, TopicHistory
from tests.fault.messages import Message
from tests.fault.native_consumers import NativeConsumer, NativeReader
from tests.fault.native_producers import NativeHabits, NativeProducer

_KIND = pb.ConsumerRequest.SubscriptionType
KEYS = 16


@dataclass(frozen=True, slots=True)
class Part:
    """A topic and the second subscription on it; the first is always an exclusive one that acks everything."""

    topic: str
    habits: Habits
    name: str
    kind: int
    order: Order
    ack_share: float
    nack_share: float = 0.0
    native: tuple[NativeHabits, ...] = ()
    """What its native producers do."""
    native_type: Literal["shared", "failover", "key_shared"] = "shared"
    """The type as a native consumer says it, which joins the second subscription where its order allows."""


BEHIND_MAX = 300
"""How far the slowest subscription may be behind before native producers wait for it: a message that lies in a busy
client for longer than the 30 s of an ack deadline comes again, and its ack is too late to count."""

WATCH_SECONDS = 0.01
"""How often native consumers are asked whether their stream is still the same one."""

PARTS = (
    Part(
        "/default/fault-small",
        Habits(bytes_min=10, bytes_max=1_000, in_flight=4, think_seconds=0.1, deadline_seconds=2.0),
        "shared", _KIND.Shared, Order.NONE, 0.9, 0.02,
        native=(
            NativeHabits(burst=40, batching=Batching(linger_ms=2)),
            NativeHabits(burst=1, think_seconds=0.06, batching=Batching(linger_ms=0), timeout_seconds=1.0),
        ),
    ),
    Part(
        "/default/fault-keyed",
        Habits(bytes_min=10, bytes_max=4_000, keys=KEYS, think_seconds=0.03),
        # One message without an answer would hold its key back: here every one gets an answer.
        "key-shared", _KIND.KeyShared, Order.KEY, 0.98, 0.02,
        native=(
            NativeHabits(keys=KEYS, burst=30, batching=Batching(linger_ms=5, compression="lz4")),
            NativeHabits(keys=KEYS, burst=6, think_seconds=0.2, batching=Batching(linger_ms=0)),
        ),
        native_type="key_shared",
    ),
    Part(
        "/default/fault-large-part-0",
        Habits(bytes_min=10, bytes_max=200_000, in_flight=2, think_seconds=0.1),
        "failover", _KIND.Failover, Order.LOG, 0.95,
        native=(
            NativeHabits(bytes_max=100_000, burst=20, think_seconds=1.0, batching=Batching(compression="zstd")),
            NativeHabits(burst=60, think_seconds=1.5, batching=Batching(linger_ms=1, max_messages=30)),
        ),
        native_type="failover",
    ),
)  # fmt: skip


class Cast:
    """All clients of one chapter."""

    def __init__(self, address: str, history: History, dice: random.Random, *, producers: int) -> None:
        self._address = address
        self.native_address = address
        """Where native clients dial: there may be trouble on the way."""
        self._history = history
        self._dice = dice
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing: list[asyncio.Task[None]] = []
        self._newcomers = 0
        self._keeps_up = asyncio.Event()
        self.topics: list[TopicHistory] = [history.topic(part.topic) for part in PARTS]
        self.producers = [
            self._producer(number % len(PARTS), f"producer-{number}")
            for number in range(max(producers, len(PARTS)))
        ]
        self.auditors: list[Consumer] = []
        self.consumers: list[Consumer | NativeConsumer] = []
        self.native_producers: list[NativeProducer] = []
        self.native_consumers: list[NativeConsumer] = []
        self.readers: list[NativeReader] = []
        self.reading_again: list[NativeReader] = []
        self.audits: list[SubscriptionHistory] = []
        self.fencers = [self._producer(number, f"fence-{number}") for number in range(len(PARTS))]

    async def begin(self) -> None:
        """Register everybody before the first message, so that every subscription is owed everything."""
        for producer in (*self.producers, *self.fencers):
            await producer.register()
        for part, topic in zip(PARTS, self.topics, strict=True):
            await self._subscribe(
                topic, "auditor", _KIND.Exclusive, Order.LOG, count=1, ack_share=1.0, audit=True
            )
            await self._subscribe(topic, "exclusive", _KIND.Exclusive, Order.LOG, count=1, ack_share=1.0)
            await self._subscribe(
                topic,
                part.name,
                part.kind,
                part.order,
                count=2,
                ack_share=part.ack_share,
                nack_share=part.nack_share,
            )
            await self._join_natively(part, topic)
        self.native_producers = [
            NativeProducer(
                self.native_address,
                self._history,
                topic,
                f"native-{number}",
                habits=habits,
                dice=random.Random(self._dice.random()),
                may_send=self._keeps_up,
            )
            for part, topic in zip(PARTS, self.topics, strict=True)
            for number, habits in enumerate(part.native)
        ]
        self.readers = [
            NativeReader(self.native_address, self._history, topic, "follower", in_batches=number % 2 == 0)
            for number, topic in enumerate(self.topics)
        ]
        publishing: list[Producer | NativeProducer] = [*self.producers, *self.native_producers]
        self._publishing = [asyncio.create_task(client.run()) for client in publishing]
        self._tasks += self._publishing
        self._tasks += [asyncio.create_task(client.run()) for client in (*self.consumers, *self.readers)]
        self._tasks.append(asyncio.create_task(self._watch()))

    async def _watch(self) -> None:
        while True:
            for consumer in self.native_consumers:
                consumer.look()
            working = [s for s in self._history.subscriptions if s not in self.audits]
            if max(s.topic.highest - s.highest for s in working) > BEHIND_MAX:
                self._keeps_up.clear()
            else:
                self._keeps_up.set()
            await asyncio.sleep(WATCH_SECONDS)

    async def _join_natively(self, part: Part, topic: TopicHistory) -> None:
        """Native consumers: one alone, one with the gRPC consumers of the second subscription, two and one that share."""
        alone = self._history.subscribed(topic, "native-exclusive", Order.LOG)
        await self._add_native(alone, "alone", "exclusive", in_batches=False, ack_share=1.0)
        second = next(s for s in self._history.subscriptions if (s.topic, s.name) == (topic, part.name))
        if part.order is not Order.NONE:
            nack_share = part.nack_share
            await self._add_native(
                second,
                "native",
                part.native_type,
                in_batches=True,
                ack_share=part.ack_share,
                nack_share=nack_share,
            )
        await self._subscribe(topic, "native-shared", _KIND.Shared, Order.NONE, count=1, ack_share=1.0)
        shared = self._history.subscriptions[-1]
        shared.begins_lowest = False
        for number, in_batches in enumerate((True, False)):
            await self._add_native(
                shared, f"native-{number}", "shared", in_batches=in_batches, ack_share=0.85, nack_share=0.05
            )

    async def _add_native(
        self,
        subscription: SubscriptionHistory,
        name: str,
        kind: Literal["exclusive", "shared", "failover", "key_shared"],
        *,
        in_batches: bool,
        ack_share: float,
        nack_share: float = 0.0,
    ) -> None:
        consumer = NativeConsumer(
            self.native_address,
            self._history,
            subscription,
            name,
            random.Random(self._dice.random()),
            kind=kind,
            in_batches=in_batches,
            ack_share=ack_share,
            nack_share=nack_share,
        )
        await consumer.register()
        self.native_consumers.append(consumer)
        self.consumers.append(consumer)

    async def end_publishing(self) -> None:
        """Let what is on its way come to an end."""
        for producer in (*self.producers, *self.native_producers):
            producer.stop()
        await asyncio.gather(*self._publishing)

    def begin_audit(self) -> None:
        """The auditors, who have not looked at anything so far, read everything; so do new readers."""
        self.reading_again = [
            NativeReader(self.native_address, self._history, topic, "auditor", in_batches=number % 2 == 1)
            for number, topic in enumerate(self.topics)
        ]
        self._tasks += [asyncio.create_task(auditor.run()) for auditor in self.auditors]
        self._tasks += [asyncio.create_task(reader.read_all()) for reader in self.reading_again]

    async def fence(self) -> list[Message]:
        """Publish behind everything: one message per topic, and per key where there are keys.

        Whoever has got the last one has got, in the order of the log or of its key, all before.
        """
        fences = []
        for part, fencer in zip(PARTS, self.fencers, strict=True):
            for key in range(part.habits.keys):
                await fencer.publish_surely(key=f"key-{key}")
            fences.append(await fencer.publish_surely(key="key-0" if part.habits.keys else ""))
        return fences

    async def newcomer(self) -> Producer | None:
        """A producer that registers just now; None if the broker did not answer."""
        self._newcomers += 1
        number = self._dice.randrange(len(PARTS))
        producer = self._producer(number, f"newcomer-{self._newcomers}")
        try:
            await producer.register()
        except Exception:
            await producer.close()
            return None
        return producer

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        closing: list[Awaitable[None]] = [
            client.close() for client in (*self.producers, *self.fencers, *self.consumers)
        ]
        closing += [client.close() for client in (*self.auditors, *self.readers, *self.reading_again)]
        await asyncio.gather(*closing)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def counts(self) -> dict[str, int]:
        """How many publishes ended how, and how many deliveries' offsets are known."""
        attempts = [attempt for topic in self.topics for attempt in topic.attempts.values()]
        found = {end.value: sum(attempt.end is end for attempt in attempts) for end in End}
        found["sessions shut out"] = sum(producer.fenced for producer in self.native_producers)
        found["offsets"] = sum(len(topic.log) for topic in self.topics)
        return found

    def _producer(self, number: int, name: str) -> Producer:
        dice = random.Random(self._dice.random())
        return Producer(
            self._address, self._history, self.topics[number], name, habits=PARTS[number].habits, dice=dice
        )

    async def _subscribe(
        self,
        topic: TopicHistory,
        name: str,
        kind: int,
        order: Order,
        *,
        count: int,
        ack_share: float,
        nack_share: float = 0.0,
        audit: bool = False,
    ) -> None:
        subscription = self._history.subscribed(topic, name, order)
        for number in range(count):
            consumer = Consumer(
                self._address,
                self._history,
                subscription,
                f"{name}-{number}",
                random.Random(self._dice.random()),
                kind=kind,
                ack_share=ack_share,
                nack_share=nack_share,
            )
            await consumer.register()
            (self.auditors if audit else self.consumers).append(consumer)
        if audit:
            self.audits.append(subscription)
