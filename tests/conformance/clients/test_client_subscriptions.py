"""Who gets which message: positions, Shared, Failover, and one name used twice."""

from collections import Counter
from collections.abc import Callable

import pytest
from client_harness.agent import Agent, settle
from client_harness.broker_process import BrokerProcess

BOTH_KINDS = pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])


def test_a_new_subscription_starts_with_the_next_message(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    producer.send("before")
    consumer = agent.consumer(topic)
    producer.send("after")
    message = consumer.next()
    assert (message.text, message.offset) == ("after", 1)


def test_the_position_is_fixed_when_subscribe_returns(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.subscribe(topic)
    producer.send("between subscribing and receiving")
    consumer.receive()
    assert consumer.next().text == "between subscribing and receiving"


@BOTH_KINDS
def test_a_shared_subscription_splits_exactly_evenly(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="Shared", auto_ack=True) for n in range(3)]
    settle()
    payloads = [f"message {number}" for number in range(36)]
    producer.send(*payloads)
    shares = [consumer.texts(12) for consumer in consumers]
    assert Counter(text for share in shares for text in share) == Counter(payloads)
    for consumer in consumers:
        consumer.assert_silent(0.2)


@BOTH_KINDS
def test_a_lone_shared_consumer_gets_everything_in_order(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumer = agent.consumer(topic, kind="Shared", auto_ack=True)
    settle()
    payloads = [f"message {number}" for number in range(20)]
    producer.send(*payloads)
    assert consumer.texts(20) == payloads


def test_a_leaving_shared_consumer_leaves_its_messages_to_the_others(agent: Agent, topic: str) -> None:
    """And only its own: what the others hold is not sent again."""
    producer = agent.producer(topic)
    leaver = agent.consumer(topic, name="leaver", kind="Shared")
    stayer = agent.consumer(topic, name="stayer", kind="Shared")
    settle()
    producer.send(*[f"message {number}" for number in range(8)])
    left, held = set(leaver.texts(4)), set(stayer.texts(4))
    leaver.close()
    assert set(stayer.texts(4, within=5)) == left
    assert not left & held
    stayer.assert_silent()


def test_a_failover_standby_takes_over_where_the_active_one_left(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    active = agent.consumer(topic, name="first", kind="Failover")
    settle()
    standby = agent.consumer(topic, name="second", kind="Failover")
    settle()
    producer.send("a", "b", "c")
    a, b, c = active.take(3)
    assert (a.text, b.text, c.text) == ("a", "b", "c")
    active.ack(a)
    standby.assert_silent()
    active.close()
    assert standby.texts(2, within=5) == ["b", "c"]
    producer.send("d")
    assert standby.next().text == "d"


def test_a_returning_failover_consumer_waits_its_turn(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    first = agent.consumer(topic, name="first", kind="Failover", auto_ack=True)
    settle()
    second = agent.consumer(topic, name="second", kind="Failover", auto_ack=True)
    settle()
    producer.send("a")
    assert first.next().text == "a"
    first.close()
    returned = agent.consumer(topic, name="first", kind="Failover", auto_ack=True)
    settle()
    producer.send("b")
    assert second.next().text == "b"
    returned.assert_silent()
    second.close()
    producer.send("c")
    assert returned.next().text == "c"


def test_failover_survives_the_death_of_the_active_process(
    agent: Agent, start_agent: Callable[[BrokerProcess], Agent], shared_broker: BrokerProcess, topic: str
) -> None:
    producer = agent.producer(topic)
    doomed = start_agent(shared_broker)
    active = doomed.consumer(topic, name="first", kind="Failover")
    settle()
    standby = agent.consumer(topic, name="second", kind="Failover")
    settle()
    producer.send("a", "b")
    assert active.texts(2) == ["a", "b"]
    doomed.kill()
    assert standby.texts(2, within=5) == ["a", "b"]


def test_non_reliable_failover_switches_to_the_standby(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, reliable=False)
    active = agent.consumer(topic, name="first", kind="Failover")
    settle()
    standby = agent.consumer(topic, name="second", kind="Failover")
    settle()
    producer.send("a")
    assert active.next().text == "a"
    active.close()
    settle()
    producer.send("b")
    assert standby.next().text == "b"


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
def test_one_name_used_twice_moves_to_the_later_one(
    agent: Agent,
    start_agent: Callable[[BrokerProcess], Agent],
    shared_broker: BrokerProcess,
    topic: str,
    kind: str,
) -> None:
    """Both may fight over the name while both live: what counts is that nothing is lost or out of order."""
    producer = agent.producer(topic)
    earlier = agent.consumer(topic, name="same", kind=kind)
    producer.send("a", "b")
    assert earlier.texts(2) == ["a", "b"]
    later = start_agent(shared_broker).consumer(topic, name="same", kind=kind)
    earlier.close()
    producer.send("c")
    seen = [message.text for message in later.until("c")]
    assert sorted(set(seen)) == ["a", "b", "c"]
    assert seen[-3:] == ["a", "b", "c"]
