"""The schema registry as each client uses it: versions of a subject, and which change is taken."""

import json
from collections.abc import Callable

import pytest
from client_harness.agent import Agent, ClientError
from client_harness.schemas import NARROWER, PERSON, WIDER, Schemas

AVRO = '{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}'
AVRO_NARROWER = AVRO.replace("}]", '}, {"name": "age", "type": "int"}]')
PROTO = 'syntax = "proto3"; message Person { string name = 1; }'
PROTO_CHANGED = PROTO.replace("string", "int32")
FORMATS = ("json_schema", "avro", "protobuf")
FREER = PERSON.replace('["name"]', "[]")


@pytest.mark.parametrize(
    ("kind", "definition", "outer", "field"),
    [
        ("json_schema", PERSON, "JsonSchema", "raw_schema"),
        ("avro", AVRO, "Avro", "raw_schema"),
        ("protobuf", PROTO, "Protobuf", "raw_proto"),
    ],
    ids=FORMATS,
)
def test_a_schema_is_found_as_it_was_registered(  # noqa: PLR0917
    schemas: Schemas, subject: str, kind: str, definition: str, outer: str, field: str
) -> None:
    schema_id = schemas.register(subject, definition, kind)
    latest = schemas.latest(subject)
    assert (latest["schema_id"], latest["version"], latest["subject"]) == (schema_id, 1, subject)
    assert (latest["schema_type"], latest["fingerprint"][:7]) == (kind, "sha256:")
    assert json.loads(latest["schema_definition"])[outer][field] == definition
    assert schemas.by_id(schema_id) == latest
    assert schemas.by_id(schema_id, 1) == latest


@pytest.mark.parametrize("kind", ["bytes", "string", "number"])
def test_a_plain_type_is_a_schema_too(schemas: Schemas, subject: str, kind: str) -> None:
    schema_id = schemas.register(subject, "of no importance", kind)
    assert schemas.register(subject, "something else", kind) == schema_id
    found = schemas.latest(subject)
    assert (found["schema_type"], found["fingerprint"], found["version"]) == (kind, kind, 1)
    assert json.loads(found["schema_definition"]) == kind.capitalize()


@pytest.mark.needs("empty definitions")
def test_a_plain_type_needs_no_definition(schemas: Schemas, subject: str) -> None:
    schemas.register(subject, "", "string")
    assert schemas.latest(subject)["schema_type"] == "string"


def test_a_subject_keeps_its_id_and_all_its_versions(schemas: Schemas, subject: str) -> None:
    schema_id = schemas.register(subject)
    assert schemas.register(subject, WIDER) == schema_id
    assert schemas.versions(subject) == [1, 2]
    found = [json.loads(schemas.by_id(schema_id, version)["schema_definition"]) for version in (1, 2)]
    assert [each["JsonSchema"]["raw_schema"] for each in found] == [PERSON, WIDER]
    assert schemas.latest(subject) == schemas.by_id(schema_id) == schemas.by_id(schema_id, 2)


def test_what_is_registered_already_is_no_new_version(schemas: Schemas, subject: str) -> None:
    schema_id = schemas.register(subject)
    schemas.register(subject, WIDER)
    for again in (PERSON, PERSON.replace(" ", ""), json.dumps(json.loads(PERSON), indent=2)):
        assert schemas.register(subject, again) == schema_id
    assert schemas.versions(subject) == [1, 2]


def test_registrations_at_once_get_a_version_each(agent: Agent, schemas: Schemas, subject: str) -> None:
    definitions = [json.dumps({"properties": {f"p{n}": {"type": "string"}}}) for n in range(6)]
    under_way = [
        agent.begin("register_schema", subject=subject, type="json_schema", definition=definition)
        for definition in definitions * 2
    ]
    (schema_id,) = {registration.wait()["schema_id"] for registration in under_way}
    assert schemas.versions(subject) == [1, 2, 3, 4, 5, 6]
    found = [json.loads(schemas.by_id(schema_id, version)["schema_definition"]) for version in range(1, 7)]
    assert {each["JsonSchema"]["raw_schema"] for each in found} == set(definitions)


def test_without_the_latest_version_the_one_before_is_the_latest(schemas: Schemas, subject: str) -> None:
    schema_id = schemas.register(subject)
    first = schemas.latest(subject)
    schemas.register(subject, WIDER)
    schemas.delete(subject, 2)
    assert schemas.latest(subject) == schemas.by_id(schema_id) == first
    schemas.delete(subject, 1)
    with pytest.raises(ClientError, match=subject) as refused:
        schemas.latest(subject)
    assert refused.value.code == "NOT_FOUND"


