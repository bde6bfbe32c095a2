"""Producers and consumers that live through a restart of the broker go on under their old ids."""

import time
from collections.abc import Callable

import pytest
from client_harness.agent import Agent, ClientError, RemoteConsumer, RemoteProducer, publish_until_received
from client_harness.broker_process import BrokerProcess

StartAgent = Callable[[BrokerProcess], Agent]
RECONNECT_SECONDS_MAX = 20
EITHER_END = pytest.mark.parametrize(
    "end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"]
)


@EITHER_END
def test_live_producers_and_consumers_go_on(
    start_agent: StartAgent, broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], None]
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, auto_ack=True)
    producer.send("before")
    before = consumer.next()
    end(broker)
    broker.start()
    send_when_back(producer, "after", "and after that")
    *_, after, last = consumer.until("and after that", within=RECONNECT_SECONDS_MAX)
    assert (after.text, after.offset, last.offset) == ("after", before.offset + 1, before.offset + 2)
    assert {before.producer_id, after.producer_id, last.producer_id} == {before.producer_id}
    assert not consumer.ended.is_set()


@EITHER_END
def test_unacked_messages_come_again_to_the_live_consumer(
    start_agent: StartAgent, broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], None]
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    producer.send("acked", "unacked")
    acked, _ = consumer.take(2)
    consumer.ack(acked)
    end(broker)
    broker.start()
    (*_, again) = consumer.until("unacked", within=RECONNECT_SECONDS_MAX)
    consumer.ack(again)
    send_when_back(producer, "new")
    assert consumer.until("new", within=RECONNECT_SECONDS_MAX)[-1].offset == 2


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
    producer = agent.producer(topic, partitions=3)
    consumers = [agent.consumer(topic, name=f"worker-{n}", kind="Shared", auto_ack=True) for n in range(2)]
    producer.send(*[f"before {number}" for number in range(6)])
    received: set[str] = set()
    collect(consumers, received, {f"before {number}" for number in range(6)})
    broker.kill()
    broker.start()
    send_when_back(producer, *[f"after {number}" for number in range(6)])
    collect(consumers, received, {f"after {number}" for number in range(6)})


def test_non_reliable_delivery_goes_on(start_agent: StartAgent, broker: BrokerProcess, topic: str) -> None:
    """Messages may be lost while nobody listens, so publish until the consumer is back."""
    agent = start_agent(broker)
    producer = agent.producer(topic, reliable=False)
    consumer = agent.consumer(topic)
    publish_until_received(producer, consumer, "before", within=5)
    broker.stop()
    broker.start()
    publish_until_received(producer, consumer, "after", within=RECONNECT_SECONDS_MAX)


def test_a_second_restart_is_no_different(start_agent: StartAgent, broker: BrokerProcess, topic: str) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    consumer = agent.consumer(topic, auto_ack=True)
    for turn in range(3):
        send_when_back(producer, f"turn {turn}")
        assert consumer.until(f"turn {turn}", within=RECONNECT_SECONDS_MAX)[-1].offset == turn
        broker.kill()
        broker.start()


def test_sending_to_a_stopped_broker_fails_in_the_end(
    start_agent: StartAgent, broker: BrokerProcess, topic: str
) -> None:
    agent = start_agent(broker)
    producer = agent.producer(topic)
    broker.stop()
    with pytest.raises(ClientError):
        producer.send("nobody there")


def send_when_back(producer: RemoteProducer, *texts: str) -> None:
    """Send through a live producer as a stubborn application does.

    A client's own retries last two or three seconds; its transport may wait longer than that before it dials
    again. What is refused as unreachable was not taken, so that trying again makes no double.
    """
    deadline = time.monotonic() + RECONNECT_SECONDS_MAX
    for text in texts:
        while True:
            try:
                producer.send(text)
                break
            except ClientError as error:
                if error.code != "UNAVAILABLE" or time.monotonic() > deadline:
                    raise


def collect(consumers: list[RemoteConsumer], received: set[str], wanted: set[str]) -> None:
    """Gather what the consumers get until nothing of `wanted` is missing."""
    deadline = time.monotonic() + RECONNECT_SECONDS_MAX
    while not wanted <= received:
        assert time.monotonic() < deadline, f"missing: {sorted(wanted - received)}"
        for consumer in consumers:
            received.update(message.text for message in consumer.drain())
        time.sleep(0.05)
