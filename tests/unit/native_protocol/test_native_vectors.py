"""Sample bytes of the native protocol for other languages: what they mean, and that this code writes and reads them so.

`tests/vectors/*.json` holds bytes as hex beside their meaning. After a deliberate change of the protocol,
PYDANUBE_REWRITE_VECTORS=1 rewrites the files; read the difference before committing it.
"""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol import native_pb2
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import bodies, frames
from pydanube.protocol.native.arrow import (
    decode_record_batch,
    encode_payloads,
    encode_record_batch,
    rows,
    schema_of,
)
from pydanube.protocol.native.batch import MERGED_COLUMNS, NONE, PAYLOAD, PUBLISH_TIME, read_layout
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.head import decode_head
from pydanube.protocol.native.timing import timing

VECTORS = Path(__file__).parents[2] / "vectors"
TOPIC = "/default/orders"
HEAD = native_pb2.BatchHead(producer_id=7, producer_name="shop", publish_time=1_700_000_000_000)
FULL_HEAD = native_pb2.BatchHead(
    producer_id=7,
    producer_name="shop",
    publish_time=1_700_000_000_000,
    schema_id=3,
    schema_version=2,
    routing_key="customer-1",
    attributes={"source": "till"},
    deliver_at=1_700_000_060_000,
    deliver_after=5_000,
    ttl=86_400_000,
)
ROW = StreamMessage(
    msg_id=MsgID(producer_id=7, topic_name=TOPIC),
    payload=b"one",
    publish_time=1_700_000_000_000,
    producer_name="shop",
    attributes={"x-ttl": "60000"},
).SerializeToString()
PAYLOADS = [b"one", b"", b"three"]
COLUMNS: dict[str, list[Any]] = {
    "publish_times": [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002],
    "routing_keys": ["customer-1", None, "ü"],
    "attributes": [{"a": "1"}, None, {}],
    "schema_ids": [3, None, 2**64 - 1],
    "schema_versions": [2, None, 2**32 - 1],
    "compaction_keys": [b"order-1", None, b""],
}
MERGED_HEAD = native_pb2.BatchHead(
    publishers=[
        native_pb2.Publisher(producer_id=7, producer_name="shop", broker_addr="http://127.0.0.1:6650"),
        native_pb2.Publisher(producer_id=2**64 - 1, producer_name="till", subscription_name="billing"),
    ]
)
MERGED: dict[str, list[Any]] = {
    "payload": PAYLOADS,
    "publish_time": [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002],
    "append_time": [1_700_000_000_005, 1_700_000_000_005, 1_700_000_000_006],
    "publisher": [0, 1, 0],
    "request_id": [1, None, 2**64 - 1],
}
CODECS = {0: "none", 1: "lz4", 2: "zstd"}
POSITION = native_pb2.Position

CONTROL: list[tuple[str, int, Message]] = [
    ("HELLO", 0, native_pb2.Hello(version_min=1, version_max=1, client="example 1.0", token="secret")),
    ("HELLO", 0, native_pb2.Hello(version_min=1, version_max=1, client="example 2.0", batch_columns=1023)),
    (
        "WELCOME",
        0,
        native_pb2.Welcome(
            version=1,
            broker="broker-1",
            frame_bytes_max=4_259_840,
            publish_window_bytes=33_554_432,
            channels_max=10_000,
            idle_seconds_max=60,
            batch_bytes_max=4_194_304,
            batch_messages_max=65_536,
        ),
    ),
    ("ERROR", 5, native_pb2.Error(code=200, text="no such topic", status=5)),
    ("ERROR", 0, native_pb2.Error(code=500, text="moved", status=14, connect_url="http://127.0.0.1:6651")),
    ("LOOKUP", 0, native_pb2.Lookup(topic=TOPIC)),
    ("LOOKED_UP", 0, native_pb2.LookedUp(here=True, partitions=[f"{TOPIC}-part-0", f"{TOPIC}-part-1"])),
    (
        "OPEN_PRODUCER",
        5,
        native_pb2.OpenProducer(
            topic=TOPIC, name="shop", dispatch=native_pb2.RELIABLE, idempotent=True, epoch=4
        ),
    ),
    ("PRODUCER_OPENED", 5, native_pb2.ProducerOpened(producer_id=7, epoch=4, last_sequence=41)),
    (
        "SUBSCRIBE",
        6,
        native_pb2.Subscribe(
            topic=TOPIC,
            subscription="billing",
            consumer="c-1",
            type=native_pb2.KEY_SHARED,
            key_filters=["customer-*"],
            start=POSITION(kind=POSITION.EARLIEST),
            unacked_max=1000,
        ),
    ),
    ("SUBSCRIBED", 6, native_pb2.Subscribed(consumer_id=9, next_offset=100, dispatch=native_pb2.RELIABLE)),
    (
        "OPEN_READER",
        7,
        native_pb2.OpenReader(
            topic=TOPIC,
            start=POSITION(kind=POSITION.TIMESTAMP, value=1_700_000_000_000),
            end=POSITION(kind=POSITION.OFFSET, value=200),
        ),
    ),
    ("READER_OPENED", 7, native_pb2.ReaderOpened(next_offset=100, end_offset=200)),
    (
        "NACK",
        6,
        native_pb2.Nack(ranges=[native_pb2.Range(first=1, last=3)], delay_ms=1500, reason="later"),
    ),
    ("SEEK", 6, native_pb2.Seek(position=POSITION(kind=POSITION.LATEST))),
    ("SEEKED", 6, native_pb2.Seeked(next_offset=300)),
]


