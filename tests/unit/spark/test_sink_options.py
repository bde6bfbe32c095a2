"""What the sink refuses before anything is written, and what it makes of columns."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pydanube.kernel.errors import Rejected
from pydanube.spark.sink.columns import sink_columns
from pydanube.spark.sink.identity import Attempt, Session, task_writer
from pydanube.spark.sink.options import parse_write_options
from pydanube.spark.sink.parts import Router
from pydanube.spark.sink.writers import make_stream_writer, make_writer

TYPES = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "MAP<STRING STRING>": MapType(StringType(), StringType()),
    "MAP<STRING INT>": MapType(StringType(), IntegerType()),
}
TOPIC = {"topic": "/default/orders"}
PAYLOAD = "payload BINARY"


def schema(columns: str) -> StructType:
    """Of names and types; what Spark has for this wants a session."""
    fields = (column.split(" ", 1) for column in columns.split(", "))
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    ("ddl", "options", "told"),
    [
        (PAYLOAD, {}, "no topic to write to: set the option topic"),
        (PAYLOAD, {"topik": "/a/b"}, r"unknown option 'topik' for writing: did you mean topic\?"),
        (PAYLOAD, {"topic": "orders"}, "invalid topic name 'orders'"),
        (PAYLOAD, {**TOPIC, "path": "/a/b"}, "the topic is said twice"),
        (PAYLOAD, {**TOPIC, "partitions": "0"}, "invalid partitions '0': expected a number from 1"),
        (PAYLOAD, {**TOPIC, "writeId": "a/b"}, "invalid writeId 'a/b'"),
        (PAYLOAD, {**TOPIC, "changedRows": "drop"}, "invalid changedRows 'drop': expected one of fail, keep"),
        (PAYLOAD, {**TOPIC, "compression": "gzip"}, "invalid compression 'gzip': expected one of lz4, zstd"),
        ("value STRING", TOPIC, "column 'value' cannot be written to a topic: .*to_json"),
        ("payloads STRING", TOPIC, r"did you mean payload\?"),
        ("key STRING", TOPIC, "there is no column payload, only key"),
        ("payload BIGINT", TOPIC, "column 'payload' is BIGINT, expected BINARY or STRING"),
        (
            f"{PAYLOAD}, key STRING, routing_key STRING",
            TOPIC,
            "'key' and 'routing_key' are both the routing_key",
        ),
        (
            f"{PAYLOAD}, attributes MAP<STRING INT>",
            TOPIC,
            "column 'attributes' is MAP<STRING,INT>, expected",
        ),
        (f"{PAYLOAD}, schema_id INT", {**TOPIC, "schema": "s"}, "both name a schema"),
    ],
)
def test_refused(ddl: str, options: dict[str, str], told: str) -> None:
    for make in (make_writer, make_stream_writer):
        with pytest.raises(Rejected, match=told):
            make(options, schema(ddl))
        with pytest.raises(Rejected, match="topics cannot be overwritten"):
            make(options, schema(ddl), overwrite=True)


def test_options_of_spark_and_columns_of_brokers_are_no_fault() -> None:
    ddl = "topic STRING, offset BIGINT, append_time TIMESTAMP, producer_name STRING, payload STRING"
    make_stream_writer({**TOPIC, "checkpointLocation": "somewhere"}, schema(ddl))


def messages(ddl: str, columns: dict[str, pa.Array]) -> pa.Table:
    options = parse_write_options(TOPIC)
    return sink_columns(schema(ddl), options).messages(pa.record_batch(columns))


@pytest.mark.parametrize(
    ("ddl", "column", "values", "told"),
    [
        ("payload STRING", "payload", pa.array(["a", None]), "'payload' is null in row 2 of 2"),
        (
            "payload STRING",
            "payload",
            pa.array(["a", "x" * 5_000_000]),
            "'payload' has 5000000 bytes in row 2 of 2",
        ),
        (
            f"{PAYLOAD}, partition INT",
            "partition",
            pa.array([0, None], pa.int32()),
            "'partition' is null in row 2",
        ),
        (
            f"{PAYLOAD}, schema_id INT",
            "schema_id",
            pa.array([1, -1], pa.int32()),
            "'schema_id' of type int32 cannot",
        ),
        (
            f"{PAYLOAD}, attributes MAP<STRING STRING>",
            "attributes",
            pa.array([[("a", None)], None], pa.map_(pa.string(), pa.string())),
            "'attributes' has an attribute whose value is null",
        ),
    ],
)
def test_rows_that_cannot_be_messages(ddl: str, column: str, values: pa.Array, told: str) -> None:
    with pytest.raises(Rejected, match=told):
        messages(ddl, {"payload": pa.array([b"", b""]), column: values})


def test_times_are_cut_to_milliseconds() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)
    times = pa.array([moment], pa.timestamp("us", "Etc/UTC"))
    table = messages(
        f"{PAYLOAD}, publish_time TIMESTAMP", {"payload": pa.array([b""]), "publish_time": times}
    )
    assert table.column("publish_time").to_pylist() == [moment.replace(microsecond=678_000)]


ROW = st.tuples(
    st.binary(max_size=3),
    st.none() | st.text(alphabet="ab", max_size=2),
    st.none()
    | st.dictionaries(st.text(alphabet="ab", max_size=2), st.text(alphabet="ab", max_size=2), max_size=2),
)


@given(ROW, ROW)
def test_contents_are_told_apart(one: tuple, other: tuple) -> None:  # type: ignore[type-arg]
    columns = sink_columns(
        schema(f"{PAYLOAD}, key STRING, attributes MAP<STRING STRING>"),
        parse_write_options(TOPIC),
    )
    attributes = [None if row[2] is None else list(row[2].items())[::-1] for row in (one, other)]
    rows = pa.table(
        {
            "payload": pa.array([one[0], other[0]]),
            "routing_key": pa.array([one[1], other[1]], pa.string()),
            "attributes": pa.array(attributes, pa.map_(pa.string(), pa.string())),
        }
    )
    first, second = columns.digests("/default/orders", rows)
    is_same = (one[0], one[1], one[2] or None) == (other[0], other[1], other[2] or None)
    assert (first == second) == is_same
    assert next(columns.digests("/default/other", rows)) != first


def test_producer_names_tell_write_run_and_writer() -> None:
    attempt = Attempt("spark-a-r1-t2", "00ff", 7, has_ledger=True)
    mine = attempt.producer_name(task_writer(3))
    assert attempt.sessions([mine, "spark-a-r1-t2", f"x{mine}", f"{mine}-0"]) == {mine: Session("00ff", "t3")}


def test_rows_without_keys_go_to_partitions_in_turn_and_others_where_they_say() -> None:
    router = Router("/default/t", ["p0", "p1"])
    rows = pa.table({"payload": [b"a", b"b", b"c"]})
    assert [part for _ in range(3) for part, _ in router.route(rows)] == ["p0", "p1", "p0"]
    said = rows.append_column("partition", pa.array([1, 0, 1]))
    assert {part: some.column("payload").to_pylist() for part, some in router.route(said)} == {
        "p0": [b"b"],
        "p1": [b"a", b"c"],
    }
    with pytest.raises(Rejected, match="column partition is 1, but /default/t has 1"):
        list(Router("/default/t", ["p0"]).route(said))
