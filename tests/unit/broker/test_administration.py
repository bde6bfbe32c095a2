"""Administration while the metadata store fails: what could not be stored did not happen."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydanube.broker.administration import Administration
from pydanube.broker.broker import Broker
from pydanube.broker.settings import BrokerSettings
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import BackoffStrategy, DispatchStrategy, FailurePolicy, SubscriptionType
from pydanube.log import Journal
from pydanube.metadata import MemoryStore
from pydanube.metadata.commands import Command, Outcome
from pydanube.schemas.registry import SchemaRegistry

NAME = TopicName("shop", "orders")
FIXED = FailurePolicy(backoff_strategy=BackoffStrategy.FIXED)


class Clock:
    def now_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1


class Dice:
    def __init__(self) -> None:
        self._last = 0

    def new_id(self) -> int:
        self._last += 1
        return self._last


class FailingStore(MemoryStore):
    is_down = False

    async def _execute(self, command: Command) -> Outcome:
        if self.is_down:
            raise Unavailable("the store is down", ErrorCode.STORE_FAILED)
        return await super()._execute(command)


@dataclass
class Stage:
    store: FailingStore
    broker: Broker
    operator: Administration

    async def reject(self, change: Awaitable[object]) -> None:
        """The change must fail for the store's sake."""
        self.store.is_down = True
        with pytest.raises(DanubeError) as caught:
            await change
        self.store.is_down = False
        assert caught.value.code is ErrorCode.STORE_FAILED


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = Clock()
    store = FailingStore(clock)
    journal = await Journal.open(Path("/data/journal"), metadata=store, clock=clock, disk=MemoryDisk())
    broker = Broker(
        settings=BrokerSettings(),
        store=store,
        journal=journal,
        clock=clock,
        dice=Dice(),
        registry=SchemaRegistry(store, clock),
    )
    await broker.start()
    operator = Administration.of(broker, store, clock)
    await operator.namespaces.create("shop")
    await operator.topics.create(NAME, DispatchStrategy.RELIABLE)
    await broker.subscribe(
        topic_name=str(NAME), subscription_name="s", consumer_name="c", kind=SubscriptionType.SHARED
    )
    yield Stage(store, broker, operator)
    await operator.topics.stop()
    await journal.close()


async def test_a_topic_that_could_not_be_deleted_is_served_on(stage: Stage) -> None:
    topic = stage.operator.topics.get(NAME)
    await stage.reject(stage.operator.topics.delete(NAME))
    assert stage.operator.topics.get(NAME) is topic
    topic.admit(1, 1, 1)
    await stage.broker.create_producer(
        topic_name=str(NAME), producer_name="p", dispatch=DispatchStrategy.RELIABLE
    )
    await stage.operator.topics.delete(NAME)
    assert len(stage.broker.topics) == 0


async def test_a_namespace_that_could_not_be_deleted_still_takes_topics(stage: Stage) -> None:
    await stage.operator.namespaces.create("empty")
    await stage.reject(stage.operator.namespaces.delete("empty"))
    await stage.operator.topics.create(TopicName("empty", "t"), DispatchStrategy.RELIABLE)


async def test_a_namespace_that_could_not_be_made_takes_none(stage: Stage) -> None:
    await stage.reject(stage.operator.namespaces.create("new"))
    assert stage.operator.namespaces.names() == ["default", "shop", "system"]


async def test_settings_that_could_not_be_stored_are_not_applied(stage: Stage) -> None:
    operator, topic = stage.operator, stage.operator.topics.get(NAME)
    before = topic.policies
    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: operator.namespaces.set_policies("shop", {"max_message_size": 1}),
        lambda: operator.topics.set_policies(NAME, {"max_message_size": 1}),
        lambda: operator.topics.inherit_policies(NAME),
        lambda: operator.subscriptions.set_failure_policy(NAME, "s", FIXED),
        lambda: operator.subscriptions.set_window(NAME, "s", 7),
        lambda: operator.subscriptions.unsubscribe(topic, "s"),
    ]
    stage.broker.remove_consumer(topic.subscriptions["s"].consumers["c"])
    for change in changes:
        await stage.reject(change())
    assert topic.policies == before
    assert not topic.has_own_policies
    assert await operator.subscriptions.failure_policy(NAME, "s") == FailurePolicy()
    assert await operator.subscriptions.window(NAME, "s") is None
    assert list(topic.subscriptions) == ["s"]
