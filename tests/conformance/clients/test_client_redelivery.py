"""Unacknowledged messages come back; acknowledged ones do not."""

from collections.abc import Callable

import pytest
from client_harness.agent import Agent, publish_until_received
from client_harness.broker_process import BrokerProcess

WINDOW = 10
"""Messages every client may count on having unacknowledged at once."""


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover"])
def test_unacked_messages_come_first_after_resubscribing(agent: Agent, topic: str, kind: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, kind=kind)
    producer.send("acked", "unacked 1", "unacked 2")
    acked, *_ = consumer.take(3)
    consumer.ack(acked)
    consumer.close()
    producer.send("published meanwhile")
    again = agent.consumer(topic, kind=kind, auto_ack=True)
    messages = again.take(3, within=5)
    assert [message.text for message in messages] == ["unacked 1", "unacked 2", "published meanwhile"]
    assert [message.offset for message in messages] == [1, 2, 3]
    again.assert_silent()


def test_unacked_messages_survive_the_death_of_the_client(
    agent: Agent, start_agent: Callable[[BrokerProcess], Agent], shared_broker: BrokerProcess, topic: str
) -> None:
    producer = agent.producer(topic)
    doomed = start_agent(shared_broker)
    consumer = doomed.consumer(topic)
    producer.send("acked", "unacked")
    acked, _ = consumer.take(2)
    consumer.ack(acked)
    doomed.kill()
    again = agent.consumer(topic)
    assert again.next(within=5).text == "unacked"
    again.assert_silent()


def test_acks_may_come_in_any_order_and_twice(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send("a", "b", "c")
    a, _, c = consumer.take(3)
    consumer.ack(c, a, a)
    consumer.close()
    again = agent.consumer(topic)
    assert again.next(within=5).text == "b"
    again.assert_silent()


def test_the_window_opens_as_messages_are_acked(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send(*[str(number) for number in range(WINDOW + 5)])
    held = consumer.take(WINDOW)
    consumer.ack(*held)
    assert consumer.texts(5) == [str(number) for number in range(WINDOW, WINDOW + 5)]


@pytest.mark.needs("nack")
def test_a_nacked_message_comes_again(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send("a")
    first = consumer.next()
    consumer.nack(first, delay_ms=50, reason="not now")
    second = consumer.next(within=5)
    assert (second.text, second.offset) == ("a", first.offset)
    consumer.ack(second)
    consumer.assert_silent()


@pytest.mark.needs("nack")
def test_a_nack_holds_up_nobody_else(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send("refused")
    consumer.nack(consumer.next())
    producer.send("b", "c")
    b, c = consumer.take(2)
    consumer.ack(b, c)
    assert (b.text, c.text) == ("b", "c")
    assert consumer.next(within=5).text == "refused"


@pytest.mark.needs("nack")
def test_a_nack_may_ask_for_a_longer_delay(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send("later")
    consumer.nack(consumer.next(), delay_ms=3_500)
    consumer.assert_silent(2)
    assert consumer.next(within=5).text == "later"


@pytest.mark.needs("nack")
def test_ack_and_nack_are_harmless_where_nothing_is_kept(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, reliable=False)
    consumer = agent.consumer(topic)
    message = publish_until_received(producer, consumer, "a", within=5)
    consumer.ack(message)
    consumer.nack(message)
