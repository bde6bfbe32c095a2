"""Typed columns through the registry of a real broker, in a real session."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from spark_harness.broker_process import BrokerProcess

from pydanube.client.schema_records import SchemaReference
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.decoding import FileSchemas, RegistrySchemas, decode, replay_quarantine, table_schema

V1 = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "amount": {"type": "integer"}, "offset": {"type": "string"}},
    "required": ["id"],
}
V2 = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "amount": {"type": "number"},
        "offset": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"a.b": {"type": "string"}, "n": {"type": "integer"}}},
        },
        "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
}
Message = tuple[int | None, int | None, bytes]
"""Schema id, version and payload."""


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess) -> int:
    """The id of the subject `orders`, which has two versions."""
    with broker.client() as client:
        client.schemas.register("orders", json.dumps(V1), "json_schema")
        return client.schemas.register("orders", json.dumps(V2), "json_schema").schema_id


def messages(spark: SparkSession, given: Sequence[Message]) -> DataFrame:
    # One partition: a few rows are not worth two Python workers.
    return spark.createDataFrame(table_of(given)).coalesce(1)


def table_of(given: Sequence[Message]) -> pa.Table:
    rows = [
        {
            "topic": "/default/orders",
            "partition": 0,
            "offset": 100 + index,
            "publish_time": 1_000_000,
            "append_time": 2_000_000,
            "producer_name": "p",
            "routing_key": None,
            "attributes": [("a", "b")],
            "schema_id": schema_id,
            "schema_version": version,
            "payload": payload,
        }
        for index, (schema_id, version, payload) in enumerate(given)
    ]
    return pa.Table.from_pylist(rows, schema=MESSAGE_SCHEMA)


def by_offset(df: DataFrame) -> dict[int, Row]:
    return {row["offset"]: row for row in df.collect()}


def given_mixed(orders: int) -> list[Message]:
    """Good rows at 100 and 102; the others are bad."""
    return [
        (orders, 1, b'{"id": 1, "amount": 3, "offset": "x"}'),
        (orders, 2, b'{"id": "one"}'),
        (
            orders,
            2,
            b'{"id": 2, "amount": 0.5, "at": "2026-01-31T12:00:00+01:00", "lines": [{"a.b": "c", "n": 4}], "labels": {"k": 1}}',
        ),
        (orders + 1_000, 1, b'{"id": 3}'),
        (orders, 77, b'{"id": 4}'),
        (None, None, b'{"id": 5}'),
    ]


BAD = {
    101: "'id': ",
    103: "is not of subject 'orders'",
    104: "has no version 77",
    105: "names no schema",
}


def test_versions_side_by_side_become_one_table_and_bad_messages_are_told_apart(
    spark: SparkSession, broker: BrokerProcess, orders: int
) -> None:
    schemas = RegistrySchemas(broker.connection, "orders").load()
    decoded = decode(messages(spark, given_mixed(orders)), schemas, on_error="permissive")
    assert decoded.rows.columns == [
        "topic", "partition", "offset", "publish_time", "append_time", "producer_name", "routing_key", "attributes",
        *table_schema(schemas).names, "_decode_error",
    ]  # fmt: skip
    assert table_schema(schemas).simpleString() == (
        "struct<id:bigint,amount:double,offset_:string,at:timestamp,lines:array<struct<a.b:string,n:bigint>>,"
        "labels:map<string,bigint>>"
    )
    rows = by_offset(decoded.rows)
    assert (rows[100].id, rows[100].amount, rows[100].offset_, rows[100].at) == (1, 3.0, "x", None)
    assert rows[100].attributes == {"a": "b"}
    assert rows[102].at.isoformat() == "2026-01-31T11:00:00"
    assert rows[102].lines == [Row(**{"a.b": "c", "n": 4})]
    assert rows[102].labels == {"k": 1}
    assert {offset for offset, row in rows.items() if row._decode_error is not None} == BAD.keys()
    for offset, reason in BAD.items():
        assert rows[offset].id is None
        assert reason in rows[offset]._decode_error


def test_quarantine_keeps_what_came_and_can_be_replayed(
    spark: SparkSession, broker: BrokerProcess, orders: int
) -> None:
    given = given_mixed(orders)
    schemas = RegistrySchemas(broker.connection, "orders")
    decoded = decode(messages(spark, given), schemas, on_error="quarantine", keep=["offset"])
    assert {row["offset"]: row["amount"] for row in decoded.rows.collect()} == {100: 3.0, 102: 0.5}
    decoded.quarantined.createOrReplaceTempView("bad_orders")
    try:
        kept = by_offset(spark.table("bad_orders"))
        assert kept.keys() == BAD.keys()
        for offset, row in kept.items():
            assert (row.schema_id, row.schema_version, bytes(row.payload)) == given[offset - 100]
            assert (row.topic, row.producer_name, row.attributes) == ("/default/orders", "p", {"a": "b"})
            assert BAD[offset] in row.reason
        repaired = RegistrySchemas(broker.connection, "orders", unnamed_rows="decode")
        replayed = by_offset(replay_quarantine("bad_orders", repaired, on_error="permissive").rows)
        assert replayed[105].id == 5
        assert [replayed[offset]._decode_error for offset in (101, 103, 104)] == [
            kept[offset].reason for offset in (101, 103, 104)
        ]
        assert replayed[105]._decode_error is None
    finally:
        spark.catalog.dropTempView("bad_orders")


def test_fail_names_the_message(spark: SparkSession, broker: BrokerProcess, orders: int) -> None:
    schemas = RegistrySchemas(broker.connection, "orders")
    given = [(orders, 1, b'{"id": 1}'), (orders, 1, b"{}")]
    decoded = decode(messages(spark, given), schemas, on_error="fail")
    with pytest.raises(PySparkException) as failed:
        decoded.rows.collect()
    assert (
        'a payload cannot be decoded: topic /default/orders, partition 0, offset 101, "id" is a required property'
        in str(failed.value)
    )


def test_a_stream_is_decoded_too_and_later_versions_are_fetched(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    with broker.client() as client:
        made = client.schemas.register(
            "readings", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}', "avro"
        )
        schemas = RegistrySchemas(broker.connection, "readings").load()
        later = '{"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "default": 0}, {"name": "a", "type": "int"}]}'
        assert client.schemas.register("readings", later, "avro").version == 2
    (tmp_path / "in").mkdir()
    given = [
        (made.schema_id, 1, b"\x02"),
        (made.schema_id, 2, b"\x04\x06"),
        (made.schema_id, 3, b"\x02"),
        (made.schema_id, 1, b""),
    ]
    pq.write_table(table_of(given), tmp_path / "in" / "one.parquet")
    stream = spark.readStream.schema(messages(spark, given).schema).parquet(str(tmp_path / "in"))
    decoded = decode(stream, schemas, on_error="permissive", keep=["offset"])
    query = (
        decoded.rows.writeStream.format("memory")
        .queryName("decoded_stream")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    rows = by_offset(spark.table("decoded_stream"))
    spark.catalog.dropTempView("decoded_stream")
    assert [(row.a, row._decode_error) for _, row in sorted(rows.items())] == [
        (1, None),
        (3, None),
        (None, "subject 'readings' has no version 3"),
        (None, "'a': the payload ends inside this field"),
    ]


def test_the_subject_of_a_topic_and_a_pinned_version(broker: BrokerProcess, orders: int) -> None:
    broker.publish("/default/pinned", [b"{}"])
    pinned = RegistrySchemas(broker.connection, topic="/default/pinned", version=1)
    with pytest.raises(Rejected, match="follows no schema subject") as refused:
        pinned.load()
    assert refused.value.code is ErrorCode.SUBJECT_UNKNOWN
    with broker.client() as client:
        client.schemas.configure_topic("/default/pinned", "orders", policy="none")
    assert table_schema(pinned).simpleString() == "struct<id:bigint,amount:bigint,offset_:string>"
    with pytest.raises(Rejected):
        RegistrySchemas(broker.connection, "no-such-subject").load()


def test_schemas_bring_along_what_they_refer_to(broker: BrokerProcess) -> None:
    with broker.client() as client:
        day = '{"$defs": {"day": {"type": "string", "format": "date"}}}'
        client.schemas.register("days", day, "json_schema")
        span = '{"properties": {"first": {"$ref": "days#/$defs/day"}}}'
        client.schemas.register("spans", span, "json_schema", references=[SchemaReference("days", "days", 1)])
        trip = '{"properties": {"when": {"$ref": "spans"}}}'
        client.schemas.register(
            "trips", trip, "json_schema", references=[SchemaReference("spans", "spans", 1)]
        )
    columns = table_schema(RegistrySchemas(broker.connection, "trips"))
    assert columns.simpleString() == "struct<when:struct<first:date>>"


def test_schemas_of_files_decode_whatever_messages_name(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(V1))
    texts = spark.createDataFrame([('{"id": 9}',), ("{}",)], "payload STRING")
    decoded = decode(texts, FileSchemas(str(path), "json_schema"), on_error="quarantine", keep=[])
    assert decoded.rows.columns == ["id", "amount", "offset_"]
    (bad,) = decoded.quarantined.collect()
    assert (bad.topic, bad.offset, bytes(bad.payload)) == (None, None, b"{}")
    with pytest.raises(Rejected, match="cannot be read: No such file"):
        FileSchemas(str(tmp_path / "none"), "avro").load()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"on_error": "ignore"}, "invalid on_error 'ignore': use one of permissive, quarantine, fail"),
        ({"keep": ["no_such"]}, "no column 'no_such'"),
    ],
)
def test_wrong_arguments_are_refused(spark: SparkSession, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(Rejected, match=text):
        decode(messages(spark, []), FileSchemas("", "string"), **arguments)
