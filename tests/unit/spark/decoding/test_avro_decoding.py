"""Avro data as rows."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydanube.client.schema_codec import codec_of
from pydanube.schemas.format import SchemaKind
from pydanube.spark.decoding import table_schema
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def columns_of(schema: Any) -> str:
    return table_schema(
        LoadedSchemas(Definition(SchemaKind.AVRO, json.dumps(schema).encode()))
    ).simpleString()


def encoded(schema: Any, value: Any) -> bytes:
    return codec_of("avro", json.dumps(schema).encode(), 7, 1).encode(value)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "binary"),
        ("string", "string"),
        ("null", "string"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "int", "logicalType": "time-millis"}, "int"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "array", "items": "int"}, "array<int>"),
        ({"type": "map", "values": ["null", "int"]}, "map<string,int>"),
        (["null", "long"], "bigint"),
        (["long", "null"], "bigint"),
        (["null", "long", "string"], "string"),
        (["null", "R"], "string"),
        (record(field("x", "int"), name="S"), "struct<x:int>"),
        (record(name="Empty"), "string"),
    ],
)
def test_a_type_has_a_column(schema: Any, column: str) -> None:
    assert columns_of(record(field("c", schema))) == f"struct<c:{column}>"


def test_what_is_no_record_is_one_column(decode_all: Any) -> None:
    assert columns_of("int") == "struct<value:int>"
    assert decode_all("avro", ['"string"'], [(1, b"\x02a")]) == [{"value": "a"}]


V1 = record(
    field("id", "int"),
    field("old_name", "string"),
    field("gone", {"type": "map", "values": {"type": "array", "items": "R"}}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
    field("state", {"type": "enum", "name": "State", "symbols": ["NEW", "LOST"]}),
    field("raw", "string"),
)
V2 = record(
    field("id", "long"),
    field("name", ["null", "string"], aliases=["old_name"]),
    field("at", {"type": "long", "logicalType": "timestamp-micros"}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("state", {"type": "enum", "name": "State", "symbols": ["NEW", "OTHER"], "default": "OTHER"}),
    field("raw", "bytes"),
    field(
        "added",
        record(field("n", "int", default=5), field("l", {"type": "array", "items": "int"}), name="Added"),
        default={"l": [1]},
    ),
    field("nothing", ["null", "string"], default=None),
    field("required_later", "int"),
)


def test_old_data_is_read_as_the_table_has_it(decode_all: Any) -> None:
    old = {
        "id": -1, "old_name": "n", "gone": {"k": []}, "at": datetime(2026, 1, 31, 1, 2, 3, 4000, UTC),
        "price": Decimal("-1.5"), "state": "LOST", "raw": "é",
    }  # fmt: skip
    new = {
        "id": 2**40, "name": None, "at": datetime(2026, 1, 31, 1, 2, 3, 4, UTC), "price": Decimal("2.25"),
        "state": "NEW", "raw": b"\xff", "added": {"n": 1, "l": []}, "nothing": "x", "required_later": 3,
    }  # fmt: skip
    rows = decode_all(
        "avro", [json.dumps(V1), json.dumps(V2)], [(1, encoded(V1, old)), (2, encoded(V2, new))]
    )
    assert rows == [
        {
            "id": -1, "name": "n", "at": old["at"], "price": Decimal("-1.50"), "state": "OTHER",
            "raw": "é".encode(), "added": {"n": 5, "l": [1]}, "nothing": None, "required_later": None,
        },
        new,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "table", "value", "expected"),
    [
        ("int", "double", 3, 3.0),
        ("long", "float", 3, 3.0),
        ("float", "double", 0.5, 0.5),
        ("bytes", "string", b"a", "a"),
        ("bytes", "string", b"\xff", "'c': the value does not fit a column of type string"),
        ("long", "int", 3, 3),
        ("long", "int", 2**40, "'c': the value does not fit a column of type int"),
        ("string", "long", "3", "'c': string was written, which does not fit a column of type bigint"),
        ("int", {"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        (["int", "string"], "long", 3, 3),
        (["int", "string"], "long", "x", "'c': string was written, which does not fit a column of type bigint"),
        (["null", "int"], "int", None, None),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1], [1]),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, [1], "'c': array was written, which does not fit a column of type map<string,int>"),
        ({"type": "map", "values": "int"}, ["int", "string", {"type": "map", "values": "int"}], {"a": 1}, '{"a":1}'),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            Decimal("1.25"),
            "'c': the number does not fit 4 digits, 1 of them after the point",
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            b"ab",
            "'c': fixed F of 2 bytes was written, which does not fit a column of type binary",
        ),
    ],
)  # fmt: skip
def test_types_that_changed(decode_all: Any, written: Any, table: Any, value: Any, expected: Any) -> None:
    versions = [record(field("c", written)), record(field("c", table))]
    (row,) = decode_all(
        "avro", [json.dumps(each) for each in versions], [(1, encoded(versions[0], {"c": value}))]
    )
    assert row == (expected if isinstance(expected, str) and expected.startswith("'c'") else {"c": expected})


def test_a_type_inside_itself_is_json(decode_all: Any) -> None:
    schema = record(
        field("x", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}),
        field("on", {"type": "int", "logicalType": "date"}),
        field("next", ["null", "R"], default=None),
    )
    inner = {"x": Decimal("1.5"), "on": date(2026, 1, 31), "next": None}
    (row,) = decode_all("avro", [json.dumps(schema)], [(1, encoded(schema, {**inner, "next": inner}))])
    assert row == {**inner, "next": '{"x":"1.5","on":"2026-01-31","next":null}'}


HOSTILE = record(
    field("n", "int"),
    field("nulls", {"type": "array", "items": "null"}),
    field("text", "string"),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("next", ["null", "R"]),
)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "'n': the payload ends inside this field"),
        (b"\xff\xff\xff\xff\xff\x7f", "'n': "),
        (b"\xff" * 20, "'n': "),
        (b"\x02\x80\x80\x80\x80\x80\x80\x80\x80\x10", "'nulls': more values than bytes"),
        (b"\x02\x00\x02\xff", "'text': the string at byte 3 is not UTF-8"),
        (b"\x02\x00\x01", "'text': a length before byte 3 is negative"),
        (b"\x02\x00\x7fab", "'text': "),
        (b"\x02\x00\x00" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x00", "'at': the time is not within"),
        (b"\x02\x00\x00\x00\x04", "'next': branch 2 of a union with 2"),
        (b"\x02\x00\x00\x00\x00\x00", "1 bytes are left after the datum"),
        (b"\x02\x00\x00\x00\x02" * 100_000, "records deep"),
        (b"Obj\x01", "container file"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_datum(decode_all: Any, payload: bytes, reason: str) -> None:
    good = b"\x02\x00\x00\x00\x00"
    bad, row = decode_all("avro", [json.dumps(HOSTILE)], [(1, payload), (1, good)])
    assert isinstance(bad, str)
    assert reason in bad
    assert row["n"] == 1


def test_not_a_number_is_a_number(decode_all: Any) -> None:
    (row,) = decode_all("avro", ['"double"'], [(1, encoded("double", float("nan")))])
    assert row["value"] != row["value"]


TIMES = st.datetimes(timezones=st.just(UTC))
LEAVES = st.sampled_from(
    [
        ("boolean", st.booleans()),
        ("int", st.integers(-(2**31), 2**31 - 1)),
        ("long", st.integers(-(2**63), 2**63 - 1)),
        ("float", st.floats(width=32, allow_nan=False)),
        ("double", st.floats(allow_nan=False)),
        ("bytes", st.binary()),
        ("string", st.text()),
        (["null", "string"], st.none() | st.text()),
        ({"type": "int", "logicalType": "date"}, st.dates()),
        ({"type": "long", "logicalType": "timestamp-micros"}, TIMES),
        ({"type": "string", "logicalType": "uuid"}, st.uuids()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
            st.decimals(-(10**15), 10**15, allow_nan=False, places=3),
        ),
    ]
)  # fmt: skip


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda pair: ({"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=3))),
        inner.map(
            lambda pair: (
                {"type": "map", "values": pair[0]},
                st.dictionaries(st.text(max_size=3), pair[1], max_size=3),
            )
        ),
        records(inner),
    )


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(inner, min_size=1, max_size=4)
    return st.tuples(fields, st.uuids()).map(
        lambda made: (
            record(
                *(field(f"f{index}", schema) for index, (schema, _) in enumerate(made[0])),
                name=f"R{made[1].hex}",
            ),
            st.fixed_dictionaries({f"f{index}": values for index, (_, values) in enumerate(made[0])}),
        )
    )


def expected(schema: Any, value: Any) -> Any:
    """What a column holds of a value the codec decoded."""
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(schema, dict) or value is None:
        return value
    match schema["type"]:
        case "record":
            return {each["name"]: expected(each["type"], value[each["name"]]) for each in schema["fields"]}
        case "map":
            return [(key, expected(schema["values"], item)) for key, item in value.items()]
        case "array":
            return [expected(schema["items"], item) for item in value]
    return value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_columns_hold_what_the_codec_decodes(decode_all: Any, data: st.DataObject) -> None:
    schema, values = data.draw(records(st.recursive(LEAVES, nested, max_leaves=6)))
    codec = codec_of("avro", json.dumps(schema).encode(), 7, 1)
    payloads = [codec.encode(value) for value in data.draw(st.lists(values, min_size=1, max_size=4))]
    rows = decode_all("avro", [json.dumps(schema)], [(1, payload) for payload in payloads])
    assert rows == [expected(schema, codec.decode(payload)) for payload in payloads]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
def test_a_row_is_made_of_what_the_broker_accepts_and_of_nothing_else(
    decode_all: Any, payload: bytes
) -> None:
    """But for containers, and for times no calendar has."""
    schema = record(
        field("n", "int"), field("b", "boolean"), field("u", ["null", "string", "double"]),
        field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}), field("l", {"type": "array", "items": "R"}),
    )  # fmt: skip
    problem = Definition(SchemaKind.AVRO, json.dumps(schema).encode()).parsed().check_payload(payload)
    (row,) = decode_all("avro", [json.dumps(schema)], [(1, payload)])
    assert isinstance(row, str) == (problem is not None)
