"""JSON documents as rows."""

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydanube.client.schema_codec import codec_of
from pydanube.kernel.errors import Rejected
from pydanube.schemas.format import SchemaKind
from pydanube.spark.decoding import FileSchemas, table_schema
from pydanube.spark.decoding.batches import table_format
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas


def columns_of(schema: Any) -> str:
    definition = Definition(SchemaKind.JSON_SCHEMA, json.dumps(schema).encode())
    return table_schema(LoadedSchemas(definition)).simpleString()


def record(**properties: Any) -> str:
    return json.dumps({"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number", "null"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"enum": [1, 2.5]}, "double"),
        ({"enum": [1, "a"]}, "string"),
        ({"const": True}, "boolean"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "bigint"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, "bigint"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"allOf": [{"type": "string"}, {"format": "date"}]}, "date"),
        ({"$ref": "#/$defs/day"}, "date"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "string"),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "integer"}}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"type": "object"}, "string"),
        ({"properties": {"x": {"type": "integer"}}}, "struct<x:bigint>"),
        (
            {"properties": {"id": {"type": "integer"}, "ID": {"type": "string"}}},
            "struct<id:bigint,ID_:string>",
        ),
        ({"oneOf": [{"type": "null"}, {"properties": {"x": {"type": "integer"}}}]}, "struct<x:bigint>"),
        ({"properties": {"again": {"$ref": "#"}}}, "struct<again:string>"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_a_schema_has_a_column(schema: Any, column: str) -> None:
    whole = {
        "type": "object",
        "properties": {"c": schema},
        "$defs": {"day": {"type": "string", "format": "date"}},
    }
    assert columns_of(whole) == f"struct<c:{column}>"


def test_what_is_no_record_is_one_column() -> None:
    assert columns_of({"type": "integer"}) == "struct<value:bigint>"
    assert columns_of({"type": "array", "items": {"type": "string"}}) == "struct<value:array<string>>"


def test_columns_of_the_message_keep_their_names() -> None:
    names = {name: {"type": "string"} for name in ("topic", "Topic", "_decode_error", "payload")}
    assert (
        columns_of({"properties": names})
        == "struct<topic_:string,Topic__:string,_decode_error_:string,payload_:string>"
    )


def test_formats_behind_references_count() -> None:
    text = record(at={"$ref": "common#/$defs/when"}).encode()
    common = b'{"$defs": {"when": {"type": "string", "format": "date-time"}}}'
    schemas = LoadedSchemas(Definition(SchemaKind.JSON_SCHEMA, text, {"common": common}))
    assert table_schema(schemas).simpleString() == "struct<at:timestamp>"


def test_a_schema_that_unfolds_without_end_is_refused() -> None:
    doubling = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
        for n in range(15)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**doubling, "d15": {"type": "string"}}}
    with pytest.raises(Rejected, match="more than 5000 columns"):
        table_format(Definition(SchemaKind.JSON_SCHEMA, json.dumps(schema).encode()))


def test_a_file_that_is_no_schema_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "schema.json"
    path.write_text("{")
    with pytest.raises(Rejected, match="not JSON"):
        table_schema(FileSchemas(str(path), "json"))


def test_versions_are_projected_onto_the_table(decode_all: Any) -> None:
    versions = [
        record(a={"type": "integer"}, gone={"type": "string"}),
        record(a={"type": "number"}, b={"type": "string"}, narrowed={"type": "number"}),
        record(
            a={"type": "number"}, b={"type": "string"}, new={"type": "integer"}, narrowed={"type": "integer"}
        ),
    ]
    assert decode_all(
        "json_schema",
        versions,
        [
            (1, b'{"a": 9007199254740993, "gone": "x"}'),
            (2, b'{"a": 1.5, "b": "t", "narrowed": 4.0}'),
            (2, b'{"narrowed": 4.5}'),
            (3, b'{"new": 3, "undeclared": {}}'),
            (1, b'{"a": 1.5}'),
        ],
    ) == [
        {"a": 9007199254740992.0, "b": None, "new": None, "narrowed": None},
        {"a": 1.5, "b": "t", "new": None, "narrowed": 4},
        "'narrowed': the value does not fit a column of type bigint",
        {"a": None, "b": None, "new": 3, "narrowed": None},
        "'a': the value is not of type \"integer\"",
    ]


@pytest.mark.parametrize(
    ("written", "table", "payload"),
    [
        ({"c": {"type": "number"}}, {"c": {"type": "integer"}}, b'{"c": 4.5}'),
        ({}, {"c": {"type": "integer"}}, b'{"c": 4.5}'),
        ({}, {"c": {"type": "number"}}, b'{"c": true}'),
        ({}, {"c": {"type": "array", "items": {"type": "string"}}}, b'{"c": "text"}'),
        ({}, {"c": {"type": "object", "additionalProperties": {"type": "string"}}}, b'{"c": []}'),
    ],
)
def test_values_of_another_version_are_never_bent(
    decode_all: Any, written: Any, table: Any, payload: bytes
) -> None:
    (reason,) = decode_all("json_schema", [record(**written), record(**table)], [(1, payload)])
    assert "'c': the value does not fit a column of type" in reason


