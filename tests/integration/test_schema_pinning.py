"""Consumers that read with one version of a schema whatever producers write with."""

import asyncio
from typing import Any

import pytest
from broker_harness.running_broker import RunningBroker

from pydanube.client import (
    Conflict,
    Consumer,
    DanubeError,
    ErrorCode,
    Message,
    Rejected,
    SchemaRef,
    SchemaReference,
    blocking,
    connect,
)
from pydanube.client.client import Client

TOPIC = "/default/orders"

AVRO_1 = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
AVRO_2 = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, '
    '{"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"}]}'
)
AVRO_3 = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}, '
    '"default": "NEW"}]}'
)
JSON_1 = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
JSON_2 = '{"type": "object", "properties": {"id": {"type": ["integer", "string"]}}, "required": ["id"]}'
PROTO_1 = 'syntax = "proto3"; message Order { int64 id = 1; }'
PROTO_2 = 'syntax = "proto3"; message Order { int64 id = 1; string note = 2; }'
PROTO_3 = 'syntax = "proto3"; message Order { sint64 id = 1; string note = 2; }'


@pytest.fixture
def url(broker: RunningBroker) -> str:
    return f"danube://{broker.address}"


async def register(client: Client, kind: str, *definitions: str, mode: str = "none") -> None:
    for definition in definitions:
        await client.schemas.register("orders", definition, kind)
        await client.schemas.set_mode("orders", mode)


async def publish(client: Client, *values: tuple[int, Any]) -> None:
    """Each value with the version it is written with."""
    for version, value in values:
        schema = SchemaRef("orders", version=version)
        codec = await client.schemas.codec(schema)
        async with client.producer(TOPIC, schema=schema) as producer:
            await producer.send(codec.encode(value))


def consumer(client: Client, **schema: int) -> Consumer:
    return client.consumer(TOPIC, subscription="s", start="earliest", schema=SchemaRef("orders", **schema))


async def failure(consumer: Consumer, message: Message) -> DanubeError:
    with pytest.raises(Rejected) as caught:
        await consumer.decode(message)
    return caught.value


async def test_avro_is_resolved_onto_the_pinned_version(url: str) -> None:
    async with connect(url) as client:
        await register(client, "avro", AVRO_1, AVRO_2)
        await publish(client, (1, {"id": 1}), (2, {"id": 2, "state": "PAID"}))
        async with consumer(client, version=2) as newer:
            messages = [await newer.receive(10) for _ in range(2)]
            assert [await newer.decode(each) for each in messages] == [
                {"id": 1, "state": "NEW"},
                {"id": 2, "state": "PAID"},
            ]
        async with client.reader(TOPIC, schema=SchemaRef("orders", version=1)) as older:
            messages = [await older.receive(10) for _ in range(2)]
            assert [await older.decode(each) for each in messages] == [{"id": 1}, {"id": 2}]


async def test_without_a_pin_each_message_is_read_with_its_own_version(url: str) -> None:
    async with connect(url) as client:
        await register(client, "avro", AVRO_1, AVRO_2)
        await publish(client, (1, {"id": 1}), (2, {"id": 2, "state": "PAID"}))
        async with client.consumer(TOPIC, subscription="s", start="earliest") as plain:
            assert [await plain.decode(await plain.receive(10)) for _ in range(2)] == [
                {"id": 1},
                {"id": 2, "state": "PAID"},
            ]


async def test_what_cannot_be_read_is_an_error_of_that_message_alone(url: str) -> None:
    """A longer id cannot be narrowed: the version is refused, message by message, and none is lost."""
    async with connect(url) as client:
        await register(client, "avro", AVRO_1, AVRO_2, AVRO_3)
        await publish(client, (1, {"id": 1}), (3, {"id": 2, "state": "NEW"}), (2, {"id": 3, "state": "NEW"}))
        async with consumer(client, version=2) as pinned:
            first, second, third = [await pinned.receive(10) for _ in range(3)]
            assert (await pinned.decode(first))["id"] == 1
            for _ in range(2):
                error = await failure(pinned, second)
                assert error.code is ErrorCode.SCHEMA_INCOMPATIBLE
                assert "version 3" in error.text
                assert "'id'" in error.text
            assert (await pinned.decode(third))["id"] == 3
            await pinned.ack([first, third], confirm=True)
            await pinned.nack(second)
            again = await pinned.receive(10)
            assert (again.offset, again.attempt) == (second.offset, 2)
            await pinned.ack(again, confirm=True)


async def test_a_symbol_the_pinned_version_lacks_matters_only_where_it_is_used(url: str) -> None:
    wider = AVRO_2.replace('"PAID"', '"PAID", "SENT"')
    async with connect(url) as client:
        await register(client, "avro", AVRO_2, wider)
        await publish(client, (2, {"id": 1, "state": "PAID"}), (2, {"id": 2, "state": "SENT"}))
        async with consumer(client, version=1) as pinned:
            assert await pinned.decode(await pinned.receive(10)) == {"id": 1, "state": "PAID"}
            error = await failure(pinned, await pinned.receive(10))
            assert error.code is ErrorCode.PAYLOAD_INVALID
            assert "SENT" in error.text


async def test_json_has_to_fit_the_pinned_version(url: str) -> None:
    async with connect(url) as client:
        await register(client, "json_schema", JSON_1, JSON_2)
        await publish(client, (2, {"id": 1}), (2, {"id": "two"}))
        async with consumer(client, version=1) as pinned:
            assert await pinned.decode(await pinned.receive(10)) == {"id": 1}
            error = await failure(pinned, await pinned.receive(10))
            assert error.code is ErrorCode.PAYLOAD_INVALID
            assert "version 1" in error.text


