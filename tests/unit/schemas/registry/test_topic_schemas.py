"""What a topic expects of its messages: configured by an operator, or by its first producer."""

import asyncio

import pytest

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.metadata import MetadataStore
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, TopicSchemas, ValidationPolicy, policy_of

TOPIC = TopicName("default", "orders")


@pytest.fixture
async def topics(metadata: MetadataStore, registry: SchemaRegistry) -> TopicSchemas:
    for subject in ("a", "b"):
        await registry.register(subject, SchemaKind.STRING, b"")
    return TopicSchemas(metadata, registry)


async def test_a_topic_nobody_configured_warns(topics: TopicSchemas) -> None:
    assert await topics.get(TOPIC) == TopicSchema(
        subject=None, validation_policy=ValidationPolicy.WARN, enable_payload_validation=False
    )


async def test_configuring_replaces_whatever_was_there(topics: TopicSchemas) -> None:
    await topics.adopt(TOPIC, "a")
    configured = await topics.configure(TOPIC, "b", ValidationPolicy.ENFORCE, validate_payloads=True)
    assert configured == await topics.get(TOPIC)
    assert configured == TopicSchema(
        subject="b", validation_policy=ValidationPolicy.ENFORCE, enable_payload_validation=True
    )
    assert (await topics.get(TopicName("default", "orders2"))).subject is None


async def test_a_subject_must_be_registered(topics: TopicSchemas) -> None:
    with pytest.raises(Rejected, match="not found") as caught:
        await topics.configure(TOPIC, "absent", ValidationPolicy.WARN, validate_payloads=False)
    assert caught.value.code is ErrorCode.SCHEMA_UNKNOWN
    with pytest.raises(DanubeError, match="not found") as caught:
        await topics.adopt(TOPIC, "absent")
    assert caught.value.code is ErrorCode.SUBJECT_UNKNOWN
    assert (await topics.get(TOPIC)).subject is None


async def test_strictness_changes_alone(topics: TopicSchemas) -> None:
    with pytest.raises(Conflict) as caught:
        await topics.set_policy(TOPIC, ValidationPolicy.ENFORCE, validate_payloads=True)
    assert caught.value.status.name == "FAILED_PRECONDITION"
    assert await topics.get(TOPIC) == TopicSchema()
    await topics.adopt(TOPIC, "a")
    await topics.set_policy(TOPIC, ValidationPolicy.ENFORCE, validate_payloads=True)
    assert await topics.get(TOPIC) == TopicSchema(
        subject="a", validation_policy=ValidationPolicy.ENFORCE, enable_payload_validation=True
    )


async def test_the_first_producer_binds_the_topic(topics: TopicSchemas) -> None:
    assert (await topics.adopt(TOPIC, "a")).subject == "a"
    assert (await topics.adopt(TOPIC, "a")).subject == "a"
    with pytest.raises(Conflict, match="'a'") as caught:
        await topics.adopt(TOPIC, "b")
    assert caught.value.code is ErrorCode.SUBJECT_CONFLICT


async def test_of_two_first_producers_one_wins(topics: TopicSchemas) -> None:
    results = await asyncio.gather(topics.adopt(TOPIC, "a"), topics.adopt(TOPIC, "b"), return_exceptions=True)
    assert sorted(isinstance(result, Conflict) for result in results) == [False, True]
    winner = next(result for result in results if isinstance(result, TopicSchema))
    assert await topics.get(TOPIC) == winner


async def test_a_deleted_topic_is_forgotten(topics: TopicSchemas) -> None:
    await topics.adopt(TOPIC, "a")
    await topics.forget(TOPIC)
    assert await topics.get(TOPIC) == TopicSchema()


async def test_policies_are_named_in_any_case() -> None:
    assert policy_of("EnForce") is ValidationPolicy.ENFORCE
    with pytest.raises(Rejected, match="none, warn, enforce") as caught:
        policy_of("strict")
    assert caught.value.status.name == "INVALID_ARGUMENT"