def test_properties_alone_do_not_make_an_object(decode_all: Any) -> None:
    schema = record(c={"properties": {"x": {"type": "integer"}}})
    assert decode_all("json_schema", [schema], [(1, b'{"c": []}')]) == [
        "'c': the value does not fit a column of type struct<x:bigint>"
    ]


TYPED = record(
    n={"type": "integer"},
    x={"type": "number"},
    at={"type": "string", "format": "date-time"},
    on={"type": "string", "format": "date"},
    text={"type": "string"},
    any={},
    list={"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"n": 1.0}', {"n": 1}),
        (b'{"n": 1, "n": 2}', {"n": 2}),
        (b'{"x": 1e308}', {"x": 1e308}),
        (b'{"at": "2026-01-31T12:00:00.1234567Z"}', {"at": datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)}),
        (b'{"at": "2026-01-31T12:00:00-02:00"}', {"at": datetime(2026, 1, 31, 14, tzinfo=UTC)}),
        (b'{"at": "2026-01-31T12:00:00"}', {"at": datetime(2026, 1, 31, 12, tzinfo=UTC)}),
        (b'{"on": "0001-01-01"}', {"on": date(1, 1, 1)}),
        (b'{"any": {"a": [1, null, "\xc3\xa9"]}}', {"any": '{"a":[1,null,"é"]}'}),
        (b'{"any": null}', {}),
        (b'{"any": ' + b"[" * 500 + b"]" * 500 + b"}", {"any": "[" * 500 + "]" * 500}),
    ],
)
def test_values_columns_can_hold(decode_all: Any, payload: bytes, expected: dict[str, Any]) -> None:
    (row,) = decode_all("json_schema", [TYPED], [(1, payload)])
    assert {name: value for name, value in row.items() if value is not None} == expected


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"n": 9223372036854775808}', "'n': the value does not fit a column of type bigint"),
        (
            b'{"list": [{}, {"n": 99999999999999999999}]}',
            "'list[].n': the value does not fit a column of type bigint",
        ),
        (b'{"x": 1' + b"0" * 400 + b"}", ""),
        (b'{"x": 1e999}', "not JSON"),
        (b'{"x": NaN}', "not JSON"),
        (b'{"x": "NaN"}', "'x': "),
        (b'{"at": "0001-01-01T00:00:00+10:00"}', "'at': "),
        (b'{"at": "yesterday"}', "'at': the text is no date-time"),
        (b'{"on": "2026-02-30"}', "'on': the text is no date"),
        (b'{"text": "\xff"}', "not JSON"),
        (b'{"text": "\\ud800"}', "not JSON"),
        (b'{"any": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b"{} {}", "not JSON"),
        (b"", "not JSON"),
        (b"[]", 'not of type "object"'),
    ],
)
def test_values_columns_cannot_hold(decode_all: Any, payload: bytes, reason: str) -> None:
    bad, good = decode_all("json_schema", [TYPED], [(1, payload), (1, b'{"n": 1}')])
    assert isinstance(bad, str)
    assert reason in bad
    assert good["n"] == 1


LEAVES = st.sampled_from(
    [
        ({"type": "string"}, st.text()),
        ({"type": "integer"}, st.integers(-(2**63), 2**63 - 1)),
        ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
        ({"type": "boolean"}, st.booleans()),
        ({"type": ["string", "null"]}, st.none() | st.text()),
    ]
)
NAMES = st.text("abcxyz_ .é", min_size=1, max_size=4)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda pair: ({"type": "array", "items": pair[0]}, st.lists(pair[1], max_size=3))),
        inner.map(
            lambda pair: (
                {"type": "object", "additionalProperties": pair[0]},
                st.dictionaries(st.text(max_size=3), pair[1], max_size=3),
            )
        ),
        records(inner),
    )


def records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, inner, min_size=1, max_size=4).map(
        lambda fields: (
            {"type": "object", "properties": {name: schema for name, (schema, _) in fields.items()}},
            st.fixed_dictionaries({}, optional={name: values for name, (_, values) in fields.items()}),
        )
    )


def expected(schema: dict[str, Any], value: Any) -> Any:
    """What a column holds of a value the codec decoded."""
    if value is None:
        return None
    if "properties" in schema:
        return {name: expected(inner, value.get(name)) for name, inner in schema["properties"].items()}
    if "additionalProperties" in schema:
        return [(key, expected(schema["additionalProperties"], item)) for key, item in value.items()]
    if "items" in schema:
        return [expected(schema["items"], item) for item in value]
    return value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_columns_hold_what_the_codec_decodes(decode_all: Any, data: st.DataObject) -> None:
    schema, values = data.draw(records(st.recursive(LEAVES, nested, max_leaves=6)))
    codec = codec_of("json_schema", json.dumps(schema).encode(), 7, 1)
    payloads = [codec.encode(value) for value in data.draw(st.lists(values, min_size=1, max_size=4))]
    rows = decode_all("json_schema", [json.dumps(schema)], [(1, payload) for payload in payloads])
    assert rows == [expected(schema, codec.decode(payload)) for payload in payloads]
