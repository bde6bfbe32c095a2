"""What a client publishes arrives: complete, unchanged, in order, on both kinds of topic."""

import time
from collections.abc import Callable

import pytest
from client_harness.agent import Agent, ClientError, settle
from client_harness.broker_process import BrokerProcess

MIB = 1 << 20
MESSAGE_BYTES_MAX = 4 * MIB
BOTH_KINDS = pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])


@BOTH_KINDS
def test_a_message_arrives_with_all_its_fields(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, name="the-producer", reliable=reliable)
    consumer = agent.consumer(topic)
    settle()
    payload, attributes = bytes(range(256)), {"plain": "value", "empty": "", "Straße": "żółw 🐢"}
    before = int(time.time() * 1000)
    producer.send(payload, attributes=attributes)
    message = consumer.next()
    assert message.payload == payload
    assert message.attributes == attributes
    assert message.key is None
    assert message.topic == topic
    assert message.offset == 0
    assert message.producer_name == "the-producer"
    assert before <= message.publish_time <= int(time.time() * 1000)
    assert 0 < message.producer_id < 2**63


@pytest.mark.needs("keys")
@BOTH_KINDS
def test_an_empty_key_is_not_an_absent_key(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumer = agent.consumer(topic)
    settle()
    producer.send("none")
    producer.send("empty", key="")
    producer.send("some", key="order-7")
    assert [(message.text, message.key) for message in consumer.take(3)] == [
        ("none", None),
        ("empty", ""),
        ("some", "order-7"),
    ]


@BOTH_KINDS
def test_an_empty_payload_arrives(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumer = agent.consumer(topic)
    settle()
    producer.send(b"")
    assert consumer.next().payload == b""


@BOTH_KINDS
def test_large_payloads_arrive(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    for size in (MIB, MESSAGE_BYTES_MAX - 64 * 1024):
        producer.send(b"x" * size)
        assert len(consumer.next(within=20).payload) == size


@BOTH_KINDS
def test_a_message_no_client_could_read_is_refused(agent: Agent, topic: str, reliable: bool) -> None:
    """A refusal must not be one that clients retry, and must leave the connection usable."""
    producer = agent.producer(topic, reliable=reliable)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    with pytest.raises(ClientError) as refused:
        producer.send(b"x" * (MESSAGE_BYTES_MAX + 1))
    assert refused.value.code in {"OUT_OF_RANGE", "INVALID_ARGUMENT"}
    producer.send("still here")
    assert consumer.next().text == "still here"


@pytest.mark.parametrize("below", [16, 100, 160, 400])
def test_near_the_limit_a_message_is_refused_or_readable(agent: Agent, topic: str, below: int) -> None:
    """What is accepted must also fit once the broker has stamped an offset into it."""
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, auto_ack=True)
    size = MESSAGE_BYTES_MAX - below
    refusal: ClientError | None = None
    try:
        producer.send(b"x" * size)
    except ClientError as error:
        refusal = error
    if refusal is None:
        assert len(consumer.next(within=20).payload) == size
    else:
        assert refusal.code in {"OUT_OF_RANGE", "INVALID_ARGUMENT"}


def test_a_hundred_reliable_messages_arrive_in_order(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, auto_ack=True)
    payloads = [f"message {number}" for number in range(100)]
    producer.send(*payloads)
    messages = consumer.take(100, within=20)
    assert [message.text for message in messages] == payloads
    assert [message.offset for message in messages] == list(range(100))
    consumer.assert_silent()
    assert consumer.ack_failures == []


def test_non_reliable_messages_fan_out_without_loss(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, reliable=False)
    consumers = [agent.consumer(topic, subscription=f"fan-{number}", auto_ack=True) for number in range(3)]
    settle()
    payloads = [f"message {number}" for number in range(50)]
    producer.send(*payloads)
    for consumer in consumers:
        assert consumer.texts(50) == payloads
        assert consumer.ack_failures == []


def test_reliable_subscriptions_each_get_everything(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    acking = agent.consumer(topic, subscription="acking", auto_ack=True)
    holding = agent.consumer(topic, subscription="holding")
    payloads = [f"message {number}" for number in range(20)]
    producer.send(*payloads)
    assert acking.texts(20) == payloads
    assert holding.texts(10) == payloads[:10]


def test_two_producers_of_one_name_share_an_id_and_both_work(agent: Agent, topic: str) -> None:
    one_of_them = agent.producer(topic, name="twin")
    other = agent.producer(topic, name="twin")
    consumer = agent.consumer(topic, auto_ack=True)
    one_of_them.send("one")
    other.send("two")
    one, two = consumer.take(2)
    assert (one.text, two.text) == ("one", "two")
    assert one.producer_id == two.producer_id


def test_producers_of_two_names_have_two_ids(agent: Agent, topic: str) -> None:
    producers = [agent.producer(topic, name=name) for name in ("left", "right")]
    consumer = agent.consumer(topic, auto_ack=True)
    for producer in producers:
        producer.send("hello")
    left, right = consumer.take(2)
    assert (left.producer_name, right.producer_name) == ("left", "right")
    assert left.producer_id != right.producer_id


def test_publishing_creates_the_topic_for_everybody(
    agent: Agent, start_agent: Callable[[BrokerProcess], Agent], shared_broker: BrokerProcess, topic: str
) -> None:
    agent.producer(topic).send("nobody listens yet")
    elsewhere = start_agent(shared_broker)
    consumer = elsewhere.consumer(topic)
    agent.producer(topic).send("somebody does")
    assert consumer.next().text == "somebody does"


def test_topics_that_share_a_prefix_are_apart(agent: Agent, topic: str) -> None:
    longer = agent.producer(topic + "er")
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, auto_ack=True)
    longer.send("for the longer name")
    producer.send("for the shorter name")
    assert consumer.next().text == "for the shorter name"
    consumer.assert_silent()


def test_an_idle_client_survives_its_own_health_pings(agent: Agent, topic: str) -> None:
    """Clients ping every five seconds and act on a wrong answer: wait for one round of it."""
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    consumer.assert_silent(6)
    producer.send("after the pings")
    message = consumer.next()
    assert message.text == "after the pings"
    consumer.ack(message)
    consumer.assert_silent()
