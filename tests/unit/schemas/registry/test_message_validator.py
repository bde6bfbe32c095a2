"""Which messages a topic accepts, and what is answered without waiting."""

import asyncio

import pytest

from pydanube.metadata import MetadataStore
from pydanube.schemas import message_validator
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.loaded_schemas import LoadedSchemas
from pydanube.schemas.message_validator import ACCEPTED, MessageValidator, Reason, Verdict
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy

NONE, WARN, ENFORCE = ValidationPolicy.NONE, ValidationPolicy.WARN, ValidationPolicy.ENFORCE
STRICT = TopicSchema(subject="text", validation_policy=ENFORCE, enable_payload_validation=True)


@pytest.fixture
async def registered(metadata: MetadataStore, registry: SchemaRegistry, clock) -> SchemaRegistry:
    """Id 1 is text, in version 2 also a number; id 2 is another subject's. Nothing of it is in memory."""
    await registry.register("text", SchemaKind.JSON_SCHEMA, b'{"type": "string"}')
    await registry.register("text", SchemaKind.JSON_SCHEMA, b'{"type": ["string", "integer"]}')
    await registry.register("other", SchemaKind.BYTES, b"")
    return SchemaRegistry(metadata, clock)


def outcome(verdict: Verdict | None) -> tuple[bool, str]:
    assert verdict is not None
    return verdict.accepted, verdict.reason.value if verdict.reason else ""


CASES = [
    ("fits", 1, 1, b'"x"', ""),
    ("fits another version", 1, 2, b"5", ""),
    ("no version means the first", 1, None, b"5", "payload_invalid"),
    ("does not fit", 1, 1, b"5", "payload_invalid"),
    ("names nothing", None, None, b'"x"', "missing_schema_id"),
    ("names nothing, as 0", 0, 0, b'"x"', "missing_schema_id"),
    ("unknown id", 99, 1, b'"x"', "unknown_schema"),
    ("unknown version", 1, 9, b'"x"', "unknown_schema"),
    ("another subject", 2, 1, b'"x"', "subject_mismatch"),
]


