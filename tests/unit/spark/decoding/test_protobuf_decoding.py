"""Protobuf messages as rows."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.client.schema_codec import Codec, codec_of
from pydanube.schemas.format import SchemaKind
from pydanube.spark.decoding import table_schema
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas

HEAD = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
"""
EVERYTHING = (
    HEAD
    + """
message Everything {
  enum Color { NONE = 0; RED = 1; }
  message Point { sint32 x = 1; optional double y = 2; }
  int32 int32 = 1;
  sint64 int64 = 2;
  fixed32 uint32 = 3;
  uint64 uint64 = 4;
  float float = 5;
  double double = 6;
  bool bool = 7;
  string text = 8;
  bytes data = 9;
  Color color = 10;
  optional int32 maybe = 11;
  repeated int64 numbers = 12;
  repeated Point points = 13;
  map<string, Point> by_name = 14;
  map<uint64, Color> by_number = 15;
  oneof choice { string left = 16; Point right = 17; }
  google.protobuf.Timestamp at = 18;
  google.protobuf.UInt64Value wrapped = 19;
  google.protobuf.Struct loose = 20;
  google.protobuf.Any any = 21;
  Everything again = 22;
}
"""
)
V1 = """
syntax = "proto3";
message Order {
  int32 id = 1; string customer = 2; int32 count = 3; string gone = 4; uint32 small = 5; repeated int32 list = 6;
  string changed = 7; bytes blob = 8; int64 big = 9; Kind kind = 10; map<string, int32> m = 11; string one = 12;
  enum Kind { FIRST = 0; SECOND = 5; }
}
"""
V2 = """
syntax = "proto3";
message Order {
  int64 id = 1; string buyer = 2; double count = 3; uint64 small = 5; repeated int64 list = 6;
  int32 changed = 7; bytes blob = 8; int32 big = 9; Kind kind = 10; map<string, int64> m = 11; repeated string one = 12;
  enum Kind { FIRST = 0; } int32 added = 13; optional int32 maybe = 14; Order inner = 15;
}
"""


def codec(text: str) -> Codec:
    return codec_of("protobuf", text.encode(), 7, 1)


def test_a_message_has_columns() -> None:
    schemas = LoadedSchemas(Definition(SchemaKind.PROTOBUF, EVERYTHING.encode()))
    assert table_schema(schemas).simpleString() == (
        "struct<int32:int,int64:bigint,uint32:bigint,uint64:decimal(20,0),float:float,double:double,bool:boolean,"
        "text:string,data:binary,color:string,maybe:int,numbers:array<bigint>,"
        "points:array<struct<x:int,y:double>>,by_name:map<string,struct<x:int,y:double>>,"
        "by_number:map<decimal(20,0),string>,left:string,right:struct<x:int,y:double>,at:timestamp,"
        "wrapped:decimal(20,0),loose:string,any:struct<type_url:string,value:binary>,again:string>"
    )


INNER = '{"id": "4"}'
"""A type inside itself; integers of 64 bits are text in Protobuf's JSON."""


def test_fields_are_known_by_their_numbers(decode_all: Any) -> None:
    first, second = codec(V1), codec(V2)
    rows = decode_all(
        "protobuf",
        [V1, V2],
        [
            (1, first.encode({"id": 1, "customer": "c", "count": 2, "gone": "g", "small": 7, "list": [1], "kind": "SECOND", "m": {"a": 1}})),
            (2, second.encode({"id": 2**40, "buyer": "b", "count": 0.5, "added": 3, "one": ["x"], "maybe": 0, "inner": {"id": 4}})),
        ],
    )  # fmt: skip
    assert rows == [
        {
            "id": 1, "buyer": "c", "count": 2.0, "small": Decimal(7), "list": [1], "changed": None, "blob": b"", "big": 0,
            "kind": "SECOND", "m": [("a", 1)], "one": None, "added": None, "maybe": None, "inner": None,
        },
        {
            "id": 2**40, "buyer": "b", "count": 0.5, "small": Decimal(0), "list": [], "changed": 0, "blob": b"", "big": 0,
            "kind": "FIRST", "m": [], "one": ["x"], "added": 3, "maybe": 0, "inner": INNER,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"changed": "x"}, "'changed': Order.changed was written, which does not fit a column of type int"),
        ({"one": "x"}, "'one': Order.one was written, which does not fit a column of type array<string>"),
        ({"big": 2**31}, "'big': the value does not fit a column of type int"),
    ],
)
def test_types_that_changed_for_the_worse(decode_all: Any, value: dict[str, Any], reason: str) -> None:
    written = codec(V1)
    bad, good = decode_all("protobuf", [V1, V2], [(1, written.encode(value)), (1, written.encode({"id": 3}))])
    assert bad == reason
    assert good["id"] == 3


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xff", "do not parse"),
        (b"\x0a\x01x", "wire type"),
        (b"\x42\x01\xff", "do not parse"),
        (b"\x92\x01\x0a\x08" + b"\x80" * 8 + b"\x40", "'at': the time is not within the years 1 to 9999"),
        (b"\xb2\x01\x00" * 2_000_000, ""),
    ],
    ids=["torn", "other type", "invalid UTF-8", "no such year", "unfolding"],
)
def test_bytes_that_are_no_message(decode_all: Any, payload: bytes, reason: str) -> None:
    results = decode_all("protobuf", [EVERYTHING], [(1, payload), (1, b"\x08\x01")])
    assert results[1]["int32"] == 1
    if reason:
        assert isinstance(results[0], str)
        assert reason in results[0]


