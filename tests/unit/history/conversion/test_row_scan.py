"""Protobuf rows as columns: what the parser of one message finds, and refusals of what it would refuse."""

import numpy as np
import pyarrow as pa
import pytest

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.field_scan import SPARE_BYTES, STEPS_MAX, ScannedBytes
from pydanube.history.row_scan import scan_rows
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native.head_scan import TIME_MS_MAX


def scan(*bodies: bytes, first: int = 100) -> pa.RecordBatch:
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = ends - np.array([len(body) for body in bodies], np.int64)
    offsets = np.arange(first, first + len(bodies))
    batch = scan_rows(
        ScannedBytes(b"".join(bodies) + b"\xff" * SPARE_BYTES), starts, ends, offsets, offsets + 1000
    )
    batch.validate(full=True)
    assert batch.schema == SEGMENT_SCHEMA
    return batch


def values(batch: pa.RecordBatch, name: str) -> list[object]:
    column = batch.column(name)
    return (column.view(pa.int64()) if name.endswith("_time") else column).to_pylist()


def message(**fields: object) -> bytes:
    return StreamMessage(**fields).SerializeToString()


def test_every_field_becomes_its_column():
    batch = scan(
        message(
            request_id=9,
            msg_id=MsgID(producer_id=5, topic_name="/default/orders", broker_addr="http://127.0.0.1:6650"),
            payload=b"bread",
            publish_time=77,
            producer_name="till",
            subscription_name="kitchen",
            attributes={"size": "large"},
            schema_id=3,
            schema_version=2,
            routing_key="table-4",
        )
    )
    assert {name: values(batch, name)[0] for name in SEGMENT_SCHEMA.names} == {
        "offset": 100,
        "publish_time": 77,
        "append_time": 1100,
        "producer_name": "till",
        "routing_key": "table-4",
        "attributes": [("size", "large")],
        "schema_id": 3,
        "schema_version": 2,
        "payload": b"bread",
        "producer_id": 5,
        "request_id": 9,
        "broker_addr": "http://127.0.0.1:6650",
        "subscription_name": "kitchen",
    }


def test_an_absent_field_is_null_where_protobuf_can_tell_and_its_default_where_not():
    batch = scan(b"", message(routing_key="", schema_id=0, schema_version=0), message(payload=b"x"))
    assert values(batch, "routing_key") == [None, "", None]
    assert values(batch, "schema_id") == values(batch, "schema_version") == [None, 0, None]
    assert values(batch, "payload") == [b"", b"", b"x"]
    assert values(batch, "request_id") == values(batch, "publish_time") == [0, 0, 0]
    assert values(batch, "producer_name") == ["", "", ""]
    assert values(batch, "attributes") == values(batch, "broker_addr") == [None, None, None]


def test_the_last_occurrence_counts_and_a_msg_id_is_merged():
    twice = message(payload=b"old", publish_time=1, msg_id=MsgID(producer_id=5, broker_addr="a")) + message(
        payload=b"", publish_time=2, msg_id=MsgID(broker_addr="b", topic_offset=4)
    )
    batch = scan(twice + b"\x1a\x00", message(payload=b"other"))
    assert values(batch, "payload") == [b"", b"other"]
    assert values(batch, "publish_time") == [2, 0]
    assert values(batch, "producer_id") == [5, 0]
    assert values(batch, "broker_addr") == ["b", None]


def test_the_last_value_of_an_attribute_counts():
    repeated = (
        message(attributes={"a": "1"}) + message(attributes={"b": "2"}) + message(attributes={"a": "3"})
    )
    keyless = b"\x3a\x00"
    batch = scan(message(), repeated, keyless, message(attributes={"a": ""}))
    assert [None if own is None else sorted(own) for own in values(batch, "attributes")] == [
        None,
        [("a", "3"), ("b", "2")],
        [("", "")],
        [("a", "")],
    ]


