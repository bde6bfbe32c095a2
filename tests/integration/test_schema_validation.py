"""What happens to messages that do not follow their topic's schema, over both protocols (control-plane spec, §5.4 to §5.6)."""

import asyncio
import json

import pytest
from broker_harness.native_wire import NativeProducer, refused_with
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.schema_wire import ask, configure, register
from broker_harness.wire_client import Producer, Status, WireClient, refused

from pydanube.broker import schema_validation
from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import danube_admin_pb2
from pydanube.protocol import danube_pb2 as pb
from pydanube.protocol.native.batch import NONE, ZSTD
from pydanube.schemas.message_validator import MessageValidator, Rule

TOPIC = "/default/people"
PERSON = b'{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
GOOD = b'{"name": "Ada"}'
BAD = b'{"name": 1}'
LAST = b'{"name": "last"}'
FAILURES = "danube_schema_validation_failures_total"
CHECKED = "danube_schema_validation_total"


def _by(subject: str) -> dict[str, pb.SchemaReference]:
    return {"schema_ref": pb.SchemaReference(subject=subject, use_latest=True)}


@pytest.fixture
async def people(client: WireClient) -> Producer:
    """A producer of a topic that enforces a JSON schema; its subject has id 1, another subject id 2."""
    await register(client, "person", PERSON, "json_schema")
    await register(client, "other", b'{"type": "integer"}', "json_schema")
    producer = await client.create_producer(TOPIC)
    await configure(client, TOPIC, "person")
    return producer


CASES = [
    ("fits", {"schema_id": 1, "schema_version": 1}, GOOD, ""),
    ("no version is the first", {"schema_id": 1}, GOOD, ""),
    ("does not fit", {"schema_id": 1, "schema_version": 1}, BAD, "name"),
    ("not JSON", {"schema_id": 1, "schema_version": 1}, b"Ada", "not JSON"),
    ("empty", {"schema_id": 1, "schema_version": 1}, b"", "not JSON"),
    ("no schema", {}, GOOD, "names no schema"),
    ("schema 0", {"schema_id": 0, "schema_version": 0}, GOOD, "names no schema"),
    ("unknown schema", {"schema_id": 99}, GOOD, "no schema has id 99"),
    ("largest schema", {"schema_id": (1 << 64) - 1, "schema_version": (1 << 32) - 1}, GOOD, "no schema"),
    ("unknown version", {"schema_id": 1, "schema_version": 9}, GOOD, "no version 9"),
    ("another subject", {"schema_id": 2, "schema_version": 1}, b"5", "'other'"),
]
each_case = pytest.mark.parametrize(
    ("fields", "payload", "problem"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)


@each_case
async def test_enforced_over_grpc(
    client: WireClient, people: Producer, fields: dict[str, int], payload: bytes, problem: str
) -> None:
    stream = await client.consume(TOPIC)
    for _ in range(2):  # the second time everything is in memory
        if problem:
            with refused(Status.INVALID_ARGUMENT, problem):
                await people.send(payload, **fields)
        else:
            await people.send(payload, **fields)
    await people.send(b'{"name": "last"}', schema_id=1)
    expected = [] if problem else [payload.decode()] * 2
    assert await stream.payloads(len(expected) + 1) == [*expected, '{"name": "last"}']


@each_case
@pytest.mark.usefixtures("people")
@pytest.mark.parametrize("form", ["row", "head", "columns", "compressed"])
async def test_enforced_over_the_native_protocol(
    broker: RunningBroker, form: str, fields: dict[str, int], payload: bytes, problem: str
) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC, "native")
    body = _body(producer, form, payload, fields)
    for _ in range(2):
        if problem:
            place = {"row": "", "head": "message 0 of 2"}.get(form, "message 1 of 2")
            with refused_with(_code_of(problem), problem) as caught:
                await producer.send(body)
            assert place in str(caught.value)
        else:
            await producer.send(body)
    await producer.send(producer.row(LAST, schema_id=1))
    kept = 0 if problem else 2 if form == "row" else 4
    payloads = await (await native.open_reader(TOPIC)).payloads(kept + 1)
    assert payloads[kept] == LAST.decode()