def test_deep_messages_are_refused_or_json(decode_all: Any) -> None:
    payload = b""
    for _ in range(90):
        payload = b"\xb2\x01" + _varint(len(payload)) + payload
    deeper = payload
    for _ in range(2_000):
        deeper = b"\xb2\x01" + _varint(len(deeper)) + deeper
    deep, too_deep = decode_all("protobuf", [EVERYTHING], [(1, payload), (1, deeper)])
    assert deep["again"].count("{") == 90
    assert isinstance(too_deep, str)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


TEXT = st.text(max_size=5)
INT32 = st.integers(-(2**31), 2**31 - 1)
UINT64 = st.integers(0, 2**64 - 1)
POINTS = st.fixed_dictionaries(
    {}, optional={"x": INT32, "y": st.floats(allow_nan=False, allow_infinity=False)}
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "int32": INT32,
        "int64": st.integers(-(2**63), 2**63 - 1),
        "uint32": st.integers(0, 2**32 - 1),
        "uint64": UINT64,
        "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "bool": st.booleans(),
        "text": TEXT,
        "color": st.sampled_from(["NONE", "RED"]) | st.just(9),
        "maybe": INT32,
        "numbers": st.lists(INT32, max_size=3),
        "points": st.lists(POINTS, max_size=2),
        "by_name": st.dictionaries(TEXT, POINTS, max_size=2),
        "by_number": st.dictionaries(UINT64.map(str), st.sampled_from(["NONE", "RED"]), max_size=2),
        "left": TEXT,
        "at": st.datetimes().map(lambda time: time.isoformat() + "Z"),
        "wrapped": UINT64,
        "loose": st.dictionaries(TEXT, st.booleans(), min_size=1, max_size=1),
    },
)


def expected(message: Any) -> dict[str, Any]:
    """What columns hold of a message the codec decoded; said field by field, unlike the code."""
    point = {"x": lambda p: p.x, "y": lambda p: p.y if p.HasField("y") else None}

    def of_point(given: Message) -> dict[str, Any]:
        return {name: get(given) for name, get in point.items()}

    colors = {0: "NONE", 1: "RED", 9: "9"}
    plain = {
        name: getattr(message, name)
        for name in ("int32", "int64", "uint32", "float", "double", "bool", "text", "data")
    }
    return plain | {
        "uint64": Decimal(message.uint64),
        "color": colors[message.color],
        "maybe": message.maybe if message.HasField("maybe") else None,
        "numbers": list(message.numbers),
        "points": [of_point(each) for each in message.points],
        "by_name": {key: of_point(each) for key, each in message.by_name.items()},
        "by_number": {Decimal(key): colors[each] for key, each in message.by_number.items()},
        "left": message.left if message.HasField("left") else None,
        "right": None,
        "at": message.at.ToDatetime(UTC) if message.HasField("at") else None,
        "wrapped": Decimal(message.wrapped.value) if message.HasField("wrapped") else None,
        "any": None,
        "again": None,
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_columns_hold_what_the_codec_decodes(decode_all: Any, values: list[dict[str, Any]]) -> None:
    everything = codec(EVERYTHING)
    payloads = [everything.encode(value) for value in values]
    rows = decode_all("protobuf", [EVERYTHING], [(1, payload) for payload in payloads])
    for row, payload in zip(rows, payloads, strict=True):
        message = everything.decode(payload)
        assert (row.pop("loose") is not None) == message.HasField("loose")
        assert row | {name: dict(row[name]) for name in ("by_name", "by_number")} == expected(message)


def test_time_is_kept_to_the_microsecond(decode_all: Any) -> None:
    payload = codec(EVERYTHING).encode({"at": "2026-01-31T00:00:00.123456789Z"})
    (row,) = decode_all("protobuf", [EVERYTHING], [(1, payload)])
    assert row["at"] == datetime(2026, 1, 31, 0, 0, 0, 123456, UTC)
