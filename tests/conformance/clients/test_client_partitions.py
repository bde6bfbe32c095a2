"""Partitioned topics: the client makes them, the broker serves each as a topic of its own."""

import pytest
from client_harness.agent import Agent, Received, settle

PARTITIONS = 3
BOTH_KINDS = pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "non-reliable"])


def by_partition(messages: list[Received]) -> dict[str, list[str]]:
    return {
        partition: [message.text for message in messages if message.topic == partition]
        for partition in {message.topic for message in messages}
    }


@BOTH_KINDS
def test_unkeyed_messages_take_turns_over_the_partitions(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable, partitions=PARTITIONS)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    producer.send(*[str(number) for number in range(9)])
    messages = consumer.take(9)
    assert by_partition(messages) == {
        f"{topic}-part-0": ["0", "3", "6"],
        f"{topic}-part-1": ["1", "4", "7"],
        f"{topic}-part-2": ["2", "5", "8"],
    }
    assert {message.producer_name for message in messages} == {"producer-0", "producer-1", "producer-2"}
    assert consumer.ack_failures == []


def test_each_partition_counts_its_own_offsets(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, partitions=PARTITIONS)
    consumer = agent.consumer(topic, auto_ack=True)
    producer.send(*[str(number) for number in range(9)])
    offsets = sorted((message.topic, message.offset) for message in consumer.take(9))
    assert offsets == [(f"{topic}-part-{part}", offset) for part in range(PARTITIONS) for offset in range(3)]


@pytest.mark.needs("keys")
@BOTH_KINDS
def test_a_key_stays_in_its_partition(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable, partitions=PARTITIONS)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    keys = [f"key-{number}" for number in range(6)]
    producer.send_keyed(*[(key, f"{key} {turn}") for turn in range(3) for key in keys])
    messages = consumer.take(18)
    for key in keys:
        ours = [message for message in messages if message.key == key]
        assert [message.text for message in ours] == [f"{key} {turn}" for turn in range(3)]
        assert {message.topic for message in ours} == {f"{topic}-part-{fnv1a(key) % PARTITIONS}"}


def test_more_than_ten_partitions_all_deliver(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, partitions=12)
    consumer = agent.consumer(topic, auto_ack=True)
    producer.send(*[str(number) for number in range(24)])
    partitions = by_partition(consumer.take(24))
    assert set(partitions) == {f"{topic}-part-{number}" for number in range(12)}
    assert all(len(texts) == 2 for texts in partitions.values())


def test_unacked_messages_of_every_partition_come_again(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic, partitions=PARTITIONS)
    consumer = agent.consumer(topic)
    producer.send(*[str(number) for number in range(6)])
    messages = consumer.take(6)
    consumer.ack(*[message for message in messages if message.offset == 0])
    consumer.close()
    again = agent.consumer(topic, auto_ack=True)
    assert sorted(again.texts(3, within=5)) == ["3", "4", "5"]
    again.assert_silent()


@BOTH_KINDS
def test_a_shared_subscription_covers_all_partitions(agent: Agent, topic: str, reliable: bool) -> None:
    producer = agent.producer(topic, reliable=reliable, partitions=PARTITIONS)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="Shared", auto_ack=True) for n in range(2)]
    settle()
    producer.send(*[str(number) for number in range(12)])
    shares = [consumer.texts(6) for consumer in consumers]
    assert sorted(int(text) for share in shares for text in share) == list(range(12))


def fnv1a(key: str) -> int:
    value = 0xCBF29CE484222325
    for octet in key.encode():
        value = (value ^ octet) * 0x100000001B3 % 2**64
    return value