def control_body(message: Message) -> dict[str, Any]:
    return {
        "message": message.DESCRIPTOR.name,
        "fields": MessageToDict(message, preserving_proto_field_name=True),
    }


def frame_vectors() -> list[dict[str, Any]]:
    vectors = [{"name": "PREFACE", "hex": frames.PREFACE.hex()}]
    vectors += [
        frame_vector(name, channel, 3, message.SerializeToString(deterministic=True), control_body(message))
        for name, channel, message in CONTROL
    ]
    vectors += [frame_vector(name, 0, 8, b"\x01\x02", {"hex": "0102"}) for name in ("PING", "PONG")]
    vectors += [frame_vector(name, 6, 9, b"", {}) for name in ("ACKED", "CLOSE", "CLOSED")]
    for name, body in (("row", ROW), ("batch", encode_payloads(PAYLOADS, HEAD))):
        vectors.append(
            {
                "name": f"PUBLISH of a {name}",
                "hex": (frames.publish_header(5, 10, 42, len(body)) + body).hex(),
                "type": frames.PUBLISH,
                "channel": 5,
                "request": 10,
                "body": {"sequence": 42, "entry": body.hex()},
            }
        )
    answers = [bodies.Published(10, 3, 100), bodies.Published(11, 1, bodies.NO_OFFSET)]
    items = [bodies.Item(100, 1_700_000_000_005, 1, 2, 1, encode_payloads(PAYLOADS, HEAD))]
    items.append(bodies.Item(103, 1_700_000_000_006, 0, 1, 2, ROW))
    ranges = [(100, 102), (105, 105), (2**63, 2**64 - 1)]
    vectors += [
        frame_vector(
            "PUBLISHED",
            5,
            0,
            b"".join([bodies.encode_published(*answer) for answer in answers]),
            {"items": [answer._asdict() for answer in answers]},
        ),
        frame_vector("CREDIT", 6, 0, bodies.encode_credit(1000, 2**33), {"messages": 1000, "bytes": 2**33}),
        frame_vector(
            "DELIVER",
            6,
            0,
            b"".join([bodies.encode_item_header(*item[:5], len(item.body)) + item.body for item in items]),
            {"items": [{**item._asdict(), "body": item.body.hex()} for item in items]},
        ),
        frame_vector("ACK", 6, 12, bodies.encode_ranges(ranges), {"ranges": [list(pair) for pair in ranges]}),
    ]
    return vectors


def frame_vector(
    name: str, channel: int, request: int, body: bytes, meaning: dict[str, Any]
) -> dict[str, Any]:
    kind: int = getattr(frames, name)
    data = frames.encode_frame(kind, channel, request, body)
    return {
        "name": name,
        "hex": data.hex(),
        "type": kind,
        "channel": channel,
        "request": request,
        "body": meaning,
    }


def batch_vectors() -> list[dict[str, Any]]:
    cases: list[tuple[str, native_pb2.BatchHead, dict[str, list[Any]], int]] = [
        ("payloads only", HEAD, {}, 0),
        ("everything in the head", FULL_HEAD, {}, 0),
        *[(f"with {name}", HEAD, {name: values}, 0) for name, values in COLUMNS.items()],
        *[(f"all columns, codec {name}", HEAD, COLUMNS, codec) for codec, name in CODECS.items()],
    ]
    written = [
        (name, head, encode_payloads(PAYLOADS, head, codec=codec, **columns))
        for name, head, columns, codec in cases
    ]
    schema = schema_of(PAYLOAD | PUBLISH_TIME | MERGED_COLUMNS)
    arrays = [pa.array(MERGED[field.name], field.type) for field in schema]
    merged = pa.RecordBatch.from_arrays(arrays, schema=schema)
    written.append(
        ("merged by a broker, only delivered", MERGED_HEAD, encode_record_batch(merged, MERGED_HEAD))
    )
    vectors = []
    for name, head, body in written:
        layout = read_layout(body)
        vectors.append(
            {
                "name": name,
                "hex": body.hex(),
                "codec": CODECS[layout.codec],
                "count": layout.count,
                "raw_bytes": layout.raw_bytes,
                "columns": layout.columns,
                "head": MessageToDict(head, preserving_proto_field_name=True),
                "messages": columns_of(decode_record_batch(body)),
            }
        )
    return vectors


