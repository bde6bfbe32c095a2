"""Which payloads fit a Protobuf schema."""

import pytest

from pydanube.schemas import protobuf_unfolding
from pydanube.schemas.protobuf_schema import parse_protobuf

ORDER = """message Order { int64 id = 1; string note = 2; repeated int32 counts = 3; Item item = 4; State state = 5; }
message Item { int32 a = 1; } enum State { NEW = 0; }"""


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x08\x05",
        b"\x12\x02ok\x22\x02\x08\x01",
        b"\x1a\x02\x01\x02\x18\x03",  # packed and not
        b"\x28\x63",  # a number the enum does not declare
        b"\xf8\x07\x01",  # a field of a later version
    ],
)
def test_payloads_that_fit(proto, payload: bytes) -> None:
    assert parse_protobuf(proto(ORDER)).check_payload(payload) is None


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"\x08", "do not parse"),
        (b"\x12\x09short", "do not parse"),
        (b"\x12\x02\xff\xfe", "do not parse"),
        (b"\x00", "do not parse"),
        (b'{"id": 5}', "do not parse"),
        (b"\xff" * 20, "do not parse"),
        (b"\x22\x05\x08\x01", "do not parse"),
        (b"\x0a\x01x", "field 1 (id) is written with wire type 2"),
    ],
)
def test_payloads_that_do_not(proto, payload: bytes, said: str) -> None:
    problem = parse_protobuf(proto(ORDER)).check_payload(payload)
    assert problem is not None
    assert said in problem
    assert "shop.Order" in problem


@pytest.mark.parametrize("payload", [b"", b"\x0a\x00", b"\x0a\x00\x10\x01"])
def test_required_fields_must_be_there_at_every_depth(payload: bytes) -> None:
    schema = parse_protobuf(
        b'syntax = "proto2"; message Order { optional Item item = 1; required int32 b = 2; }'
        b"message Item { required int32 a = 1; }"
    )
    assert "required fields are missing" in (schema.check_payload(payload) or "")
    assert schema.check_payload(b"\x0a\x02\x08\x01\x10\x01") is None


def test_an_unknown_number_of_a_closed_enum_is_a_later_version() -> None:
    schema = parse_protobuf(
        b'syntax = "proto2"; message Order { optional State state = 1; } enum State { NEW = 0; }'
    )
    assert schema.check_payload(b"\x08\x63") is None


def test_depth_is_bounded(proto) -> None:
    schema = parse_protobuf(proto("message Order { Order parent = 1; }"))
    payload = b""
    for _ in range(200):
        payload = b"\x0a" + _varint(len(payload)) + payload
    assert schema.check_payload(payload) is not None


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])


WIDE = "".join(f"int64 f{number} = {number};" for number in range(1, 1_001))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a\x00" * 100_000,  # repeated
        b"\x12\x03\x08\x01\x00" * 100_000,  # each with a byte that is not even a field
        b"\x1a\x02\x0a\x00" * 100_000,  # within another message
        b"\x22\x00" * 100_000,  # values of a map that are not mentioned
    ],
)
def test_a_payload_that_unfolds_to_gigabytes_is_refused_unparsed(proto, payload: bytes) -> None:
    schema = parse_protobuf(
        proto(
            "message Order { repeated Wide a = 1; repeated Wide b = 2; repeated Outer c = 3; map<string, Wide> d = 4; }"
            f"message Outer {{ Wide wide = 1; }} message Wide {{ {WIDE} }}"
        )
    )
    assert "unfolds to more than 64 MiB" in (schema.check_payload(payload) or "")


def test_a_group_that_unfolds_is_refused_too() -> None:
    fields = WIDE.replace("int64", "optional int64")
    schema = parse_protobuf(
        f'syntax = "proto2"; message Order {{ repeated group Wide = 1 {{ {fields} }} }}'.encode()
    )
    assert "unfolds" in (schema.check_payload(b"\x0b\x0c" * 100_000) or "")


def test_a_large_payload_of_few_messages_is_parsed(proto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_unfolding, "UNFOLDED_BYTES_MAX", 20_000)
    schema = parse_protobuf(
        proto(f"message Order {{ Wide a = 1; bytes b = 2; Order c = 3; }} message Wide {{ {WIDE} }}")
    )
    blob = b"\x12\x80\x80\x04" + b"\x0a\x00" * 32_768
    assert schema.check_payload(b"\x0a\x00" + blob) is None
    assert "unfolds" in (schema.check_payload(b"\x0a\x00" * 2 + blob) or "")
    # Malformed after what was counted: the parser's business.
    assert "do not parse" in (schema.check_payload(blob + b"\x08") or "")