def _body(producer: NativeProducer, form: str, payload: bytes, fields: dict[str, int]) -> bytes:
    """As a row, twice in a batch that shares the schema, or behind a good one in a batch with columns."""
    if form == "row":
        return producer.row(payload, **fields)
    if form == "head":
        return producer.batch([payload] * 2, producer.head(**fields))
    return producer.batch(
        [GOOD, payload],
        codec=ZSTD if form == "compressed" else NONE,
        schema_ids=[1, fields.get("schema_id")],
        schema_versions=[1, fields.get("schema_version")],
    )


def _code_of(problem: str) -> ErrorCode:
    is_payload = problem in ("name", "not JSON")
    return ErrorCode.PAYLOAD_INVALID if is_payload else ErrorCode.SCHEMA_MISMATCH


@each_case
async def test_warned_of_and_accepted(
    start_broker: StartBroker, fields: dict[str, int], payload: bytes, problem: str
) -> None:
    broker = await start_broker(metrics=True)
    client = broker.client()
    await register(client, "person", PERSON, "json_schema")
    await register(client, "other", b'{"type": "integer"}', "json_schema")
    producer = await client.create_producer(TOPIC)
    await configure(client, TOPIC, "person", "Warn")
    stream = await client.consume(TOPIC)
    await producer.send(payload, **fields)
    assert await stream.payloads(1) == [payload.decode()]
    native = await (await broker.native()).open_producer(TOPIC, "native")
    await native.send(_body(native, "columns", payload, fields))
    assert await broker.metric(CHECKED) == 3
    assert await broker.metric(FAILURES) == (2 if problem else 0)


async def test_policy_none_looks_at_nothing(start_broker: StartBroker) -> None:
    broker = await start_broker(metrics=True)
    client = broker.client()
    await register(client, "person", PERSON, "json_schema")
    producer = await client.create_producer(TOPIC)
    await configure(client, TOPIC, "person", "none")
    await producer.send(b"anything")
    assert await broker.metric(CHECKED) == 0


async def test_topics_without_subject_take_everything_and_count_it(start_broker: StartBroker) -> None:
    broker = await start_broker(metrics=True)
    client = broker.client()
    producer = await client.create_producer(TOPIC)
    await producer.send("one", schema_id=99)
    await producer.send("two")
    assert (await broker.metric(CHECKED), await broker.metric(FAILURES)) == (2, 0)
    await register(client, "text")
    await configure(client, TOPIC, "text", payloads=False)
    with refused(Status.INVALID_ARGUMENT):
        await producer.send("three")
    assert (await broker.metric(CHECKED), await broker.metric(FAILURES)) == (3, 1)


async def test_without_payload_validation_only_the_name_of_the_schema_counts(
    client: WireClient, people: Producer
) -> None:
    await configure(client, TOPIC, "person", payloads=False)
    await people.send(BAD, schema_id=1, schema_version=77)
    with refused(Status.INVALID_ARGUMENT):
        await people.send(GOOD, schema_id=2)


async def test_every_message_is_checked_by_its_own_version(client: WireClient, people: Producer) -> None:
    wider = PERSON.replace(b'"string"', b'["string", "integer"]')
    assert (await register(client, "person", wider, "json_schema")).version == 2
    await people.send(BAD, schema_id=1, schema_version=2)
    with refused(Status.INVALID_ARGUMENT):
        await people.send(BAD, schema_id=1, schema_version=1)
    await ask(client, "DeleteSchemaVersion", subject="person", version=2)
    with refused(Status.INVALID_ARGUMENT, "no version 2"):
        await people.send(BAD, schema_id=1, schema_version=2)


FORMATS = [
    ("string", b"", "grüße".encode(), b"\xff"),
    ("number", b"", bytes(8), bytes(5)),
    ("bytes", b"", b"\xff", None),
    (
        "avro",
        b'{"type": "record", "name": "P", "fields": [{"name": "n", "type": "string"}]}',
        b"\x06Ada",
        b"\x06A",
    ),
    ("protobuf", b'syntax = "proto3"; message P { string n = 1; }', b"\x0a\x03Ada", b"\x0a\x09Ada"),
]