def columns_of(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Values of each column as JSON has them: bytes as hex, times in milliseconds, maps as lists of pairs."""
    values: dict[str, list[Any]] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        listed = (column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        if pa.types.is_binary(column.type):
            listed = [None if value is None else value.hex() for value in listed]
        if name == "attributes":
            listed = [None if own is None else [list(pair) for pair in own] for own in listed]
        values[name] = listed
    return values


def stored(name: str) -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return vectors


@pytest.mark.parametrize("name", ["frames", "batches"])
def test_the_vectors_are_what_this_code_writes(name: str) -> None:
    written = frame_vectors() if name == "frames" else batch_vectors()
    if os.environ.get("PYDANUBE_REWRITE_VECTORS") == "1":
        text = json.dumps(written, indent=1, ensure_ascii=False)
        (VECTORS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    kept = stored(name)
    assert [vector["name"] for vector in written] == [vector["name"] for vector in kept]
    for mine, theirs in zip(written, kept, strict=True):
        if mine.get("codec", CODECS[NONE]) != CODECS[NONE]:
            # Compressors of other releases may find other bytes; reading them is tested below.
            mine["hex"] = theirs["hex"]
        assert mine == theirs


def test_every_type_of_frame_has_a_vector() -> None:
    assert {vector.get("type") for vector in stored("frames")} == {None, *range(1, 25)}


@pytest.mark.parametrize("vector", stored("frames")[1:], ids=lambda vector: vector["name"])
def test_frames_mean_what_their_vectors_say(vector: dict[str, Any]) -> None:
    reader = frames.FrameReader(frames.FRAME_BYTES_MAX, preface=frames.PREFACE)
    got = reader.receive(frames.PREFACE + bytes.fromhex(vector["hex"]))
    assert [(frame.kind, frame.channel, frame.request) for frame in got] == [
        (vector["type"], vector["channel"], vector["request"])
    ]
    assert meaning_of(got[0], vector["body"]) == vector["body"]


def meaning_of(frame: frames.Frame, like: dict[str, Any]) -> dict[str, Any]:
    if "message" in like:
        kind = getattr(native_pb2, like["message"])
        assert kind.FromString(frame.body) == ParseDict(like["fields"], kind())
        return control_body(kind.FromString(frame.body))
    if frame.kind == frames.PUBLISH:
        return {"sequence": frame.sequence, "entry": frame.body.hex()}
    if frame.kind == frames.PUBLISHED:
        return {"items": [answer._asdict() for answer in bodies.decode_published(frame.body)]}
    if frame.kind == frames.DELIVER:
        return {
            "items": [{**item._asdict(), "body": item.body.hex()} for item in bodies.decode_items(frame.body)]
        }
    if frame.kind == frames.ACK:
        return {"ranges": [list(pair) for pair in bodies.decode_ranges(frame.body)]}
    if frame.kind == frames.CREDIT:
        messages, size = bodies.decode_credit(frame.body)
        return {"messages": messages, "bytes": size}
    return {"hex": frame.body.hex()} if frame.body else {}


@pytest.mark.parametrize("vector", stored("batches"), ids=lambda vector: vector["name"])
def test_batches_mean_what_their_vectors_say(vector: dict[str, Any]) -> None:
    body = bytes.fromhex(vector["hex"])
    layout = read_layout(body)
    assert CODECS[layout.codec] == vector["codec"]
    assert (layout.count, layout.raw_bytes, layout.columns) == (
        vector["count"],
        vector["raw_bytes"],
        vector["columns"],
    )
    assert columns_of(decode_record_batch(body)) == vector["messages"]
    head = ParseDict(vector["head"], native_pb2.BatchHead())
    assert decode_head(layout) == head
    assert timing(body) == (head.deliver_at, head.deliver_after, head.ttl)


@pytest.mark.parametrize("vector", stored("batches"), ids=lambda vector: vector["name"])
def test_a_broker_takes_every_batch_but_merged_ones(vector: dict[str, Any]) -> None:
    body = bytes.fromhex(vector["hex"])
    if not vector["columns"] & MERGED_COLUMNS:
        head = ParseDict(vector["head"], native_pb2.BatchHead())
        checked = check_batch(body)
        assert (checked.count, checked.head.producer_id) == (vector["count"], head.producer_id)
        assert checked.head.schema_id == head.schema_id
        return
    with pytest.raises(Rejected, match="only brokers write") as refusal:
        check_batch(body)
    assert refusal.value.code is ErrorCode.BATCH_INVALID


def test_a_merged_batch_stands_for_these_rows() -> None:
    body = bytes.fromhex(stored("batches")[-1]["hex"])
    shop = MsgID(producer_id=7, topic_name=TOPIC, broker_addr="http://127.0.0.1:6650")
    till = MsgID(producer_id=2**64 - 1, topic_name=TOPIC)
    assert [StreamMessage.FromString(row) for row in rows(body, TOPIC)] == [
        StreamMessage(
            request_id=1, msg_id=shop, payload=b"one", publish_time=1_700_000_000_000, producer_name="shop"
        ),
        StreamMessage(
            msg_id=till,
            payload=b"",
            publish_time=1_700_000_000_001,
            producer_name="till",
            subscription_name="billing",
        ),
        StreamMessage(
            request_id=2**64 - 1,
            msg_id=shop,
            payload=b"three",
            publish_time=1_700_000_000_002,
            producer_name="shop",
        ),
    ]