async def test_protobuf_is_read_with_the_pinned_descriptor(url: str) -> None:
    async with connect(url) as client:
        await register(client, "protobuf", PROTO_1, PROTO_2, PROTO_3)
        await publish(client, (2, {"id": 7, "note": "n"}), (3, {"id": 7}))
        async with consumer(client, version=1) as pinned:
            order = await pinned.decode(await pinned.receive(10))
            assert (order.id, [field.name for field in order.DESCRIPTOR.fields]) == (7, ["id"])
            # The bytes of a sint64 are an int64 as well, of another value: the schemas have to tell.
            error = await failure(pinned, await pinned.receive(10))
            assert error.code is ErrorCode.SCHEMA_INCOMPATIBLE


async def test_a_subject_that_changed_its_type(url: str) -> None:
    async with connect(url) as client:
        await register(client, "json_schema", JSON_1)
        await client.schemas.register("orders", AVRO_1, "avro")
        await publish(client, (2, {"id": 1}))
        async with consumer(client, version=1) as pinned:
            error = await failure(pinned, await pinned.receive(10))
            assert error.code is ErrorCode.SCHEMA_INCOMPATIBLE


async def test_messages_of_no_or_another_subject(url: str) -> None:
    async with connect(url) as client:
        await register(client, "json_schema", JSON_1)
        other = await client.schemas.register("other", "{}", "json_schema")
        async with client.producer(TOPIC) as producer:
            await producer.send(b"{}")
            await producer.send(b"{}", schema_id=other.schema_id, schema_version=1)
            await producer.send(b'{"id": 1}', schema_id=1)
            await producer.send(b"{}", schema_id=1, schema_version=9)
        async with consumer(client, at_least=1) as pinned:
            for text in ("names no schema", "names schema 2"):
                error = await failure(pinned, await pinned.receive(10))
                assert error.code is ErrorCode.SCHEMA_MISMATCH
                assert text in error.text
            assert await pinned.decode(await pinned.receive(10)) == {"id": 1}
            error = await failure(pinned, await pinned.receive(10))
            assert error.code is ErrorCode.SCHEMA_UNKNOWN


async def test_a_pin_that_cannot_hold_fails_before_anything_is_subscribed(url: str) -> None:
    async with connect(url) as client:
        await register(client, "json_schema", JSON_1)
        await client.schemas.register("other", "{}", "json_schema")
        async with client.producer(TOPIC, schema="other"):
            pass
        for missing in (SchemaRef("orders", version=5), SchemaRef("orders", at_least=5), "nothing"):
            with pytest.raises(Rejected) as caught:
                await client.consumer(TOPIC, subscription="s", schema=missing).open()
            assert caught.value.code is ErrorCode.SCHEMA_UNKNOWN
        with pytest.raises(Conflict, match="follows schema subject 'other'") as conflict:
            await client.consumer(TOPIC, subscription="s", schema="orders").open()
        assert conflict.value.code is ErrorCode.SUBJECT_CONFLICT
        with pytest.raises(Conflict):
            await client.reader(TOPIC, schema="orders").open()


async def test_references_are_followed_for_values(url: str) -> None:
    money = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
    line = '{"type": "record", "name": "shop.Line", "fields": [{"name": "price", "type": "shop.Money"}]}'
    order = '["null", "shop.Line", {"type": "array", "items": "shop.Money"}]'
    async with connect(url) as client:
        schemas = client.schemas
        await schemas.register("money", money, "avro")
        to_money = SchemaReference("shop.Money", "money", 1)
        await schemas.register("line", line, "avro", references=[to_money])
        to_line = SchemaReference("shop.Line", "line", 1)
        assert (await schemas.register("orders", order, "avro", references=[to_line])).version == 1
        assert (await schemas.latest("orders")).references == (to_line,)
        assert await schemas.check("orders", '["null", "shop.Line"]', "avro", references=[to_line]) != []
        await publish(client, (1, {"price": {"cents": 5}}), (1, [{"cents": 6}]), (1, None))
        async with consumer(client, version=1) as pinned:
            values = [await pinned.decode(await pinned.receive(10)) for _ in range(3)]
        assert values == [{"price": {"cents": 5}}, [{"cents": 6}], None]
        with pytest.raises(Conflict, match="version 1 of 'line'") as caught:
            await schemas.delete_version("money", 1)
        assert caught.value.code is ErrorCode.SCHEMA_IN_USE
        with pytest.raises(Rejected) as missing:
            await schemas.register("x", order, "avro", references=[SchemaReference("shop.Line", "line", 9)])
        assert missing.value.code is ErrorCode.SCHEMA_UNKNOWN
        with pytest.raises(Rejected) as broken:
            await schemas.register("orders", '["null", "shop.Line"]', "avro", references=[to_line])
        assert broken.value.code is ErrorCode.SCHEMA_INCOMPATIBLE


def _blocking(url: str) -> None:
    with blocking.connect(url) as client:
        for definition in (JSON_1, JSON_2):
            client.schemas.register("orders", definition, "json_schema")
        with client.producer(TOPIC, schema="orders") as producer:
            producer.send(b'{"id": "two"}')
            producer.send(b'{"id": 1}')
        pinned = SchemaRef("orders", version=1)
        with client.consumer(TOPIC, subscription="s", start="earliest", schema=pinned) as consumer:
            with pytest.raises(Rejected):
                consumer.decode(consumer.receive(10))
            assert consumer.decode(consumer.receive(10)) == {"id": 1}
        with client.reader(TOPIC, schema=pinned) as reader, pytest.raises(Rejected):
            reader.decode(reader.receive(10))


async def test_without_an_event_loop(url: str) -> None:
    await asyncio.to_thread(_blocking, url)
