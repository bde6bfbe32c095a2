"""Our client and schemas: the registry, producers that name a schema, payloads as values."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
import trustme
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.tokens import TRUSTED, root_token

from pydanube.client import TLS, Conflict, ErrorCode, Message, Rejected, SchemaRef, blocking, connect
from pydanube.client.client import Client
from pydanube.protocol import schema_registry_pb2

TOPIC = "/default/orders"
ORDER = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
WIDER = '{"type": "object", "properties": {"id": {"type": ["integer", "string"]}}, "required": ["id"]}'
AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; repeated string lines = 2; }'


@pytest.fixture
def url(broker: RunningBroker) -> str:
    return f"danube://{broker.address}"


async def _receive(client: Client, count: int) -> list[Message]:
    async with client.reader(TOPIC) as reader:
        return [await reader.receive(10) for _ in range(count)]


async def test_the_registry(url: str) -> None:
    async with connect(url) as client:
        schemas = client.schemas
        made = await schemas.register("orders", ORDER, "json_schema", description="first", tags=["shop"])
        assert (made.schema_id, made.version, made.is_new_version) == (1, 1, True)
        assert not (await schemas.register("orders", ORDER, "json")).is_new_version
        assert await schemas.check("orders", WIDER, "json_schema") == []
        assert await schemas.check("orders", WIDER, "json_schema", mode="forward") != []
        await schemas.register("orders", WIDER, "json_schema")
        latest = await schemas.latest("orders")
        assert (latest.version, latest.definition, latest.type) == (2, WIDER, "json_schema")
        first = await schemas.get(1, 1)
        assert (first.definition, first.description, first.tags) == (ORDER, "first", ("shop",))
        assert [each.version for each in await schemas.versions("orders")] == [1, 2]
        await schemas.set_mode("orders", "FULL")
        assert [(each.subject, each.mode) for each in await schemas.subjects()] == [("orders", "full")]
        await schemas.delete_version("orders", 2)
        assert (await schemas.latest("orders")).version == 1
        with pytest.raises(Rejected, match="not found") as caught:
            await schemas.latest("unknown")
        assert caught.value.code is ErrorCode.SCHEMA_UNKNOWN
        with pytest.raises(Rejected, match="not JSON") as caught:
            await schemas.register("orders", "{", "json_schema")
        assert caught.value.code is ErrorCode.SCHEMA_INVALID


async def test_topics_and_their_subjects(url: str) -> None:
    async with connect(url) as client, client.producer(TOPIC):
        await client.schemas.register("orders", ORDER, "json_schema")
        assert (await client.schemas.topic_config(TOPIC)).subject is None
        with pytest.raises(Conflict):
            await client.schemas.set_topic_policy(TOPIC, "enforce")
        await client.schemas.configure_topic(TOPIC, "orders", policy="warn", payloads=False)
        await client.schemas.set_topic_policy(TOPIC, "enforce")
        config = await client.schemas.topic_config(TOPIC)
        assert (config.subject, config.schema_id, config.policy, config.payloads) == (
            "orders",
            1,
            "enforce",
            True,
        )


async def test_a_producer_names_its_schema_on_every_message(broker: RunningBroker, url: str) -> None:
    async with connect(url) as client:
        await client.schemas.register("orders", ORDER, "json_schema")
        await client.schemas.register("orders", WIDER, "json_schema")
        async with client.producer(TOPIC, schema="orders", name="p") as producer:
            await client.schemas.configure_topic(TOPIC, "orders")
            await producer.send(b'{"id": 1}')
            await asyncio.gather(*(producer.send(b'{"id": %d}' % n) for n in range(2, 5)))
            await asyncio.gather(
                producer.send(b'{"id": 5}', key="k"),
                producer.send(b'{"id": 6}', schema_id=1, schema_version=1),
                producer.send(b'{"id": 7}', schema_id=1),
            )
            await producer.send_many([b'{"id": 8}', b'{"id": 9}'])
            with pytest.raises(Rejected, match="id") as caught:
                await producer.send(b"{}")
            assert caught.value.code is ErrorCode.PAYLOAD_INVALID
            await broker.restart()
            await producer.send(b'{"id": 10}')
        messages = await _receive(client, 10)
        assert [await client.schemas.decode(each) for each in messages] == [{"id": n} for n in range(1, 11)]
        assert {each.schema_id for each in messages} == {1}
        assert [each.schema_version for each in messages] == [2] * 5 + [1, None] + [2] * 3


async def test_which_version_is_meant(url: str) -> None:
    async with connect(url) as client:
        await client.schemas.register("orders", ORDER, "json_schema")
        await client.schemas.register("orders", WIDER, "json_schema")
        for reference, version in (
            (SchemaRef("orders"), 2),
            (SchemaRef("orders", version=1), 1),
            (SchemaRef("orders", at_least=2), 2),
        ):
            assert await client.schemas.resolve(reference) == (1, version)
        with pytest.raises(Conflict, match="not found"):
            await client.producer(TOPIC, schema="other").open()
        for missing in (SchemaRef("orders", version=3), SchemaRef("orders", at_least=3)):
            with pytest.raises(Rejected):
                await client.producer(TOPIC, schema=missing).open()
        with pytest.raises(Conflict, match="'orders'"):
            await client.producer(TOPIC, schema="other").open()
    with pytest.raises(Rejected, match="exclude"):
        SchemaRef("orders", version=1, at_least=1)


@pytest.mark.parametrize(
    ("kind", "definition", "value", "wrong"),
    [
        ("bytes", "", b"\xff\x00", "text"),
        ("string", "", "grüße", 5),
        ("number", "", -7, "7"),
        ("json_schema", ORDER, {"id": 5, "note": "ü"}, {"id": "x"}),
        ("avro", AVRO, {"id": 1 << 40}, {"id": "x"}),
    ],
)
async def test_values(url: str, kind: str, definition: str, value: object, wrong: object) -> None:
    async with connect(url) as client:
        await client.schemas.register("s", definition, kind)
        codec = await client.schemas.codec("s")
        async with client.producer(TOPIC, schema="s") as producer:
            await client.schemas.configure_topic(TOPIC, "s")
            await producer.send(codec.encode(value))
        [message] = await _receive(client, 1)
        assert await client.schemas.decode(message) == value
        with pytest.raises(Rejected) as caught:
            codec.encode(wrong)
        assert caught.value.code is ErrorCode.PAYLOAD_INVALID


async def test_protobuf_values_are_messages(url: str) -> None:
    async with connect(url) as client:
        await client.schemas.register("s", PROTO, "protobuf")
        codec = await client.schemas.codec("s")
        async with client.producer(TOPIC, schema="s") as producer:
            await client.schemas.configure_topic(TOPIC, "s")
            await producer.send(codec.encode({"id": "7", "lines": ["a", "b"]}))
        [message] = await _receive(client, 1)
        order = await client.schemas.decode(message)
        assert (order.id, list(order.lines)) == (7, ["a", "b"])  # type: ignore[attr-defined]
        assert codec.encode(order) == message.payload
        for wrong in ({"number": 7}, {"id": "x"}, 5):
            with pytest.raises(Rejected):
                codec.encode(wrong)


async def test_a_message_that_names_no_schema_is_its_payload(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"plain")
            await producer.send(b"lost", schema_id=99)
        plain, lost = await _receive(client, 2)
        assert await client.schemas.decode(plain) == b"plain"
        for _ in range(2):  # asked, then remembered for a moment
            with pytest.raises(Rejected, match="99"):
                await client.schemas.decode(lost)


def _blocking(url: str) -> None:
    with blocking.connect(url) as client:
        client.schemas.register("orders", ORDER, "json_schema")
        assert client.schemas.latest("orders").version == 1
        codec = client.schemas.codec("orders")
        with client.producer(TOPIC, schema="orders") as producer:
            client.schemas.configure_topic(TOPIC, "orders")
            producer.send(codec.encode({"id": 1}))
        with client.reader(TOPIC) as reader:
            assert client.schemas.decode(reader.receive(10)) == {"id": 1}


async def test_without_an_event_loop(url: str) -> None:
    await asyncio.to_thread(_blocking, url)


async def test_over_tls_with_a_token(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    ca, chain, key = (tmp_path / name for name in ("ca.pem", "chain.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    certificate.cert_chain_pems[0].write_to_path(chain)
    certificate.private_key_pem.write_to_path(key)
    broker = await start_broker(
        auth={"mode": "tls", "tls": {"cert_file": str(chain), "key_file": str(key)}, **TRUSTED}
    )
    async with connect(f"danubes://{broker.address}", tls=TLS(ca=ca), token=root_token()) as client:
        assert (await client.schemas.register("orders", ORDER, "json_schema")).version == 1


async def test_a_transitive_mode_is_told_in_words_every_client_knows(broker: RunningBroker) -> None:
    """Published clients refuse an answer whose mode is none of the four they know."""
    async with connect(f"danube://{broker.address}") as client:
        await client.schemas.register("orders", '{"type": "object"}', "json_schema")
        await client.schemas.set_mode("orders", "backward_transitive")
        assert (await client.schemas.latest("orders")).mode == "backward_transitive"
    async with grpc.aio.insecure_channel(broker.address) as channel:
        ask = channel.unary_unary("/danube_schema.SchemaRegistry/GetLatestSchema")
        answer = await ask(schema_registry_pb2.GetLatestSchemaRequest(subject="orders").SerializeToString())
    told = schema_registry_pb2.GetSchemaResponse.FromString(answer)
    assert (told.compatibility_mode, told.compatibility_is_transitive) == ("backward", True)
