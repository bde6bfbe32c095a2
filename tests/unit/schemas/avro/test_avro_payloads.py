"""Which bytes are data of an Avro schema: bare data and container files, honest and hostile."""

import io
import json
import zlib
from typing import Any

import fastavro
import pytest

from pydanube.schemas.avro_schema import AvroSchema, parse_avro

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "items", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
        {"name": "gift", "type": "boolean"},
        {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}},
        {"name": "weight", "type": "float"},
    ],
}
DATUM = {
    "id": -(2**63),
    "customer": "Ä",
    "note": "x" * 100,
    "state": "PAID",
    "items": [{"a": 1}, {}],
    "gift": True,
    "key": b"kk",
    "weight": 1.5,
}


def parsed(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema).encode(), {})


def bare(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()


def container(schema: Any, data: list[Any], codec: str = "null", **more: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), data, codec=codec, **more)
    return out.getvalue()


def test_a_bare_datum_fits() -> None:
    assert parsed(ORDER).check_payload(bare(ORDER, DATUM)) is None


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ("boolean", b"\x02", "a boolean is 0 or 1"),
        ("int", b"\xff\xff\xff\xff\x1f", "does not fit 32 bits"),
        ("int", b"", "ends inside"),
        ("long", b"\xff" * 9 + b"\x7f", "does not fit 64 bits"),
        ("long", b"\xff" * 11 + b"\x01", "more than 10 bytes"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x01", "negative"),
        ("bytes", b"\x08abc", "1 bytes are missing"),
        ("null", b"\x00", "1 bytes are left"),
        (["null"], b"\x02", "branch 1 of a union with 1"),
        (["null"], b"\x01", "branch -1 of a union with 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol 1 of an enum with 1"),
        ({"type": "array", "items": "boolean"}, b"\x04\x00\x05", "'[1]'"),
        ({"type": "array", "items": "int"}, b"\x01\x10\x00", "missing at the end"),
    ],
)
def test_bad_bytes_are_refused_with_the_reason(schema: Any, payload: bytes, reason: str) -> None:
    assert reason in str(parsed(schema).check_payload(payload))


def test_the_reason_names_the_field() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "flag", "type": "boolean"}]}
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "list", "type": {"type": "array", "items": inner}}],
    }
    assert str(parsed(outer).check_payload(b"\x04\x01\x07\x00")).startswith("'list[1].flag': byte 2 is 7")


def test_blocks_of_arrays_may_come_with_their_size() -> None:
    assert parsed({"type": "array", "items": "int"}).check_payload(b"\x03\x04\x02\x04\x00") is None


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_container_fits(codec: str) -> None:
    assert parsed(ORDER).check_payload(container(ORDER, [DATUM] * 3, codec)) is None


def test_a_container_of_an_older_schema_fits_if_it_can_be_read() -> None:
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "extra", "type": "int", "default": 0}]}
    payload = container(ORDER, [DATUM])
    assert parsed(newer).check_payload(payload) is None
    strict = {**ORDER, "fields": [*ORDER["fields"], {"name": "extra", "type": "int"}]}
    schema = parsed(strict)
    for _ in range(2):
        assert "does not fit: 'extra'" in str(schema.check_payload(payload))


def test_bad_containers_are_refused_with_the_reason() -> None:
    schema = parsed(ORDER)
    whole = container(ORDER, [DATUM], sync_marker=b"S" * 16)
    assert "no data" in str(schema.check_payload(container(ORDER, [])))
    for end in range(4, len(whole)):
        assert schema.check_payload(whole[:end]) is not None
    assert "sync marker" in str(schema.check_payload(whole[:-1] + b"T"))
    assert "codec b'bzip2'" in str(schema.check_payload(container(ORDER, [DATUM], "bzip2")))
    assert "not JSON" in str(schema.check_payload(whole.replace(b'{"type"', b'("type"', 1)))


def test_a_datum_that_begins_like_a_container_is_still_a_datum() -> None:
    numbers = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in "abcd"]}
    assert parsed(numbers).check_payload(b"Obj\x01") is None


def test_a_deflate_bomb_is_not_unpacked() -> None:
    squeeze = zlib.compressobj(9, wbits=-15)
    block = squeeze.compress(bytes(17 * 2**20)) + squeeze.flush()
    header = container("bytes", [], "deflate", sync_marker=b"S" * 16)
    size = len(block) << 1
    varint = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    assert "unpacks to more than" in str(
        parsed("bytes").check_payload(header + b"\x02" + varint + block + b"S" * 16)
    )


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def test_nesting_is_followed_to_a_limit() -> None:
    schema = parsed(NODE)
    assert schema.check_payload(b"\x02" * 127 + b"\x00") is None
    assert "more than 128 records deep" in str(schema.check_payload(b"\x02" * 128 + b"\x00"))
    assert "more than 128 records deep" in str(schema.check_payload(b"\x02" * 1_000_000))


def test_values_without_bytes_are_counted() -> None:
    nothing = parsed({"type": "array", "items": "null"})
    assert nothing.check_payload(b"\x10\x00") is None
    assert "more values than bytes" in str(nothing.check_payload(b"\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00"))
    doubled: Any = "null"
    for number in range(20):
        fields = [
            {"name": "a", "type": doubled},
            {"name": "b", "type": doubled if number == 0 else f"R{number - 1}"},
        ]
        doubled = {"type": "record", "name": f"R{number}", "fields": fields}
    assert "more values than bytes" in str(parsed(doubled).check_payload(b""))
