"""Producers and consumers that live through a restart of the broker go on under their old ids.

Clients give up when a broker stays away for longer than a few retries take. How long a restart takes here
depends on the machine, so these scenarios ask for more retries, an option every client has.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from client_harness.agent import Agent, ClientError, RemoteConsumer, publish_until_received
from client_harness.broker_process import BrokerProcess
from client_harness.programs import ClientProgram

StartAgent = Callable[[BrokerProcess], Agent]
RETRIES = 30
RECONNECT_SECONDS_MAX = 20
EITHER_END = pytest.mark.parametrize(
    "end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"]
)


@EITHER_END
def test_live_producers_and_consumers_go_on(
    client: ClientProgram,
    start_agent: StartAgent,
    broker: BrokerProcess,
    topic: str,
    end: Callable[[BrokerProcess], None],
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic, retries=RETRIES)
    consumer = agent.consumer(topic, auto_ack=True, retries=RETRIES)
    producer.send("before")
    before = consumer.next()
    end(broker)
    broker.start()
    if end is BrokerProcess.kill:
        consumer = survivor(client, agent, consumer, topic, auto_ack=True)
    producer.send("after", "and after that")
    *_, after, last = consumer.until("and after that", within=RECONNECT_SECONDS_MAX)
    assert (after.text, after.offset, last.offset) == ("after", before.offset + 1, before.offset + 2)
    assert {after.producer_id, last.producer_id} == {before.producer_id}
    assert not consumer.ended.is_set()


@EITHER_END
def test_unacked_messages_come_again_to_the_live_consumer(
    client: ClientProgram,
    start_agent: StartAgent,
    broker: BrokerProcess,
    topic: str,
    end: Callable[[BrokerProcess], None],
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic, retries=RETRIES)
    consumer = agent.consumer(topic, retries=RETRIES)
    producer.send("acked", "unacked")
    acked, _ = consumer.take(2)
    consumer.ack(acked)
    end(broker)
    broker.start()
    if end is BrokerProcess.kill:
        consumer = survivor(client, agent, consumer, topic)
    (*_, again) = consumer.until("unacked", within=RECONNECT_SECONDS_MAX)
    consumer.ack(again)
    producer.send("new")
    assert consumer.until("new", within=RECONNECT_SECONDS_MAX)[-1].offset == 2


def test_a_clean_stop_forgets_no_ack(start_agent: StartAgent, broker: BrokerProcess, topic: str) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic, retries=RETRIES)
    consumer = agent.consumer(topic, retries=RETRIES)
    producer.send("a", "b", "c")
    a, b, c = consumer.take(3)
    consumer.ack(a, b, c)
    broker.stop()
    broker.start()
    producer.send("d")
    assert consumer.next(within=RECONNECT_SECONDS_MAX).text == "d"


@EITHER_END
def test_messages_wait_for_a_subscriber_who_is_away(
    start_agent: StartAgent, broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], None]
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    agent.consumer(topic).close()
    payloads = [f"message {number}" for number in range(5)]
    producer.send(*payloads)
    agent.close()
    end(broker)
    broker.start()
    assert start_agent(broker).consumer(topic, auto_ack=True).texts(5) == payloads


def test_partitions_and_shared_consumers_go_on(
    start_agent: StartAgent, broker: BrokerProcess, topic: str
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic, partitions=3, retries=RETRIES)
    consumers = [
        agent.consumer(topic, name=f"worker-{n}", kind="Shared", auto_ack=True, retries=RETRIES)
        for n in range(2)
    ]
    producer.send(*[f"before {number}" for number in range(6)])
    received: set[str] = set()
    collect(consumers, received, {f"before {number}" for number in range(6)})
    broker.stop()
    broker.start()
    producer.send(*[f"after {number}" for number in range(6)])
    collect(consumers, received, {f"after {number}" for number in range(6)})


def test_non_reliable_delivery_goes_on(start_agent: StartAgent, broker: BrokerProcess, topic: str) -> None:
    """Messages may be lost while nobody listens, so publish until the consumer is back."""
    agent = start_agent(broker)
    producer = agent.producer(topic, reliable=False, retries=RETRIES)
    consumer = agent.consumer(topic, retries=RETRIES)
    publish_until_received(producer, consumer, "before", within=5)
    broker.stop()
    broker.start()
    publish_until_received(producer, consumer, "after", within=RECONNECT_SECONDS_MAX)


def test_a_second_restart_is_no_different(start_agent: StartAgent, broker: BrokerProcess, topic: str) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic, retries=RETRIES)
    consumer = agent.consumer(topic, auto_ack=True, retries=RETRIES)
    for turn in range(3):
        producer.send(f"turn {turn}")
        assert consumer.until(f"turn {turn}", within=RECONNECT_SECONDS_MAX)[-1].offset == turn
        broker.stop()
        broker.start()


def test_sending_to_a_stopped_broker_fails_in_the_end(
    start_agent: StartAgent, broker: BrokerProcess, topic: str
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    broker.stop()
    with pytest.raises(ClientError) as failed:
        producer.send("nobody there")
    assert failed.value.code in {"UNAVAILABLE", "CANCELLED", "UNKNOWN"}


def survivor(
    client: ClientProgram, agent: Agent, consumer: RemoteConsumer, topic: str, **options: Any
) -> RemoteConsumer:
    """The live consumer or, where its client may stop at a broken connection and has, one in its name."""
    if client.may_stop_when_cut_off and consumer.ended.is_set():
        return agent.consumer(topic, retries=RETRIES, **options)
    return consumer


def collect(consumers: list[RemoteConsumer], received: set[str], wanted: set[str]) -> None:
    """Gather what the consumers get until nothing of `wanted` is missing."""
    deadline = time.monotonic() + RECONNECT_SECONDS_MAX
    while not wanted <= received:
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - received)}"
        for consumer in consumers:
            received.update(message.text for message in consumer.drain())
        time.sleep(0.05)