def test_a_deleted_version_is_gone_and_its_number_not_used_again(schemas: Schemas, subject: str) -> None:
    schema_id = schemas.register(subject)
    schemas.register(subject, WIDER)
    schemas.delete(subject, 1)
    assert schemas.versions(subject) == [2]
    with pytest.raises(ClientError) as refused:
        schemas.by_id(schema_id, 1)
    assert refused.value.code == "NOT_FOUND"
    schemas.set_mode(subject, "none")
    schemas.register(subject, NARROWER)
    assert schemas.versions(subject) == [2, 3]
    schemas.delete(subject, 1)
    schemas.delete(subject + "-of-nobody", 1)


@pytest.mark.parametrize(
    ("mode", "narrower", "freer"),
    [
        ("none", True, True),
        ("backward", False, True),
        ("forward", True, False),
        ("full", False, False),
    ],
    ids=["none", "backward", "forward", "full"],
)
def test_a_mode_decides_whom_a_change_may_break(
    schemas: Schemas, subject: str, mode: str, narrower: bool, freer: bool
) -> None:
    schemas.register(subject)
    expected = {NARROWER: narrower, FREER: freer}
    assert {each: not schemas.problems(subject, each, mode=mode) for each in expected} == expected
    schemas.set_mode(subject, mode)
    assert {each: not schemas.problems(subject, each) for each in expected} == expected


@pytest.mark.parametrize(
    ("kind", "first", "second", "named"),
    [
        ("json_schema", PERSON, NARROWER, "'age'"),
        ("avro", AVRO, AVRO_NARROWER, "'age'"),
        ("protobuf", PROTO, PROTO_CHANGED, "int32"),
    ],
    ids=FORMATS,
)
def test_a_change_that_breaks_readers_is_refused_with_the_reason(  # noqa: PLR0917
    schemas: Schemas, subject: str, kind: str, first: str, second: str, named: str
) -> None:
    schemas.register(subject, first, kind)
    (problem,) = schemas.problems(subject, second, kind)
    assert named in problem
    with pytest.raises(ClientError) as refused:
        schemas.register(subject, second, kind)
    assert refused.value.code == "INTERNAL"
    for words in (subject, "backward", named):
        assert words in refused.value.text
    assert schemas.versions(subject) == [1]
    schemas.set_mode(subject, "none")
    schemas.register(subject, second, kind)
    assert schemas.versions(subject) == [1, 2]


def test_a_subject_does_not_change_its_format(schemas: Schemas, subject: str) -> None:
    schemas.register(subject)
    with pytest.raises(ClientError, match="avro") as refused:
        schemas.register(subject, AVRO, "avro")
    assert refused.value.code == "INTERNAL"


@pytest.mark.parametrize(
    ("kind", "definition"),
    [("json_schema", '{"type": 5}'), ("avro", '{"type": "record"}'), ("protobuf", "message {")],
    ids=FORMATS,
)
def test_a_schema_nobody_can_read_is_refused(
    schemas: Schemas, subject: str, kind: str, definition: str
) -> None:
    with pytest.raises(ClientError) as refused:
        schemas.register(subject, definition, kind)
    assert refused.value.code == "INTERNAL"
    with pytest.raises(ClientError, match=f"{subject}.*not found"):
        schemas.latest(subject)


def test_an_unknown_subject_is_named(schemas: Schemas, subject: str) -> None:
    asked: list[tuple[str, Callable[[], object]]] = [
        ("NOT_FOUND", lambda: schemas.latest(subject)),
        ("NOT_FOUND", lambda: schemas.versions(subject)),
        ("INTERNAL", lambda: schemas.problems(subject, PERSON)),
        ("INTERNAL", lambda: schemas.set_mode(subject, "full")),
    ]
    for code, ask in asked:
        with pytest.raises(ClientError, match=f"{subject}.*not found") as refused:
            ask()
        assert refused.value.code == code


def test_an_unknown_id_or_version_is_not_found(schemas: Schemas, subject: str) -> None:
    schema_id = schemas.register(subject)
    for unknown_id, version in ((1_000_000_007, None), (1_000_000_007, 1), (schema_id, 9)):
        with pytest.raises(ClientError) as refused:
            schemas.by_id(unknown_id, version)
        assert refused.value.code == "NOT_FOUND"


@pytest.mark.parametrize("name", ["with/slash", "with space", "größe", "a.b-c_d", "x" * 200])
def test_subjects_are_named_freely(schemas: Schemas, subject: str, name: str) -> None:
    schemas.register(f"{subject}-{name}")
    assert schemas.latest(f"{subject}-{name}")["subject"] == f"{subject}-{name}"
