"""What is an Avro schema, what is not, and how much of one is read."""

import json
from typing import Any

import fastavro
import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.avro_schema import AvroSchema, parse_avro


def parsed(schema: Any, **references: Any) -> AvroSchema:
    texts = {name: json.dumps(text).encode() for name, text in references.items()}
    return parse_avro(json.dumps(schema).encode(), texts)


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


GOOD: list[Any] = [
    "string",
    {"type": "string"},
    ["null", "int"],
    [],
    {"type": "array", "items": "int", "default": []},
    {"type": "map", "values": ["null", "long"]},
    record(),
    record({"name": "a", "type": "int", "default": 1}, doc="kept", custom={"x": 1}),
    record({"name": "a", "type": ["null", "R"], "default": None}),
    record({"name": "a", "type": ["int", "null"], "default": None}),
    record({"name": "a", "type": "double", "default": 1}),
    record({"name": "a", "type": "bytes", "default": "\u00ff"}),
    record({"name": "a", "type": {"type": "array", "items": "int"}, "default": [1, 2]}),
    record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "ab"}),
    {"type": "enum", "name": "x.E", "symbols": ["A"], "default": "A"},
    {"type": "fixed", "name": "F", "namespace": "a.b", "size": 16, "logicalType": "uuid"},
    record(
        {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "b", "type": "ns.E"},
        namespace="ns",
    ),
]


@pytest.mark.parametrize("schema", GOOD, ids=str)
def test_good_schemas_are_understood_here_and_elsewhere(schema: Any) -> None:
    assert parsed(schema).fingerprint.startswith("sha256:")
    fastavro.parse_schema(schema)


BAD: list[tuple[Any, str]] = [
    (1, "a type is a name"),
    ("letters", "unknown type 'letters'"),
    ({}, "lacks 'type'"),
    ({"type": "array"}, "lacks 'items'"),
    ({"type": "map"}, "lacks 'values'"),
    (["int", "int"], "int twice"),
    ([{"type": "map", "values": "int"}, {"type": "map", "values": "long"}], "Map twice"),
    (["int", ["null"]], "directly inside a union"),
    ({"type": "record", "name": "R"}, "lacks a list of 'fields'"),
    ({"type": "record", "fields": []}, "lacks a 'name'"),
    ({"type": "record", "name": "1R", "fields": []}, "letters, digits"),
    ({"type": "record", "name": "a..R", "fields": []}, "letters, digits"),
    ({"type": "record", "name": "int", "fields": []}, "declared twice"),
    (record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}), "'a' twice"),
    (record({"name": "a-b", "type": "int"}), "letters, digits"),
    (record({"name": "a"}), "'a' lacks 'type'"),
    (record("a"), "not an object"),
    (record({"name": "a", "type": record()}), "'R' is declared twice"),
    (record({"name": "a", "type": {"type": "array", "items": "Later"}}), "'a\\[\\]' has the unknown type"),
    (record({"name": "a", "type": "int", "default": "x"}), "'x' is no int"),
    (record({"name": "a", "type": "int", "default": 2**31}), "is no int"),
    (record({"name": "a", "type": "int", "default": True}), "True is no int"),
    (record({"name": "a", "type": "bytes", "default": "\u0100"}), "is no bytes"),
    (record({"name": "a", "type": ["null", "int"], "default": "x"}), "fits no branch"),
    (record({"name": "a", "type": {"type": "array", "items": "int"}, "default": [1, "x"]}), "'x' is no int"),
    (
        record({"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "abc"}),
        "is no fixed F",
    ),
    (
        record({"name": "b", "type": "int"}, {"name": "a", "type": "R", "default": {}}),
        "field 'b' of record R is missing",
    ),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "twice"),
    ({"type": "enum", "name": "E", "symbols": ["A-B"]}, "letters, digits"),
    ({"type": "enum", "name": "E"}, "lacks a list of 'symbols'"),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not one of its symbols"),
    ({"type": "fixed", "name": "F", "size": -1}, "size -1"),
    ({"type": "fixed", "name": "F", "size": True}, "size True"),
    ({"type": "record", "name": "R", "aliases": "x", "fields": []}, "not a list of names"),
]


@pytest.mark.parametrize(("schema", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_bad_schemas_are_refused_with_the_reason(schema: Any, reason: str) -> None:
    with pytest.raises(Rejected, match=reason) as refused:
        parsed(schema)
    assert refused.value.code is ErrorCode.SCHEMA_INVALID


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        (b"\xff", "not UTF-8 at byte 0"),
        (b"{", "not JSON"),
        (b'"int', "not JSON"),
        (b'{"type":"int","type":"long"}', "key 'type' twice"),
        (b'{"type":"int","x":NaN}', "NaN"),
        (b'{"type":"int","x":1e999}', "1e999"),
        (b'{"type":"int","x":"\\ud800"}', "surrogate"),
        (b'{"type":"int","x":' + b"1" * 200 + b"}", "200 digits"),
        (b'"' + b"x" * 2**20 + b'"', "1048578 bytes"),
        (b'{"type":' * 65 + b'"int"' + b"}" * 65, "more than 64 deep"),
        (b"[" * 100_000, "more than 64 deep"),
        (b"[" + b'"int",' * 10_000 + b'"int"]', "more than 10000 values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_texts_out_of_bounds_are_refused(definition: bytes, reason: str) -> None:
    with pytest.raises(Rejected, match=reason):
        parse_avro(definition, {})


def test_the_fingerprint_does_not_see_whitespace_or_order_of_keys() -> None:
    one = parse_avro(b'{"type":"fixed","name":"F","size":2}', {})
    other = parse_avro(b'{ "size": 2, "name": "F",\n "type": "fixed" }', {})
    assert one.fingerprint == other.fingerprint
    assert one.text != other.text
    assert parsed({"type": "fixed", "name": "F", "size": 3}).fingerprint != one.fingerprint


def test_references_declare_types_by_full_name() -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    order = record({"name": "total", "type": "shop.Money"}, {"name": "fee", "type": "shop.Money"})
    schema = parsed(order, **{"shop.Money": money})
    assert schema.check_payload(b"\x02\x04") is None
    assert schema.fingerprint != parsed(record()).fingerprint
    with pytest.raises(Rejected, match=r"unknown type 'shop\.Money'"):
        parsed(order)
    with pytest.raises(Rejected, match="another name than its own"):
        parsed(order, **{"shop.Money": {"type": "record", "name": "Other", "fields": []}})
    with pytest.raises(Rejected, match="65 references"):
        parsed("int", **{f"r{i}": "int" for i in range(65)})


def test_references_that_need_each_other_are_found() -> None:
    one = {"type": "record", "name": "One", "fields": [{"name": "other", "type": ["null", "Two"]}]}
    two = {"type": "record", "name": "Two", "fields": [{"name": "other", "type": ["null", "One"]}]}
    schema = parsed(record({"name": "a", "type": "One"}), One=one, Two=two)
    assert schema.check_payload(b"\x02\x02\x00") is None


def test_defaults_that_fit_in_exponentially_many_ways_are_judged_once() -> None:
    names = [f"R{i}" for i in range(8)]
    default: Any = "no value of any branch"
    for _ in range(30):
        default = {"a": default}
    first = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": ["int", "R0"]}]}
    others = [
        {"type": "record", "name": name, "fields": [{"name": "a", "type": ["int", *names[: i + 1]]}]}
        for i, name in enumerate(names)
        if i
    ]
    with pytest.raises(Rejected, match="fits no branch"):
        parsed(record({"name": "x", "type": [first, *others], "default": default}))
