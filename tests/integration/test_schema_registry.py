"""The registry's API on both ports: what is answered, and with which status (control-plane spec, §5.1 to §5.3)."""

import json
from collections.abc import AsyncIterator

import pytest
from broker_harness.running_broker import RunningBroker
from broker_harness.schema_wire import ask, register
from broker_harness.wire_client import Status, WireClient, refused

PERSON = b'{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
STRICTER = (
    b'{"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},'
    b' "required": ["name", "age"]}'
)
AVRO = b'{"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]}'
PROTO = b'syntax = "proto3"; package shop; message Person { string name = 1; }'


@pytest.fixture(params=["client port", "admin port"])
async def tool(request: pytest.FixtureRequest, broker: RunningBroker) -> AsyncIterator[WireClient]:
    client = WireClient(broker.address if request.param == "client port" else broker.admin_address)
    yield client
    await client.close()


async def test_the_first_version_and_what_is_told_of_it(tool: WireClient, broker: RunningBroker) -> None:
    made = await register(
        tool, "person", PERSON, "JSON", description="people", created_by="test", tags=["a", "b"]
    )
    assert (made.schema_id, made.version, made.is_new_version) == (1, 1, True)
    assert made.fingerprint.startswith("sha256:")
    got = await ask(tool, "GetSchema", schema_id=1)
    assert (got.schema_id, got.version, got.subject, got.schema_type) == (1, 1, "person", "json_schema")
    assert (got.description, got.created_by, list(got.tags)) == ("people", "test", ["a", "b"])
    assert (got.fingerprint, got.compatibility_mode) == (made.fingerprint, "backward")
    assert abs(got.created_at - broker.clock.now_ms() // 1000) < 60
    assert got == await ask(tool, "GetLatestSchema", subject="person")


@pytest.mark.parametrize(
    ("schema_type", "definition", "envelope"),
    [
        ("json_schema", PERSON, {"JsonSchema": {"raw_schema": PERSON.decode()}}),
        ("avro", AVRO, {"Avro": {"raw_schema": AVRO.decode()}}),
        (
            "protobuf",
            PROTO,
            {"Protobuf": {"raw_proto": PROTO.decode(), "message_name": "shop.Person"}},
        ),
        ("bytes", b"", "Bytes"),
        ("string", b"whatever", "String"),
        ("int64", b"", "Number"),
    ],
)
async def test_definitions_come_in_an_envelope(
    client: WireClient, schema_type: str, definition: bytes, envelope: str | dict[str, dict[str, str]]
) -> None:
    made = await register(client, "s", definition, schema_type)
    if isinstance(envelope, dict):
        envelope = {kind: fields | {"fingerprint": made.fingerprint} for kind, fields in envelope.items()}
    got = await ask(client, "GetLatestSchema", subject="s")
    assert json.loads(got.schema_definition) == envelope


async def test_the_same_schema_again_is_the_same_version(tool: WireClient) -> None:
    await register(tool, "person", PERSON, "json_schema")
    again = await register(tool, "person", PERSON.replace(b" ", b""), "json_schema")
    assert (again.schema_id, again.version, again.is_new_version) == (1, 1, False)


async def test_versions_are_listed_in_order_and_share_the_id(tool: WireClient) -> None:
    for length in range(1, 12):
        definition = b'{"type": "string", "maxLength": %d}' % length
        made = await register(tool, "text", definition, "json_schema", description=f"number {length}")
        assert (made.schema_id, made.version) == (1, length)
    listed = (await ask(tool, "ListVersions", subject="text")).versions
    assert [(info.version, info.schema_id) for info in listed] == [(n, 1) for n in range(1, 12)]
    assert listed[10].description == "number 11"


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("GetSchema", {"schema_id": 7}),
        ("GetSchema", {"schema_id": 1, "version": 7}),
        ("GetSchema", {"schema_id": 1, "version": 0}),
        ("GetLatestSchema", {"subject": "unknown"}),
        ("ListVersions", {"subject": "unknown"}),
    ],
)
async def test_what_nobody_registered_is_not_found(
    tool: WireClient, method: str, fields: dict[str, int | str]
) -> None:
    await register(tool, "person", PERSON, "json_schema")
    with refused(Status.NOT_FOUND):
        await ask(tool, method, **fields)


