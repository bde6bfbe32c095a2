"""What a broker must refuse, and with which status: clients decide by it whether to try again."""

import pytest
from client_harness.agent import Agent, ClientError
from client_harness.programs import ClientProgram


def test_subscribing_to_a_missing_topic_fails(agent: Agent, client: ClientProgram, topic: str) -> None:
    with pytest.raises(ClientError) as refused:
        agent.subscribe(topic)
    assert refused.value.code == client.missing_topic_code


def test_a_failed_subscribe_creates_nothing(agent: Agent, topic: str) -> None:
    for _ in range(2):
        with pytest.raises(ClientError):
            agent.subscribe(topic)


@pytest.mark.parametrize("first_reliable", [True, False], ids=["reliable-first", "non-reliable-first"])
def test_the_other_dispatch_strategy_is_refused(agent: Agent, topic: str, first_reliable: bool) -> None:
    agent.producer(topic, name="first", reliable=first_reliable)
    with pytest.raises(ClientError) as refused:
        agent.producer(topic, name="second", reliable=not first_reliable)
    assert refused.value.code == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    "name", ["no-slash", "/only-one-part", "/a/b/c", "/default/has space", "/default/dot.ted"]
)
def test_a_malformed_topic_name_is_refused(agent: Agent, name: str) -> None:
    with pytest.raises(ClientError) as publishing:
        agent.producer(name)
    assert publishing.value.code == "INVALID_ARGUMENT"
    with pytest.raises(ClientError) as subscribing:
        agent.subscribe(name)
    assert subscribing.value.code == "INVALID_ARGUMENT"


def test_a_missing_namespace_is_refused(agent: Agent) -> None:
    with pytest.raises(ClientError) as refused:
        agent.producer("/no-such-namespace/topic")
    assert refused.value.code in {"NOT_FOUND", "FAILED_PRECONDITION", "UNAVAILABLE"}


@pytest.mark.needs("unasked partitions")
def test_a_topic_cannot_be_partitioned_afterwards(agent: Agent, topic: str) -> None:
    agent.producer(topic)
    with pytest.raises(ClientError) as refused:
        agent.producer(topic, name="partitioned", partitions=2)
    assert refused.value.code == "ALREADY_EXISTS"


@pytest.mark.needs("unasked partitions")
def test_a_partitioned_topic_has_no_plain_twin(agent: Agent, topic: str) -> None:
    agent.producer(topic, partitions=2)
    with pytest.raises(ClientError) as refused:
        agent.producer(topic, name="plain")
    assert refused.value.code == "ALREADY_EXISTS"


def test_a_second_consumer_of_an_exclusive_subscription_is_refused(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    first = agent.consumer(topic, name="first", auto_ack=True)
    with pytest.raises(ClientError) as refused:
        agent.subscribe(topic, name="second")
    assert refused.value.code == "PERMISSION_DENIED"
    producer.send("for the first")
    assert first.next().text == "for the first"
