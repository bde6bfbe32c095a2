"""A reliable topic over a journal in memory: what its subscriptions keep from retention, and from memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydanube.broker.agenda import Agenda
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.facts import ConsumerFacts, ProducerFacts, StoredSubscription, StoredTopic, TopicFacts
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.sessions import Outlet, Producer
from pydanube.broker.topic import Topic
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import DispatchStrategy, Policies, Retention, SubscriptionType
from pydanube.log import Journal
from pydanube.metadata import MemoryStore

NAME = TopicName("default", "orders")
UNTIL_CONSUMED = Retention(until_consumed=True)


class StillClock:
    def now_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1


class Dice:
    def new_id(self) -> int:
        return 1


class Bucket(Outlet):
    """A stream that takes `space` messages and keeps them."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.messages: list[bytes] = []

    def room(self) -> int:
        return self.space - len(self.messages)

    def room_bytes(self) -> int:
        return 1 << 40

    def send(self, base: int, append_ms: int, skip: int, count: int, attempt: int, body: bytes) -> None:  # noqa: PLR0917
        self.messages.append(body)

    def seeked(self, next_offset: int) -> bool:
        return True

    def end(self, error: DanubeError | None = None) -> None:
        pass


class Stage:
    def __init__(self, journal: Journal, topic: ReliableTopic, agenda: Agenda) -> None:
        self.journal = journal
        self.topic = topic
        self._agenda = agenda

    async def publish(self, count: int) -> None:
        producer = Producer(ProducerFacts(id=1, name="p"), self.topic, 0)
        safe = asyncio.Event()
        for left in range(count, 0, -1):
            self.topic.publish(
                b"\x08\x01",
                1,
                producer,
                0,
                False,
                1,
                lambda error, left=left: safe.set() if left == 1 else None,
            )
        await safe.wait()
        self._agenda.run()

    def subscribe(self, outlet: Bucket) -> DurableSubscription:
        subscription = self.topic.new_subscription("s", SubscriptionType.EXCLUSIVE, StoredSubscription())
        assert isinstance(subscription, DurableSubscription)
        consumer = subscription.register(ConsumerFacts(id=7, name="c"), 1)
        subscription.attach(consumer, outlet, 1)
        return subscription

    def ack(self, subscription: DurableSubscription, *offsets: int) -> None:
        for offset in offsets:
            subscription.ack(offset, offset)
        self._agenda.run()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock, agenda = StillClock(), Agenda()
    journal = await Journal.open(
        Path("/data/journal"), metadata=MemoryStore(clock), clock=clock, disk=MemoryDisk()
    )

    async def no_topic(name: str) -> Topic:
        raise AssertionError(f"nothing is dead-lettered here: {name}")

    stored = StoredTopic(name=NAME, facts=TopicFacts(id=1, dispatch=DispatchStrategy.RELIABLE, created_ms=1))
    topic = ReliableTopic(
        stored,
        Policies(),
        topic_log=await journal.open_topic(1, NAME),
        max_unacked_messages=10,
        agenda=agenda,
        clock=clock,
        dead_letters=DeadLetters(no_topic, clock, Dice()),
    )
    await journal.forget_unopened()
    yield Stage(journal, topic, agenda)
    topic.close()
    await journal.close()


async def test_a_segment_goes_with_the_ack_of_its_last_message(stage: Stage) -> None:
    subscription = stage.subscribe(Bucket(100))
    await stage.publish(3)
    await stage.journal.stage_now()
    stage.ack(subscription, 0, 1)
    await stage.topic.apply_retention(UNTIL_CONSUMED, 1)
    assert stage.topic.log.start_offset == 0, "offset 2 is still awaited"
    stage.ack(subscription, 2)
    await stage.topic.apply_retention(UNTIL_CONSUMED, 1)
    assert stage.topic.log.start_offset == 3


async def test_what_nobody_can_be_sent_is_left_in_the_log(stage: Stage) -> None:
    outlet = Bucket(0)
    subscription = stage.subscribe(outlet)
    await stage.publish(5)
    assert subscription.machine.messages_held == 0
    outlet.space = 5
    session = subscription.consumers["c"].session
    assert session is not None
    subscription.drained(session)
    stage.ack(subscription)
    assert len(outlet.messages) == 5
