"""Schemas as a client uses them: registered, named by producers, enforced on what is published."""

import json
from typing import Any

import pytest
from client_harness.agent import Agent, ClientError, settle

pytestmark = pytest.mark.needs("schemas")

PERSON = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
WIDER = PERSON.replace('"string"', '["string", "null"]')
NARROWER = PERSON.replace('["name"]', '["name", "age"]')
AVRO = '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}'
PROTO = 'syntax = "proto3"; message Person { string name = 1; }'


@pytest.fixture
def subject(topic: str) -> str:
    """A subject nobody else uses."""
    return topic.removeprefix("/").replace("/", "-")


def _register(agent: Agent, subject: str, definition: str = PERSON, kind: str = "json_schema") -> int:
    schema_id = agent.call("register_schema", subject=subject, type=kind, definition=definition)["schema_id"]
    assert schema_id > 0
    return int(schema_id)


def _configure(agent: Agent, topic: str, subject: str, policy: str, *, payloads: bool) -> None:
    answer = agent.call("configure_topic", topic=topic, subject=subject, policy=policy, payloads=payloads)
    assert answer["success"], answer


@pytest.mark.parametrize(
    ("kind", "definition", "outer", "field"),
    [
        ("json_schema", PERSON, "JsonSchema", "raw_schema"),
        ("avro", AVRO, "Avro", "raw_schema"),
        ("protobuf", PROTO, "Protobuf", "raw_proto"),
    ],
)
def test_a_schema_is_found_as_it_was_registered(  # noqa: PLR0917
    agent: Agent, subject: str, kind: str, definition: str, outer: str, field: str
) -> None:
    schema_id = _register(agent, subject, definition, kind)
    latest = agent.call("get_schema", subject=subject)
    assert (latest["schema_id"], latest["version"], latest["subject"]) == (schema_id, 1, subject)
    assert (latest["schema_type"], latest["fingerprint"][:7]) == (kind, "sha256:")
    assert json.loads(latest["schema_definition"])[outer][field] == definition
    for version in (1, None):
        assert agent.call("get_schema", schema_id=schema_id, version=version) == latest


def test_versions_of_a_subject(agent: Agent, subject: str) -> None:
    schema_id = _register(agent, subject)
    assert _register(agent, subject, WIDER) == schema_id
    assert _register(agent, subject) == schema_id
    assert agent.call("schema_versions", subject=subject)["versions"] == [1, 2]
    assert agent.call("delete_schema", subject=subject, version=1)["success"]
    assert agent.call("schema_versions", subject=subject)["versions"] == [2]


def test_what_would_break_readers_is_told_and_refused(agent: Agent, subject: str) -> None:
    _register(agent, subject)

    def check(definition: str, mode: str | None = None) -> Any:
        return agent.call(
            "check_schema", subject=subject, type="json_schema", definition=definition, mode=mode
        )

    assert check(WIDER) == {"is_compatible": True, "errors": []}
    verdict = check(NARROWER)
    assert not verdict["is_compatible"]
    assert "age" in " ".join(verdict["errors"])
    assert check(NARROWER, "none")["is_compatible"]
    with pytest.raises(ClientError, match="age") as refused:
        _register(agent, subject, NARROWER)
    assert refused.value.code == "INTERNAL"
    assert agent.call("set_schema_mode", subject=subject, mode="none")["success"]
    _register(agent, subject, NARROWER)


def test_what_nobody_registered_is_not_found(agent: Agent, subject: str) -> None:
    for command in ("get_schema", "schema_versions"):
        with pytest.raises(ClientError) as refused:
            agent.call(command, subject=subject)
        assert refused.value.code == "NOT_FOUND"


def test_a_producer_of_an_unknown_subject_is_refused(agent: Agent, topic: str, subject: str) -> None:
    agent.producer(topic, name="plain")
    with pytest.raises(ClientError, match="not found"):
        agent.producer(topic, schema={"subject": subject})


def test_the_first_producer_binds_the_topic(agent: Agent, topic: str, subject: str) -> None:
    schema_id = _register(agent, subject)
    _register(agent, subject + "-other")
    agent.producer(topic, name="first", schema={"subject": subject})
    config = agent.call("topic_schema", topic=topic)
    assert config == {"subject": subject, "policy": "warn", "payloads": False, "schema_id": schema_id}
    agent.producer(topic, name="second", schema={"subject": subject})
    agent.producer(topic, name="without")
    with pytest.raises(ClientError, match=subject) as refused:
        agent.producer(topic, name="third", schema={"subject": subject + "-other"})
    assert refused.value.code == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("choice", "version"), [({}, 2), ({"version": 1}, 1), ({"min_version": 2}, 2)], ids=str
)
def test_messages_carry_the_version_that_was_meant(
    agent: Agent, topic: str, subject: str, choice: dict[str, int], version: int
) -> None:
    schema_id = _register(agent, subject)
    _register(agent, subject, WIDER)
    producer = agent.producer(topic, schema={"subject": subject, **choice})
    _configure(agent, topic, subject, "enforce", payloads=True)
    consumer = agent.consumer(topic)
    settle()
    producer.send('{"name": "Ada"}')
    message = consumer.next()
    assert (message.text, message.schema_id, message.schema_version) == (
        '{"name": "Ada"}',
        schema_id,
        version,
    )


@pytest.mark.parametrize("choice", [{"version": 3}, {"min_version": 3}], ids=str)
def test_a_version_there_is_not_cannot_be_meant(
    agent: Agent, topic: str, subject: str, choice: dict[str, int]
) -> None:
    _register(agent, subject)
    with pytest.raises(ClientError):
        agent.producer(topic, schema={"subject": subject, **choice})


def test_enforced_schemas_keep_out_what_does_not_follow_them(agent: Agent, topic: str, subject: str) -> None:
    _register(agent, subject)
    producer = agent.producer(topic, schema={"subject": subject})
    plain = agent.producer(topic, name="plain")
    _configure(agent, topic, subject, "enforce", payloads=True)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    for bad in ('{"name": 5}', "no JSON"):
        with pytest.raises(ClientError) as refused:
            producer.send(bad)
        assert refused.value.code == "PERMISSION_DENIED"
    with pytest.raises(ClientError) as refused:
        plain.send('{"name": "Ada"}')
    assert refused.value.code == "PERMISSION_DENIED"
    producer.send('{"name": "Ada"}')
    assert consumer.next().text == '{"name": "Ada"}'


def test_warned_of_is_delivered(agent: Agent, topic: str, subject: str) -> None:
    _register(agent, subject)
    producer = agent.producer(topic, schema={"subject": subject})
    _configure(agent, topic, subject, "WARN", payloads=True)
    consumer = agent.consumer(topic, auto_ack=True)
    settle()
    producer.send('{"name": 5}')
    assert consumer.next().text == '{"name": 5}'
