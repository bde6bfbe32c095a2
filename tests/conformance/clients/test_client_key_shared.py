"""KeyShared: one consumer per key, one message per key at a time, filters."""

from collections import defaultdict

import pytest
from client_harness.agent import Agent, Received, gather, settle

pytestmark = pytest.mark.needs("keys")
KEYS = ["alpha", "beta", "gamma", "delta"]
BOTH_KINDS = pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])


def by_key(messages: list[Received]) -> dict[str | None, list[str]]:
    texts: dict[str | None, list[str]] = defaultdict(list)
    for message in messages:
        texts[message.key].append(message.text)
    return texts


@BOTH_KINDS
def test_each_key_stays_with_one_consumer_in_order(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="KeyShared", auto_ack=True) for n in range(2)]
    settle()
    producer.send_keyed(*[(key, f"{key} {number}") for number in range(6) for key in KEYS])
    shares = [by_key(share) for share in gather(consumers, 6 * len(KEYS))]
    assert not set(shares[0]) & set(shares[1]), "a key went to both consumers"
    for key in KEYS:
        texts = shares[0].get(key) or shares[1].get(key)
        assert texts == [f"{key} {number}" for number in range(6)]


def test_four_keys_occupy_both_of_two_consumers(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="KeyShared", auto_ack=True) for n in range(2)]
    settle()
    producer.send_keyed(*[(key, key) for key in KEYS])
    for consumer in consumers:
        consumer.next()


def test_without_a_key_the_producer_name_is_the_key(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="KeyShared", auto_ack=True) for n in range(2)]
    settle()
    payloads = [f"message {number}" for number in range(6)]
    producer.send(*payloads)
    shares = gather(consumers, len(payloads))
    assert sorted([message.text for message in share] for share in shares) == [[], payloads]


def test_filters_choose_and_unmatched_keys_are_skipped(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    money = agent.consumer(
        topic, name="money", kind="KeyShared", key_filters=["payment", "invoice"], auto_ack=True
    )
    logistics = agent.consumer(
        topic, name="logistics", kind="KeyShared", key_filters=["ship*", "eu-?"], auto_ack=True
    )
    settle()
    keys = ["payment", "shipping", "unmatched", "eu-1", "eu-12", "Payment", "ship", "invoice", "payment"]
    producer.send_keyed(*[(key, f"{number} {key}") for number, key in enumerate(keys)])
    assert sorted(money.texts(3)) == ["0 payment", "7 invoice", "8 payment"]
    assert sorted(logistics.texts(3)) == ["1 shipping", "3 eu-1", "6 ship"]
    money.assert_silent()
    logistics.assert_silent(0.2)


def test_a_key_has_one_message_outstanding(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, kind="KeyShared")
    settle()
    producer.send_keyed(("alpha", "alpha 1"), ("alpha", "alpha 2"), ("beta", "beta 1"))
    alpha, beta = consumer.take(2)
    assert (alpha.text, beta.text) == ("alpha 1", "beta 1")
    consumer.assert_silent()
    consumer.ack(alpha)
    assert consumer.next().text == "alpha 2"


@pytest.mark.needs("nack")
def test_a_nack_keeps_the_order_of_its_key(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, kind="KeyShared")
    settle()
    producer.send_keyed(("alpha", "alpha 1"), ("alpha", "alpha 2"), ("beta", "beta 1"))
    alpha, beta = consumer.take(2)
    consumer.nack(alpha, delay_ms=50)
    consumer.ack(beta)
    again = consumer.next()
    assert (again.text, again.offset) == ("alpha 1", alpha.offset)
    consumer.ack(again)
    assert consumer.next().text == "alpha 2"


def test_the_keys_of_a_leaving_consumer_move_on(agent: Agent, topic: str) -> None:
    """After a grace of a few seconds, with what was unacked first, and without losing any of it."""
    producer = agent.producer(topic)
    leaver = agent.consumer(topic, name="leaver", kind="KeyShared")
    settle()
    producer.send_keyed(*[(key, f"{key} 1") for key in KEYS], *[(key, f"{key} 2") for key in KEYS])
    leaver.take(len(KEYS))
    stayer = agent.consumer(topic, name="stayer", kind="KeyShared", auto_ack=True)
    leaver.close()
    moved = by_key(stayer.take(2 * len(KEYS), within=15))
    assert moved == {key: [f"{key} 1", f"{key} 2"] for key in KEYS}


def test_a_key_shared_consumer_that_comes_back_gets_its_unacked(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, kind="KeyShared")
    settle()
    producer.send_keyed(("alpha", "alpha 1"), ("beta", "beta 1"))
    consumer.take(2)
    consumer.close()
    again = agent.consumer(topic, kind="KeyShared", auto_ack=True)
    assert sorted(again.texts(2, within=5)) == ["alpha 1", "beta 1"]