@pytest.mark.parametrize(
    ("schema_type", "definition", "text"),
    [
        ("xml", b"", "xml"),
        ("json_schema", b"{", "JSON"),
        ("json_schema", b'{"type": "numeral"}', "numeral"),
        ("avro", b'{"type": "record"}', ""),
        ("protobuf", b"message {", ""),
        ("json_schema", STRICTER, "age"),
        ("avro", AVRO, "avro"),
    ],
)
async def test_a_refused_registration_is_internal_and_says_why(
    tool: WireClient, schema_type: str, definition: bytes, text: str
) -> None:
    await register(tool, "person", PERSON, "json_schema")
    with refused(Status.INTERNAL, text):
        await register(tool, "person", definition, schema_type)
    assert len((await ask(tool, "ListVersions", subject="person")).versions) == 1


async def test_a_check_changes_nothing_and_gives_reasons(tool: WireClient) -> None:
    await register(tool, "person", PERSON, "json_schema")
    question = {"subject": "person", "new_schema_definition": STRICTER, "schema_type": "json_schema"}
    answer = await ask(tool, "CheckCompatibility", **question)
    assert not answer.is_compatible
    assert any("age" in error for error in answer.errors)
    for mode, is_compatible in (("FORWARD", True), ("none", True), ("full", False), ("sideways", False)):
        answer = await ask(tool, "CheckCompatibility", compatibility_mode=mode, **question)
        assert (answer.is_compatible, bool(answer.errors)) == (is_compatible, not is_compatible), mode
    assert len((await ask(tool, "ListVersions", subject="person")).versions) == 1


@pytest.mark.parametrize(
    "change", [{"subject": "unknown"}, {"schema_type": "xml"}, {"new_schema_definition": b"{"}]
)
async def test_a_check_that_cannot_be_made_is_internal(tool: WireClient, change: dict[str, str]) -> None:
    await register(tool, "person", PERSON, "json_schema")
    question = {"subject": "person", "new_schema_definition": PERSON, "schema_type": "json_schema"} | change
    with refused(Status.INTERNAL):
        await ask(tool, "CheckCompatibility", **question)


async def test_the_mode_decides_what_may_be_registered(tool: WireClient) -> None:
    await register(tool, "person", PERSON, "json_schema")
    answer = await ask(tool, "SetCompatibilityMode", subject="person", compatibility_mode="NONE")
    assert answer.success
    assert (await ask(tool, "GetLatestSchema", subject="person")).compatibility_mode == "none"
    assert (await register(tool, "person", STRICTER, "json_schema")).version == 2
    with refused(Status.INVALID_ARGUMENT, "sideways"):
        await ask(tool, "SetCompatibilityMode", subject="person", compatibility_mode="sideways")
    with refused(Status.INTERNAL, "unknown"):
        await ask(tool, "SetCompatibilityMode", subject="unknown", compatibility_mode="full")


async def test_a_deleted_version_is_gone_and_its_number_is_not_given_again(tool: WireClient) -> None:
    await register(tool, "person", PERSON, "json_schema")
    await ask(tool, "SetCompatibilityMode", subject="person", compatibility_mode="none")
    await register(tool, "person", STRICTER, "json_schema")
    for _ in range(2):
        assert (await ask(tool, "DeleteSchemaVersion", subject="person", version=2)).success
    assert (await ask(tool, "GetLatestSchema", subject="person")).version == 1
    with refused(Status.NOT_FOUND):
        await ask(tool, "GetSchema", schema_id=1, version=2)
    assert (await register(tool, "person", STRICTER, "json_schema")).version == 3
    assert (await ask(tool, "DeleteSchemaVersion", subject="unknown", version=1)).success


async def test_subjects_are_listed_whatever_their_name(tool: WireClient) -> None:
    await register(tool, "plain", tags=["x"])
    await register(tool, "with/slash and späces", AVRO, "avro")
    subjects = (await ask(tool, "ListSubjects")).subjects
    assert [(s.subject, s.schema_type, s.latest_version, s.schema_id) for s in subjects] == [
        ("plain", "string", 1, 1),
        ("with/slash and späces", "avro", 1, 2),
    ]
    assert ([*subjects[0].tags], subjects[1].compatibility_mode) == (["x"], "backward")


async def test_both_ports_know_the_same_after_a_restart_too(broker: RunningBroker) -> None:
    await register(broker.client(), "person", PERSON, "json_schema")
    await broker.restart()
    admin = WireClient(broker.admin_address)
    assert (await ask(admin, "GetLatestSchema", subject="person")).schema_id == 1
    await admin.close()
    assert (await register(broker.client(), "other")).schema_id == 2


async def test_garbage_is_an_invalid_argument(tool: WireClient) -> None:
    with refused(Status.INVALID_ARGUMENT, "malformed"):
        await tool.call_raw("/danube_schema.SchemaRegistry/RegisterSchema", b"\xff\xff\xff")
