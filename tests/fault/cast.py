"""Who plays: three topics, their producers, and subscriptions of all four kinds."""

import asyncio
import random
from dataclasses import dataclass

from pydanube.protocol import danube_pb2 as pb
from tests.fault.clients import Consumer, Habits, Producer
from tests.fault.history import End, History, Order, SubscriptionHistory, TopicHistory
from tests.fault.messages import Message

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


PARTS = (
    Part(
        "/default/fault-small",
        Habits(bytes_min=10, bytes_max=1_000, in_flight=4, think_seconds=0.1, deadline_seconds=2.0),
        "shared", _KIND.Shared, Order.NONE, 0.9, 0.02,
    ),
    Part(
        "/default/fault-keyed",
        Habits(bytes_min=10, bytes_max=4_000, keys=KEYS, think_seconds=0.03),
        # One message without an answer would hold its key back: here every one gets an answer.
        "key-shared", _KIND.KeyShared, Order.KEY, 0.98, 0.02,
    ),
    Part(
        "/default/fault-large-part-0",
        Habits(bytes_min=10, bytes_max=200_000, in_flight=2, think_seconds=0.1),
        "failover", _KIND.Failover, Order.LOG, 0.95,
    ),
)  # fmt: skip


class Cast:
    """All clients of one chapter."""

    def __init__(self, address: str, history: History, dice: random.Random, *, producers: int) -> None:
        self._address = address
        self._history = history
        self._dice = dice
        self._tasks: list[asyncio.Task[None]] = []
        self._newcomers = 0
        self.topics: list[TopicHistory] = [history.topic(part.topic) for part in PARTS]
        self.producers = [
            self._producer(number % len(PARTS), f"producer-{number}")
            for number in range(max(producers, len(PARTS)))
        ]
        self.auditors: list[Consumer] = []
        self.consumers: list[Consumer] = []
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
        self._tasks += [asyncio.create_task(client.run()) for client in (*self.producers, *self.consumers)]

    async def end_publishing(self) -> None:
        """Let what is on its way come to an end."""
        for producer in self.producers:
            producer.stop()
        running = self._tasks[: len(self.producers)]
        await asyncio.gather(*running)

    def begin_audit(self) -> None:
        """The auditors, who have not looked at anything so far, read everything."""
        self._tasks += [asyncio.create_task(auditor.run()) for auditor in self.auditors]

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
        for client in (*self.producers, *self.fencers, *self.consumers, *self.auditors):
            await client.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    def counts(self) -> dict[str, int]:
        """How many publishes ended how, and how many deliveries' offsets are known."""
        attempts = [attempt for topic in self.topics for attempt in topic.attempts.values()]
        found = {end.value: sum(attempt.end is end for attempt in attempts) for end in End}
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
