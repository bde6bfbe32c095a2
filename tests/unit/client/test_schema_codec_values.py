"""Values of one version read as another one has them, without a broker."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pydanube.client.schema_codec import Codec, codec_of
from pydanube.kernel.errors import ErrorCode, Rejected


def avro(version: int, fields: dict[str, Any], references: dict[str, bytes] | None = None) -> Codec:
    """A record of these fields; a pair is a type and a default."""
    declared = [
        {"name": name, "type": kind[0], "default": kind[1]}
        if isinstance(kind, tuple)
        else {"name": name, "type": kind}
        for name, kind in fields.items()
    ]
    definition = json.dumps({"type": "record", "name": "Order", "fields": declared}).encode()
    return codec_of("avro", definition, 1, version, references or {})


INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "raw", "type": "bytes", "default": "\u00ff"}, {"name": "n", "type": "int"}],
}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ffa", b"\xffa"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0000\u00fe", b"\x00\xfe"),
        (["null", "bytes"], None, None),
        (["bytes", "null"], "x", b"x"),
        ({"type": "array", "items": "bytes"}, ["x", ""], [b"x", b""]),
        ({"type": "map", "values": "bytes"}, {"k": "x"}, {"k": b"x"}),
        (INNER, {"n": 1}, {"raw": b"\xff", "n": 1}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (MILLIS, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("double", 1, 1.0),
    ],
)
def test_a_default_is_the_value_that_reading_it_would_give(kind: Any, default: Any, value: Any) -> None:
    old, new = avro(1, {"id": "int"}), avro(2, {"id": "int", "added": (kind, default)})
    read = new.reading(old)(old.encode({"id": 1}))
    assert read == {"id": 1, "added": value}
    assert type(read["added"]) is type(value)
    assert new.decode(new.encode({"id": 1})) == read


def test_defaults_inside_references_are_values_too() -> None:
    references = {"Inner": json.dumps(INNER).encode()}
    older = json.dumps({"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}).encode()
    old, new = avro(1, {"inner": "Inner"}, {"Inner": older}), avro(2, {"inner": "Inner"}, references)
    assert new.reading(old)(old.encode({"inner": {"n": 5}})) == {"inner": {"raw": b"\xff", "n": 5}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INNER, {"n": 1}),
        ({"type": "array", "items": INNER}, [{"n": 1}]),
        ({"type": "map", "values": INNER}, {"k": {"n": 1}}),
        (["null", {"type": "array", "items": INNER}], [{"n": 1}]),
        (["null", INNER], {"n": 1}),
    ],
)
def test_records_with_defaults_may_stand_anywhere(schema: Any, value: Any) -> None:
    old, new = (codec_of("avro", json.dumps(schema).encode(), 1, version) for version in (1, 2))
    payload = old.encode(value)
    assert "'raw': b'\\xff'" in str(old.decode(payload))
    assert new.reading(old)(payload) == old.decode(payload)


def test_a_change_of_meaning_is_refused_although_it_would_decode() -> None:
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    old, new = avro(1, {"at": MILLIS}), avro(2, {"at": micros})
    with pytest.raises(Rejected, match="'at'") as caught:
        new.reading(old)(b"\x02")
    assert caught.value.code is ErrorCode.SCHEMA_INCOMPATIBLE


def test_plain_types_are_read_as_they_are() -> None:
    text = codec_of("string", b"", 1, 2)
    assert text.reading(codec_of("string", b"", 1, 1))(b"x") == "x"
    with pytest.raises(Rejected, match="types differ"):
        text.reading(codec_of("bytes", b"", 1, 1))(b"x")