def test_numbers_keep_all_their_bits():
    numbers = [0, 1, 127, 128, 2**35, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1]
    batch = scan(*[message(request_id=number, publish_time=number, schema_id=number) for number in numbers])
    signed = [number - 2**64 if number >= 2**63 else number for number in numbers]
    assert values(batch, "request_id") == values(batch, "schema_id") == signed
    assert values(batch, "publish_time") == [min(number, TIME_MS_MAX) for number in numbers]


def test_a_version_is_cut_to_32_bits_as_parsers_do():
    body = b"\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert values(scan(body), "schema_version") == [StreamMessage.FromString(body).schema_version]


def test_unknown_fields_are_passed_over():
    unknown = b"\x58\x96\x01" + b"\x59" + bytes(8) + b"\x5a\x02hi" + b"\x5d" + bytes(4) + b"\xfa\x7f\x01x"
    batch = scan(unknown + message(payload=b"a"), message(payload=b"b"), message(payload=b"c") + unknown)
    assert values(batch, "payload") == [b"a", b"b", b"c"]


def test_an_attribute_with_an_unknown_field_is_kept():
    assert values(scan(b"\x3a\x05\x0a\x01a\x18\x01"), "attributes") == [[("a", "")]]


def test_messages_with_very_many_fields_are_read_like_the_others():
    many = {f"key-{number}": str(number) for number in range(STEPS_MAX + 50)}
    long_attribute = b"\x3a" + b"\x84\x08" + b"\x0a\x00" * (STEPS_MAX * 2 + 2)
    bodies = [
        message(payload=b"few"),
        message(payload=b"many", attributes=many, producer_name="p", request_id=2**64 - 1),
        message(payload=b"between", routing_key="k"),
        message(payload=b"unknown") + b"\x58\x01" * (STEPS_MAX + 1),
        message(payload=b"deep") + long_attribute,
    ]
    batch = scan(*bodies)
    assert values(batch, "payload") == [b"few", b"many", b"between", b"unknown", b"deep"]
    assert dict(values(batch, "attributes")[1]) == many
    assert dict(values(batch, "attributes")[4]) == {"": ""}
    assert values(batch, "producer_name") == ["", "p", "", "", ""]
    assert values(batch, "request_id") == [0, -1, 0, 0, 0]
    assert values(batch, "offset") == [100, 101, 102, 103, 104]


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (b"\x1a\x05abc", "longer than its message"),
        (b"\x1a", "cut off"),
        (b"\x08\xff", "cut off"),
        (b"\x08" + b"\xff" * 10, "64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "64 bits"),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than its message"),
        (b"\x0a\x01a", "tag 10"),
        (b"\x00\x00", "tag 0"),
        (b"\x59abc", "cut off"),
        (b"\x5b\x5c", "wire type 3"),
        (b"\x12\x02\x08\xff", "cut off"),
        (b"\x12\x02\x0a\x00", "tag 10"),
        (b"\x3a\x03\x0a\x05a", "longer than its message"),
        (b"\x3a\x02\x08\x01", "tag 8"),
        (b"\x2a\x01\xff", "not UTF-8"),
        (b"\x3a\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x12\x03\x1a\x01\xff", "not UTF-8"),
        (b"\x12\x03\x12\x01\xff", "not UTF-8"),
        (b"\x2a\x01\xff\x2a\x01a", "not UTF-8"),
        (b"\x3a\x06\x0a\x01\xff\x0a\x01a", "not UTF-8"),
    ],
)
def test_what_is_no_message_is_refused_with_its_offset(damaged, why):
    good = message(payload=b"good", attributes={"a": "b"}, msg_id=MsgID(producer_id=1))
    with pytest.raises(Corrupt, match=why) as caught:
        scan(good, b"", damaged, good)
    assert "offset 102" in caught.value.text
    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT


def test_nothing_behind_a_message_becomes_part_of_it():
    with pytest.raises(Corrupt, match="offset 100"):
        scan(b"\x1a\x02a", b"b\x1a\x01c")


def test_names_of_many_producers_share_a_dictionary():
    batch = scan(*[message(producer_name=f"p{number % 3}") for number in range(1000)])
    assert len(batch.column("producer_name").dictionary) == 3
    assert values(batch, "producer_name")[4] == "p1"