@pytest.mark.parametrize(("schema_type", "definition", "good", "bad"), FORMATS)
async def test_payloads_of_every_format(
    client: WireClient, schema_type: str, definition: bytes, good: bytes, bad: bytes | None
) -> None:
    await register(client, "s", definition, schema_type)
    producer = await client.create_producer(TOPIC)
    await configure(client, TOPIC, "s")
    await producer.send(good, schema_id=1, schema_version=1)
    if bad is not None:
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(bad, schema_id=1, schema_version=1)


async def test_non_reliable_topics_are_checked_too(broker: RunningBroker, client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    producer = await client.create_producer(TOPIC, reliable=False)
    await configure(client, TOPIC, "person")
    stream = await client.consume(TOPIC)
    with refused(Status.INVALID_ARGUMENT):
        await producer.send(BAD, schema_id=1)
    await producer.send(GOOD, schema_id=1)
    native = await (await broker.native()).open_producer(TOPIC, "native", reliable=False)
    with refused_with(ErrorCode.PAYLOAD_INVALID):
        await native.send(native.row(BAD, schema_id=1))
    await native.send(native.row(LAST, schema_id=1))
    assert await stream.payloads(2) == [GOOD.decode(), LAST.decode()]


# Messages that wait


async def test_messages_keep_their_order_while_a_schema_is_loaded(
    broker: RunningBroker, people: Producer
) -> None:
    """A restarted broker has no schema in memory: the first message waits, and all behind it."""
    await broker.restart()
    native = await broker.native()
    producer = await native.open_producer(TOPIC, "native", idempotent=True)
    requests = [
        producer.publish(producer.row(b'{"name": "%d"}' % n, schema_id=1, schema_version=1), n)
        for n in range(1, 101)
    ]
    answers = [await producer.published(request) for request in requests]
    assert [answer.offset for answer in answers] == list(range(100))
    reader = await native.open_reader(TOPIC)
    assert await reader.payloads(100) == [f'{{"name": "{n}"}}' for n in range(1, 101)]


async def test_one_refused_while_waiting_leaves_a_gap_the_producer_hears_of(
    broker: RunningBroker, people: Producer
) -> None:
    await broker.restart()
    producer = await (await broker.native()).open_producer(TOPIC, "native", idempotent=True)
    rows = [producer.row(payload, schema_id=1) for payload in (GOOD, BAD, GOOD)]
    first, second, third = (producer.publish(row, n) for n, row in enumerate(rows, 1))
    assert (await producer.published(first)).offset == 0
    with refused_with(ErrorCode.PAYLOAD_INVALID):
        await producer.published(second)
    with refused_with(ErrorCode.SEQUENCE_GAP):
        await producer.published(third)
    assert (await producer.send(rows[2], 2)).offset == 1


async def test_many_over_grpc_at_once_while_a_schema_is_loaded(
    broker: RunningBroker, people: Producer
) -> None:
    await broker.restart()
    client = broker.client()
    producer = await client.create_producer(TOPIC, people.name)
    payloads = [b'{"name": "%d"}' % n for n in range(50)]
    await asyncio.gather(*(producer.send(payload, schema_id=1) for payload in payloads))
    reader = await (await broker.native()).open_reader(TOPIC)
    assert sorted(await reader.payloads(50)) == sorted(payload.decode() for payload in payloads)


async def test_a_large_batch_is_checked_in_turns(broker: RunningBroker, people: Producer) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC, "native")
    payloads = [json.dumps({"name": str(n) * 50}) for n in range(5_000)]
    head = producer.head(schema_id=1, schema_version=1)
    behind = producer.row(LAST, schema_id=1)
    first, last = producer.publish(producer.batch(payloads, head)), producer.publish(behind)
    assert (await producer.published(first)).messages == 5_000
    assert (await producer.published(last)).offset == 5_000
    payloads[4_321] = '{"name": 5}'
    with refused_with(ErrorCode.PAYLOAD_INVALID, "message 4321 of 5000"):
        await producer.send(producer.batch(payloads, head))
    assert (await producer.send(behind)).offset == 5_001