@pytest.mark.parametrize("policy", [WARN, ENFORCE])
@pytest.mark.parametrize("case", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_the_table_of_verdicts(
    registered: SchemaRegistry, policy: ValidationPolicy, case: tuple[int | None, int | None, bytes, str]
) -> None:
    schema_id, version, payload, reason = case
    config = TopicSchema(subject="text", validation_policy=policy, enable_payload_validation=True)
    validator = MessageValidator(registered.loaded, config)
    expected = (policy is WARN or not reason, reason)
    verdict = await validator.check(schema_id, version, payload)
    assert outcome(verdict) == expected
    assert bool(verdict.text) == bool(reason)
    assert validator.checked == 1
    assert sum(validator.failures.values()) == bool(reason)
    if reason != "unknown_schema":
        assert outcome(validator.check_now(schema_id, version, payload)) == expected
        assert validator.checked == 2


async def test_without_payload_validation_payload_and_version_do_not_matter(
    registered: SchemaRegistry,
) -> None:
    config = TopicSchema(subject="text", validation_policy=ENFORCE)
    validator = MessageValidator(registered.loaded, config)
    assert await validator.check(1, 77, b"not JSON") is ACCEPTED
    assert validator.check_now(1, 77, b"not JSON") is ACCEPTED
    assert outcome(await validator.check(2, 1, b"")) == (False, "subject_mismatch")


async def test_nothing_is_asked_of_a_topic_without_policy(registered: SchemaRegistry) -> None:
    validator = MessageValidator(registered.loaded, TopicSchema(subject="text", validation_policy=NONE))
    assert validator.is_idle
    assert validator.check_now(99, 1, b"") is ACCEPTED
    assert await validator.check(None, None, b"") is ACCEPTED
    assert validator.checked == 0


async def test_a_topic_without_subject(registered: SchemaRegistry) -> None:
    warning = MessageValidator(registered.loaded, TopicSchema())
    assert warning.check_now(None, None, b"") is ACCEPTED
    assert warning.check_now(2, 1, b"") is ACCEPTED
    assert (warning.checked, sum(warning.failures.values())) == (2, 0)
    enforcing = MessageValidator(registered.loaded, TopicSchema(validation_policy=ENFORCE))
    assert outcome(enforcing.check_now(2, 1, b"")) == (False, "topic_without_subject")


async def test_only_the_first_message_waits(registered: SchemaRegistry) -> None:
    validator = MessageValidator(registered.loaded, STRICT)
    assert validator.check_now(1, 1, b'"x"') is None
    assert validator.checked == 0
    assert await validator.check(1, 1, b'"x"') is ACCEPTED
    assert validator.check_now(1, 1, b'"x"') is ACCEPTED
    assert validator.check_now(1, 2, b'"x"') is None


async def test_large_payloads_are_checked_beside_the_loop(
    registered: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_validator, "LARGE_PAYLOAD_BYTES", 8)
    validator = MessageValidator(registered.loaded, STRICT)
    assert outcome(await validator.check(1, 1, b'"12345678"')) == (True, "")
    assert validator.check_now(1, 1, b'"12345678"') is None
    assert validator.check_now(1, 1, b'"12345"') is ACCEPTED
    assert outcome(await validator.check(1, 1, b"12345678")) == (False, "payload_invalid")


async def test_a_new_configuration_holds_from_the_next_message(registered: SchemaRegistry) -> None:
    validator = MessageValidator(registered.loaded, STRICT)
    assert outcome(await validator.check(1, 1, b"5")) == (False, "payload_invalid")
    validator.config = TopicSchema(subject="text", validation_policy=WARN, enable_payload_validation=True)
    assert outcome(validator.check_now(1, 1, b"5")) == (True, "payload_invalid")
    assert validator.failures[Reason.PAYLOAD_INVALID] == 2


async def test_a_schema_registered_after_it_was_asked_for_is_found(registered: SchemaRegistry) -> None:
    validator = MessageValidator(registered.loaded, STRICT)
    assert outcome(await validator.check(1, 3, b"true")) == (False, "unknown_schema")
    await registered.register("text", SchemaKind.JSON_SCHEMA, b'{"type": ["string", "integer", "boolean"]}')
    assert await validator.check(1, 3, b"true") is ACCEPTED


async def test_a_deleted_version_is_unknown_at_once(registered: SchemaRegistry) -> None:
    validator = MessageValidator(registered.loaded, STRICT)
    assert await validator.check(1, 1, b'"x"') is ACCEPTED
    await registered.delete_version("text", 1)
    assert validator.check_now(1, 1, b'"x"') is None
    assert outcome(await validator.check(1, 1, b'"x"')) == (False, "unknown_schema")


async def test_those_who_wait_for_one_schema_share_its_loading(
    registered: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = 0
    load = LoadedSchemas._load

    async def counted(self, schema_id: int, version: int):
        nonlocal loads
        loads += 1
        return await load(self, schema_id, version)

    monkeypatch.setattr(LoadedSchemas, "_load", counted)
    validator = MessageValidator(registered.loaded, STRICT)
    waiting = [asyncio.create_task(validator.check(1, 2, b"5")) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [ACCEPTED] * 19
    assert loads == 1


async def test_a_version_deleted_while_it_is_loaded_is_not_kept(
    registered: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = registered._parser.parse

    async def overtaken(*given):
        parsed = await parse(*given)
        await registered.delete_version("text", 1)
        return parsed

    monkeypatch.setattr(registered._parser, "parse", overtaken)
    await registered.loaded.load(1, 1)
    assert registered.loaded.get(1, 1) is None


async def test_what_another_broker_deletes_is_forgotten(
    metadata: MetadataStore, registered: SchemaRegistry, clock
) -> None:
    other = SchemaRegistry(metadata, clock)
    following = asyncio.create_task(registered.loaded.follow())
    await until(lambda: registered.loaded.is_following)
    try:
        for version in (1, 2):
            await registered.loaded.load(1, version)
        await other.delete_version("text", 1)
        await until(lambda: registered.loaded.get(1, 1) is None)
        assert registered.loaded.get(1, 2) is not None
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)
