"""The clients must notice what they are there to notice: canaries against a real broker."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydanube.protocol import danube_pb2 as pb
from tests.fault.broker_process import BrokerProcess
from tests.fault.clients import Consumer, Habits, Producer
from tests.fault.history import End, History, Rule

HABITS = Habits(bytes_min=10, bytes_max=10)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path)
    try:
        await broker.start()
        yield broker
    finally:
        if broker.is_running:
            await broker.kill()


@pytest.fixture
def history() -> History:
    history = History()
    history.broker_started()
    return history


async def test_canary_a_broker_that_forgot_a_producer(broker: BrokerProcess, history: History) -> None:
    stranger = Producer(
        broker.address, history, history.topic("/default/t"), "stranger", habits=HABITS, dice=random.Random(1)
    )
    assert (await stranger.publish())[1] is End.FAIL
    assert [problem.rule for problem in history.problems] == [Rule.FORGOTTEN]
    await stranger.close()


async def test_canary_a_broker_that_forgot_a_consumer(broker: BrokerProcess, history: History) -> None:
    subscription = history.subscribed(history.topic("/default/t"), "s")
    kind = pb.ConsumerRequest.SubscriptionType.Shared
    stranger = Consumer(
        broker.address, history, subscription, "stranger", random.Random(1), kind=kind, ack_share=1.0
    )
    await stranger.receive_once()
    assert [problem.rule for problem in history.problems] == [Rule.FORGOTTEN]
    await stranger.close()


async def test_a_broker_that_is_gone_leaves_the_outcome_unknown(
    broker: BrokerProcess, history: History
) -> None:
    producer = Producer(
        broker.address, history, history.topic("/default/t"), "producer", habits=HABITS, dice=random.Random(1)
    )
    await producer.register()
    assert (await producer.publish())[1] is End.OK
    await broker.kill()
    assert (await producer.publish())[1] is End.UNKNOWN
    assert history.problems == []
    await producer.close()