async def test_a_large_payload_is_checked_beside_the_loop(client: WireClient, people: Producer) -> None:
    large = json.dumps({"name": "x" * 900_000}).encode()
    await people.send(large, schema_id=1)
    with refused(Status.INVALID_ARGUMENT, "not JSON"):
        await people.send(large[:-1], schema_id=1)


async def test_what_waits_is_bounded(
    broker: RunningBroker, people: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_validation, "HELD_MAX", 10)
    await broker.restart()
    producer = await (await broker.native()).open_producer(TOPIC, "native")
    requests = [producer.publish(producer.row(GOOD, schema_id=1)) for _ in range(20)]
    assert [(await producer.published(request)).offset for request in requests[:10]] == list(range(10))
    for request in requests[10:]:
        with refused_with(ErrorCode.OVERLOADED, TOPIC):
            await producer.published(request)
    assert (await producer.send(producer.row(GOOD, schema_id=1))).offset == 10


async def test_what_waits_is_refused_when_the_broker_stops(
    broker: RunningBroker, people: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, never = asyncio.Event(), asyncio.Event()

    async def stuck(self: MessageValidator, schema_id: int, version: int) -> Rule:
        is_asked.set()
        await never.wait()
        raise AssertionError

    monkeypatch.setattr(MessageValidator, "rule_now", lambda self, schema_id, version: None)
    monkeypatch.setattr(MessageValidator, "rule", stuck)
    sending = asyncio.create_task(people.send(GOOD, schema_id=1))
    await is_asked.wait()
    await broker.stop()
    with refused(Status.UNAVAILABLE):
        await sending


# Configurations


async def test_a_topic_nobody_configured(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    config = await ask(client, "GetTopicSchemaConfig", topic_name=TOPIC)
    assert (config.schema_subject, config.validation_policy) == ("", "warn")
    assert (config.enable_payload_validation, config.schema_id) == (False, 0)


async def test_a_configuration_is_told_and_outlives_a_restart(
    broker: RunningBroker, client: WireClient, people: Producer
) -> None:
    answer = await configure(client, TOPIC, "other", "WARN")
    assert answer.success
    assert all(word in answer.message for word in (TOPIC, "other", "warn"))
    answer = await ask(client, "UpdateTopicValidationPolicy", topic_name=TOPIC, validation_policy="Enforce")
    assert answer.success
    for _ in range(2):
        config = await ask(broker.client(), "GetTopicSchemaConfig", topic_name=TOPIC)
        assert (config.schema_subject, config.validation_policy) == ("other", "enforce")
        assert (config.enable_payload_validation, config.schema_id) == (False, 2)
        producer = await broker.client().create_producer(TOPIC, people.name)
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(GOOD, schema_id=1)
        await broker.restart()


async def test_configurations_that_cannot_be(client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    await client.create_producer(TOPIC)
    with refused(Status.INVALID_ARGUMENT, "strict"):
        await configure(client, TOPIC, "unknown", "strict")
    with refused(Status.NOT_FOUND, "unknown"):
        await configure(client, TOPIC, "unknown")
    with refused(Status.NOT_FOUND, "/default/missing"):
        await configure(client, "/default/missing", "person")
    with refused(Status.NOT_FOUND):
        await ask(client, "GetTopicSchemaConfig", topic_name="/default/missing")
    change = {"topic_name": TOPIC, "validation_policy": "enforce", "enable_payload_validation": True}
    with refused(Status.FAILED_PRECONDITION):
        await ask(client, "UpdateTopicValidationPolicy", **change)
    config = await ask(client, "GetTopicSchemaConfig", topic_name=TOPIC)
    assert (config.validation_policy, config.enable_payload_validation) == ("warn", False)
    with refused(Status.INVALID_ARGUMENT):
        await ask(client, "UpdateTopicValidationPolicy", **change | {"validation_policy": "strict"})
    with refused(Status.NOT_FOUND):
        await ask(client, "UpdateTopicValidationPolicy", **change | {"topic_name": "/default/missing"})


async def test_the_subject_of_the_first_producer_is_kept(broker: RunningBroker, client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    await register(client, "other")
    await client.create_producer(TOPIC)
    await client.create_producer(TOPIC, "first", **_by("person"))
    await broker.restart()
    client = broker.client()
    config = await ask(client, "GetTopicSchemaConfig", topic_name=TOPIC)
    assert (config.schema_subject, config.schema_id) == ("person", 1)
    with refused(Status.FAILED_PRECONDITION, "person"):
        await client.create_producer(TOPIC, "second", **_by("other"))
    await configure(client, TOPIC, "other")  # an operator may
    await client.create_producer(TOPIC, "second", **_by("other"))


async def test_all_partitions_are_configured_by_the_name_of_the_topic(client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    producers = [await client.create_producer(f"{TOPIC}-part-{n}") for n in range(3)]
    await configure(client, TOPIC, "person")
    for producer in producers:
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(BAD, schema_id=1)
    assert (await ask(client, "GetTopicSchemaConfig", topic_name=TOPIC)).schema_subject == "person"


async def test_a_partition_made_later_follows_what_the_others_do(
    broker: RunningBroker, client: WireClient
) -> None:
    await register(client, "person", PERSON, "json_schema")
    await register(client, "other")
    await client.create_producer(f"{TOPIC}-part-0")
    await configure(client, TOPIC, "person")
    late = await client.create_producer(f"{TOPIC}-part-1")
    with refused(Status.INVALID_ARGUMENT):
        await late.send(BAD, schema_id=1)
    with refused(Status.FAILED_PRECONDITION, "person"):
        await client.create_producer(f"{TOPIC}-part-2", **_by("other"))
    with refused(Status.NOT_FOUND):
        await ask(client, "GetTopicSchemaConfig", topic_name=f"{TOPIC}-part-2")
    await broker.restart()
    late = await broker.client().create_producer(f"{TOPIC}-part-1")
    with refused(Status.INVALID_ARGUMENT):
        await late.send(BAD, schema_id=1)


async def test_the_subject_of_the_first_producer_is_that_of_all_partitions(client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    await register(client, "other")
    second, first = [await client.create_producer(f"{TOPIC}-part-{n}") for n in (1, 0)]
    await client.create_producer(f"{TOPIC}-part-1", "named", **_by("person"))
    assert (await ask(client, "GetTopicSchemaConfig", topic_name=TOPIC)).schema_subject == "person"
    with refused(Status.FAILED_PRECONDITION, "person"):
        await client.create_producer(f"{TOPIC}-part-0", "named", **_by("other"))
    await ask(
        client,
        "UpdateTopicValidationPolicy",
        topic_name=TOPIC,
        validation_policy="enforce",
        enable_payload_validation=True,
    )
    for producer in (first, second):
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(BAD, schema_id=1)


async def test_a_partition_made_while_the_others_are_configured_is_not_forgotten(client: WireClient) -> None:
    await register(client, "person", PERSON, "json_schema")
    await client.create_producer(f"{TOPIC}-part-0")
    _, *producers = await asyncio.gather(
        configure(client, TOPIC, "person"),
        *(client.create_producer(f"{TOPIC}-part-{n}") for n in range(1, 20)),
    )
    for producer in producers:
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(BAD, schema_id=1)


async def test_a_topic_made_anew_begins_without_schema(
    broker: RunningBroker, client: WireClient, people: Producer
) -> None:
    admin = WireClient(broker.admin_address)
    request = danube_admin_pb2.TopicRequest(name=TOPIC).SerializeToString()
    await admin.call_raw("/danube_admin.TopicAdmin/DeleteTopic", request)
    await admin.close()
    producer = await client.create_producer(TOPIC, **_by("other"))
    await producer.send(BAD)
