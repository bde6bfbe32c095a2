"""Schemas at work: producers say what they write, topics insist on it, consumers look up what they got."""

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from client_harness.agent import Agent, ClientError, RemoteProducer, publish_until_received, settle
from client_harness.broker_process import BrokerProcess
from client_harness.schemas import PERSON, WIDER, Schemas

AVRO = '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}'
PROTO = 'syntax = "proto3"; message Person { string name = 1; }'
ADA = '{"name": "Ada"}'
# What the published broker takes as an Avro payload: a whole file, with its schema, of one record.
AVRO_FILE = (
    b"Obj\x01\x02\x16avro.schema\xa8\x01"
    + AVRO.encode()
    + b"\x00"
    + bytes(16)
    + b"\x02\x08\x06Ada"
    + bytes(16)
)


def _send_refused(producer: RemoteProducer, payload: str | bytes, reason: str) -> None:
    with pytest.raises(ClientError, match=reason) as refused:
        producer.send(payload)
    assert refused.value.code == "INVALID_ARGUMENT"


def test_a_producer_of_an_unknown_subject_is_refused(agent: Agent, topic: str, subject: str) -> None:
    agent.producer(topic, name="plain")
    with pytest.raises(ClientError, match=f"{subject}.*not found") as refused:
        agent.producer(topic, schema={"subject": subject})
    assert refused.value.code in {"FAILED_PRECONDITION", "NOT_FOUND"}


def test_a_refused_producer_makes_no_topic(agent: Agent, schemas: Schemas, topic: str, subject: str) -> None:
    with pytest.raises(ClientError, match=f"{subject}.*not found"):
        agent.producer(topic, schema={"subject": subject})
    with pytest.raises(ClientError, match=topic) as refused:
        schemas.of_topic(topic)
    assert refused.value.code == "NOT_FOUND"
    schemas.register(subject)
    agent.producer(topic, schema={"subject": subject})
    assert schemas.of_topic(topic)["subject"] == subject


def test_the_first_producer_binds_the_topic(agent: Agent, schemas: Schemas, topic: str, subject: str) -> None:
    schema_id = schemas.register(subject)
    schemas.register(subject + "-other")
    agent.producer(topic, name="first", schema={"subject": subject})
    bound = {"subject": subject, "policy": "warn", "payloads": False, "schema_id": schema_id}
    assert schemas.of_topic(topic) == bound
    agent.producer(topic, name="second", schema={"subject": subject})
    agent.producer(topic, name="without")
    with pytest.raises(ClientError, match=subject) as refused:
        agent.producer(topic, name="third", schema={"subject": subject + "-other"})
    assert refused.value.code == "FAILED_PRECONDITION"
    assert schemas.of_topic(topic) == bound


@pytest.mark.parametrize(
    ("choice", "version"),
    [({}, 3), ({"version": 1}, 1), ({"version": 3}, 3), ({"min_version": 2}, 3), ({"min_version": 3}, 3)],
    ids=str,
)
def test_a_consumer_finds_the_schema_a_message_was_written_with(  # noqa: PLR0917
    agent: Agent, schemas: Schemas, topic: str, subject: str, choice: dict[str, int], version: int
) -> None:
    for definition in (PERSON, WIDER, "{}"):
        schema_id = schemas.register(subject, definition)
    producer = agent.producer(topic, schema={"subject": subject, **choice})
    consumer = agent.consumer(topic)
    settle()
    producer.send(ADA)
    message = consumer.next()
    assert (message.text, message.schema_id, message.schema_version) == (ADA, schema_id, version)
    found = schemas.by_id(message.schema_id, message.schema_version)
    assert (found["subject"], found["version"]) == (subject, version)
    written_with = json.loads(found["schema_definition"])["JsonSchema"]["raw_schema"]
    assert written_with == (PERSON, WIDER, "{}")[version - 1]


@pytest.mark.parametrize("choice", [{"version": 2}, {"min_version": 2}], ids=str)
def test_a_version_there_is_not_cannot_be_meant(
    agent: Agent, schemas: Schemas, topic: str, subject: str, choice: dict[str, int]
) -> None:
    schemas.register(subject)
    with pytest.raises(ClientError, match=subject) as refused:
        agent.producer(topic, schema={"subject": subject, **choice})
    assert not refused.value.code


