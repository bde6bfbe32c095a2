"""What consumers get of a batch: rows over gRPC, record batches over the native protocol."""

from typing import Any

import pyarrow as pa
import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.messages import offset_suffix, scan_publish
from pydanube.protocol.native.arrow import (
    DELIVERED_SCHEMA,
    delivered_batch,
    delivered_rows,
    encode_payloads,
    routing_keys,
    rows,
)
from pydanube.protocol.native.bodies import NO_OFFSET, Item
from pydanube.protocol.native_pb2 import BatchHead

TOPIC = "/default/orders"
HEAD = BatchHead(
    producer_id=7,
    producer_name="p",
    publish_time=123,
    schema_id=4,
    schema_version=5,
    routing_key="shared",
    attributes={"a": "head", "b": "head"},
    deliver_at=10,
    deliver_after=20,
    ttl=30,
)
OWN: dict[str, Any] = {
    "publish_times": [1, 2],
    "routing_keys": ["k", None],
    "attributes": [{"a": "own"}, None],
    "schema_ids": [8, None],
    "schema_versions": [None, 9],
    "compaction_keys": [b"c", None],
}
TIMES = {"x-deliver-at": "10", "x-deliver-after": "20", "x-ttl": "30"}


def parsed(body: bytes, skip: int = 0, count: int | None = None) -> list[StreamMessage]:
    return [StreamMessage.FromString(row) for row in rows(body, TOPIC, skip, count)]


def delivered(body: bytes, *, skip: int = 0, messages: int = 1, base: int = 100) -> pa.RecordBatch:
    batch = delivered_batch(Item(base, 55, skip, messages, 1, body), TOPIC)
    batch.validate(full=True)
    assert batch.schema.equals(DELIVERED_SCHEMA)
    return batch


def test_rows_have_what_the_head_says() -> None:
    assert parsed(encode_payloads([b"x", b""], HEAD)) == [
        StreamMessage(
            msg_id=MsgID(producer_id=7, topic_name=TOPIC),
            payload=payload,
            publish_time=123,
            producer_name="p",
            attributes={"a": "head", "b": "head", **TIMES},
            schema_id=4,
            schema_version=5,
            routing_key="shared",
        )
        for payload in (b"x", b"")
    ]


def test_columns_count_instead_of_the_head() -> None:
    first, second = parsed(encode_payloads([b"x", b"y"], HEAD, **OWN))
    assert first.publish_time == 1
    assert first.routing_key == "k"
    assert dict(first.attributes) == {"a": "own", "b": "head", "x-compaction-key": "c", **TIMES}
    assert first.schema_id == 8
    assert not first.HasField("schema_version")
    assert second.publish_time == 2
    assert not second.HasField("routing_key")
    assert dict(second.attributes) == {"a": "head", "b": "head", **TIMES}
    assert not second.HasField("schema_id")
    assert second.schema_version == 9


def test_rows_are_messages_a_broker_would_take() -> None:
    for row in rows(encode_payloads([b"x", b"y"], HEAD, **OWN), TOPIC):
        scan = scan_publish(row)
        assert (scan.producer_id, scan.topic_name, scan.payload_bytes) == (7, TOPIC.encode(), 1)
        assert StreamMessage.FromString(row + offset_suffix(300)).msg_id.topic_offset == 300


def test_part_of_a_batch() -> None:
    body = encode_payloads([b"0", b"1", b"2", b"3"], HEAD, routing_keys=["a", None, "c", "d"])
    assert [message.payload for message in parsed(body, 1, 2)] == [b"1", b"2"]
    assert [message.payload for message in parsed(body, 3)] == [b"3"]
    assert routing_keys(body, 1, 2) == ["", "c"]
    assert routing_keys(body, 2) == ["c", "d"]
    assert delivered(body, skip=1, messages=2).column("offset").to_pylist() == [101, 102]
    assert delivered(body, skip=1, messages=2).column("payload").to_pylist() == [b"1", b"2"]


def test_the_routing_key_of_the_head_is_everyones() -> None:
    body = encode_payloads([b""] * 4, HEAD)
    assert routing_keys(body, 1) == ["shared"] * 3
    assert routing_keys(body, 1, 2) == ["shared"] * 2
    assert routing_keys(encode_payloads([b""] * 2, BatchHead())) == ["", ""]


@pytest.mark.parametrize("own", [{}, OWN])
def test_a_batch_and_its_rows_are_delivered_alike(own: dict[str, Any]) -> None:
    body = encode_payloads([b"x", b"y"], HEAD, **own)
    whole = delivered(body, messages=2)
    items = [Item(100 + at, 55, 0, 1, 1, row) for at, row in enumerate(rows(body, TOPIC))]
    singly = delivered_rows(items, TOPIC)
    assert singly.schema.equals(DELIVERED_SCHEMA)
    assert [plain(row) for row in whole.to_pylist()] == [plain(row) for row in singly.to_pylist()]
    assert [plain(row) for row in delivered(items[0].body).to_pylist()] == [plain(whole.to_pylist()[0])]
    assert whole.schema.metadata == singly.schema.metadata == {b"topic": TOPIC.encode(), b"generation": b"0"}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "attributes": dict(row["attributes"] or ())}


def test_what_a_message_has_not_is_null() -> None:
    for body in (
        encode_payloads([b"x"], BatchHead(producer_name="p")),
        StreamMessage(payload=b"x", producer_name="p").SerializeToString(),
    ):
        row = delivered(body).to_pylist()[0]
        assert row["producer_name"] == "p"
        for name in ("routing_key", "attributes", "schema_id", "schema_version"):
            assert row[name] is None


def test_payloads_are_not_copied_for_a_consumer() -> None:
    body = encode_payloads([bytes(1_000_000)], BatchHead(producer_name="n" * 6))
    delivered(body)
    before = pa.total_allocated_bytes()
    batch = delivered(body)
    assert batch.num_rows == 1
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_non_reliable_topic_has_no_offsets() -> None:
    for body in (encode_payloads([b"x"], HEAD), rows(encode_payloads([b"x"], HEAD), TOPIC)[0]):
        assert delivered(body, base=NO_OFFSET).column("offset").to_pylist() == [None]


def test_a_time_beyond_arrows_is_the_last_one() -> None:
    batch = delivered(StreamMessage(publish_time=2**64 - 1).SerializeToString())
    assert batch.column("publish_time").view(pa.int64()).to_pylist() == [2**63 - 1]


@pytest.mark.parametrize(
    ("skip", "messages", "base"),
    [(0, 0, 5), (0, 3, 5), (2, 1, 5), (3, 1, 5), (0, 2, 2**63 - 1), (0, 2, NO_OFFSET - 1)],
)
def test_an_item_that_cannot_be_is_refused(skip: int, messages: int, base: int) -> None:
    body = encode_payloads([b"x", b"y"], HEAD)
    with pytest.raises(Rejected) as refusal:
        delivered(body, skip=skip, messages=messages, base=base)
    assert refusal.value.code is ErrorCode.PROTOCOL_VIOLATION


def test_a_row_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Rejected) as refusal:
        delivered(b"\x12\x09p")
    assert refusal.value.code is ErrorCode.MALFORMED_REQUEST
    with pytest.raises(Rejected):
        delivered_rows([Item(0, 0, 0, 1, 1, encode_payloads([b""], HEAD))], TOPIC)