def test_versions_of_a_subject_share_a_topic(
    agent: Agent, schemas: Schemas, topic: str, subject: str
) -> None:
    schemas.register(subject)
    old = agent.producer(topic, name="old", schema={"subject": subject})
    schemas.register(subject, WIDER)
    new = agent.producer(topic, name="new", schema={"subject": subject})
    schemas.configure(topic, subject, "enforce", payloads=True)
    consumer = agent.consumer(topic)
    settle()
    old.send(ADA)
    new.send('{"name": null}')
    assert [message.schema_version for message in consumer.take(2)] == [1, 2]


def test_messages_of_a_producer_without_a_schema_name_none(agent: Agent, topic: str) -> None:
    producer = agent.producer(topic)
    consumer = agent.consumer(topic)
    settle()
    producer.send("anything")
    message = consumer.next()
    assert (message.schema_id, message.schema_version) == (None, None)


def test_every_partition_follows_the_schema(agent: Agent, schemas: Schemas, topic: str, subject: str) -> None:
    schema_id = schemas.register(subject)
    producer = agent.producer(topic, partitions=2, schema={"subject": subject})
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    producer.send(ADA, ADA)
    messages = consumer.take(2)
    assert {message.topic for message in messages} == {f"{topic}-part-0", f"{topic}-part-1"}
    assert {(message.schema_id, message.schema_version) for message in messages} == {(schema_id, 1)}
    assert {schemas.of_topic(f"{topic}-part-{part}")["subject"] for part in (0, 1)} == {subject}


@pytest.mark.parametrize(
    ("kind", "definition", "good", "bad"),
    [
        ("json_schema", PERSON, ADA.encode(), b'{"name": 5}'),
        ("json_schema", PERSON, ADA.encode(), b"no JSON"),
        ("avro", AVRO, b"\x06Ada", b"\x06Ad"),
        ("avro", AVRO, AVRO_FILE, AVRO_FILE[:-1]),
        ("protobuf", PROTO, b"\x0a\x03Ada", b"\x0a\x09Ada"),
        ("string", "text", "größer".encode(), b"\xff\xfe"),
        ("number", "double", struct.pack("<d", 1.5), b"1.5"),
    ],
    ids=["json type", "json syntax", "avro", "avro file", "protobuf", "string", "number"],
)
def test_what_does_not_fit_an_enforced_schema_is_kept_out(  # noqa: PLR0917
    agent: Agent,
    schemas: Schemas,
    topic: str,
    subject: str,
    kind: str,
    definition: str,
    good: bytes,
    bad: bytes,
) -> None:
    schemas.register(subject, definition, kind)
    producer = agent.producer(topic, name="good", schema={"subject": subject})
    schemas.configure(topic, subject, "enforce", payloads=True)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    _send_refused(agent.producer(topic, name="bad", schema={"subject": subject}), bad, subject)
    producer.send(good)
    assert consumer.next().payload == good
    consumer.assert_silent()


@pytest.mark.parametrize("kind", ["bytes", "avro", "json_schema"])
def test_payloads_are_looked_into_only_where_asked_for(
    agent: Agent, schemas: Schemas, topic: str, subject: str, kind: str
) -> None:
    schemas.register(subject, {"avro": AVRO}.get(kind, PERSON), kind)
    producer = agent.producer(topic, schema={"subject": subject})
    schemas.configure(topic, subject, "enforce", payloads=kind == "bytes")
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    producer.send(b"\x00\xff")
    assert consumer.next().payload == b"\x00\xff"


@pytest.mark.parametrize("schema", ["none", "another subject's"])
def test_an_enforced_topic_takes_only_its_own_subject(
    agent: Agent,
    schemas: Schemas,
    topic: str,
    subject: str,
    schema: str,
) -> None:
    schemas.register(subject)
    schemas.register(subject + "-other")
    choice = None if schema == "none" else {"subject": subject + "-other"}
    stranger = agent.producer(topic, name="stranger", schema=choice)
    schemas.configure(topic, subject, "enforce", payloads=False)
    member = agent.producer(topic, name="member", schema={"subject": subject})
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    _send_refused(stranger, ADA, subject)
    member.send(ADA)
    assert consumer.next().producer_name == "member"
    consumer.assert_silent()


def test_a_topic_without_a_log_enforces_as_well(
    agent: Agent, schemas: Schemas, topic: str, subject: str
) -> None:
    schemas.register(subject)
    producer = agent.producer(topic, name="good", reliable=False, schema={"subject": subject})
    schemas.configure(topic, subject, "enforce", payloads=True)
    consumer = agent.consumer(topic, auto_ack=True)
    publish_until_received(producer, consumer, ADA, within=10)
    bad = agent.producer(topic, name="bad", reliable=False, schema={"subject": subject})
    _send_refused(bad, "no JSON", subject)
    producer.send('{"name": "Grace"}')
    assert {message.text for message in consumer.until('{"name": "Grace"}')} <= {ADA, '{"name": "Grace"}'}
    consumer.assert_silent()


@pytest.mark.parametrize("policy", ["none", "warn"])
def test_what_is_not_enforced_is_delivered(
    agent: Agent, schemas: Schemas, topic: str, subject: str, policy: str
) -> None:
    schemas.register(subject)
    follower = agent.producer(topic, name="follower", schema={"subject": subject})
    stranger = agent.producer(topic, name="stranger")
    schemas.configure(topic, subject, policy, payloads=True)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    follower.send('{"name": 5}')
    stranger.send("no JSON")
    assert consumer.texts(2) == ['{"name": 5}', "no JSON"]


def test_a_policy_can_be_changed_alone(agent: Agent, schemas: Schemas, topic: str, subject: str) -> None:
    schema_id = schemas.register(subject)
    agent.producer(topic)
    with pytest.raises(ClientError, match=topic) as refused:
        schemas.set_policy(topic, "enforce", payloads=True)
    assert refused.value.code == "FAILED_PRECONDITION"
    schemas.configure(topic, subject, "WARN", payloads=False)
    schemas.set_policy(topic, "Enforce", payloads=True)
    assert schemas.of_topic(topic) == {
        "subject": subject,
        "policy": "enforce",
        "payloads": True,
        "schema_id": schema_id,
    }


def test_a_topic_is_bound_only_to_what_there_is(
    agent: Agent, schemas: Schemas, topic: str, subject: str
) -> None:
    def refusal(of: Callable[[], Any]) -> str:
        with pytest.raises(ClientError) as refused:
            of()
        return refused.value.code

    schemas.register(subject)
    assert refusal(lambda: schemas.of_topic(topic)) == "NOT_FOUND"
    assert refusal(lambda: schemas.set_policy(topic, "warn", payloads=False)) == "NOT_FOUND"
    assert refusal(lambda: schemas.configure(topic, subject, "warn", payloads=False)) == "NOT_FOUND"
    agent.producer(topic)
    assert refusal(lambda: schemas.configure(topic, subject + "-x", "warn", payloads=False)) == "NOT_FOUND"
    unbound = {"subject": "", "policy": "warn", "payloads": False, "schema_id": 0}
    assert schemas.of_topic(topic) == unbound


def test_schemas_survive_a_crash_of_the_broker(
    broker: BrokerProcess, start_agent: Callable[[BrokerProcess], Agent], topic: str, subject: str
) -> None:
    agent = start_agent(broker)
    schemas = Schemas(agent)
    schema_id = schemas.register(subject)
    schemas.register(subject, WIDER)
    schemas.set_mode(subject, "full")
    producer = agent.producer(topic, schema={"subject": subject})
    schemas.configure(topic, subject, "enforce", payloads=True)
    found, bound = schemas.latest(subject), schemas.of_topic(topic)
    broker.kill()
    broker.start()
    agent = start_agent(broker)
    schemas = Schemas(agent)
    assert (schemas.latest(subject), schemas.of_topic(topic)) == (found, bound)
    assert schemas.versions(subject) == [1, 2]
    assert schemas.problems(subject, "{}")
    assert schemas.register(subject + "-next") > schema_id
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    producer.send(ADA)
    agent.producer(topic, name="later", schema={"subject": subject}).send(ADA)
    assert [(m.schema_id, m.schema_version) for m in consumer.take(2)] == [(schema_id, 2)] * 2
