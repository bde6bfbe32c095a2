"""A batch as rows, for consumers that speak gRPC."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.messages import encode_varint
from pydanube.protocol.native.batch import (
    APPEND_TIME,
    ATTRIBUTES,
    PAYLOAD,
    PUBLISH_TIME,
    PUBLISHER,
    REQUEST_ID,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    read_layout,
)
from pydanube.protocol.native.columns import FIELDS, decode_record_batch, publisher_numbers
from pydanube.protocol.native.head import decode_head, publishers_of, shared_attributes
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE
from pydanube.protocol.native_pb2 import BatchHead, Publisher


def rows(body: bytes, topic: str, skip: int = 0, count: int | None = None) -> list[bytes]:
    """Messages of a batch as `StreamMessage` bytes without `topic_offset`.

    Protobuf takes fields in any order and the last of a repeated map key, so what all rows share is encoded once and
    goes before what is a row's own.
    """
    layout = read_layout(body)
    head = decode_head(layout)
    batch = decode_record_batch(body, layout).slice(skip, count)
    payloads: list[bytes] = batch.column(0).to_pylist()
    publishers = publishers_of(head)
    shared = [_shared_fields(publisher, head, topic, layout.columns) for publisher in publishers]
    lengths = {size: b"\x1a" + encode_varint(size) for size in set(map(len, payloads))}
    numbers = publisher_numbers(batch, len(publishers))
    if numbers is None:
        starts = {size: shared[0] + length for size, length in lengths.items()}
        if layout.columns == PAYLOAD:
            return [starts[len(payload)] + payload for payload in payloads]
        parts: list[Iterable[bytes]] = [[starts[len(payload)] for payload in payloads], payloads]
    else:
        parts = [
            [shared[number] for number in numbers.to_pylist()],
            [lengths[len(payload)] for payload in payloads],
            payloads,
        ]
    for column, field in FIELDS[1:]:
        if layout.columns & column & ~(APPEND_TIME | PUBLISHER):
            parts.append(_encoded_column(column, batch.column(field.name)))
    return [b"".join(row) for row in zip(*parts, strict=True)]


def append_times(body: bytes, skip: int, count: int) -> list[int] | None:
    """When messages of a batch were appended; None if all were when their item says."""
    layout = read_layout(body)
    if not layout.columns & APPEND_TIME:
        return None
    column = decode_record_batch(body, layout).column("append_time").slice(skip, count)
    times: list[int] = column.view(pa.int64()).to_pylist()
    return times


def routing_keys(body: bytes, skip: int = 0, count: int | None = None) -> list[str]:
    """The routing keys of messages of a batch; empty where there is none."""
    layout = read_layout(body)
    if layout.columns & ROUTING_KEY:
        column = decode_record_batch(body, layout).column("routing_key").slice(skip, count)
        return [key or "" for key in column.to_pylist()]
    left = max(layout.count - skip, 0)
    return [decode_head(layout).routing_key] * (left if count is None else min(count, left))


def _shared_fields(publisher: Publisher, head: BatchHead, topic: str, columns: int) -> bytes:
    """The fields of a `StreamMessage` that all rows of a publisher have in common."""
    message = StreamMessage(
        msg_id=MsgID(producer_id=publisher.producer_id, topic_name=topic, broker_addr=publisher.broker_addr),
        producer_name=publisher.producer_name,
        subscription_name=publisher.subscription_name,
        attributes=shared_attributes(head),
    )
    for column, name in (
        (PUBLISH_TIME, "publish_time"),
        (ROUTING_KEY, "routing_key"),
        (SCHEMA_ID, "schema_id"),
        (SCHEMA_VERSION, "schema_version"),
    ):
        if not columns & column and head.HasField(name):
            setattr(message, name, getattr(head, name))
    return message.SerializeToString()


def _encoded_column(column: int, array: pa.Array) -> list[bytes]:
    """One field of a `StreamMessage` for each value of a column; equal values are encoded once."""
    if column == ATTRIBUTES:
        return [
            b"".join([_encoded_attribute(name, value) for name, value in own]) if own else b""
            for own in array.to_pylist()
        ]
    values = (array.view(pa.int64()) if column == PUBLISH_TIME else array).to_pylist()
    encoded = {value: _encoded_field(column, value) for value in set(values)}
    return [encoded[value] for value in values]


def _encoded_field(column: int, value: Any) -> bytes:
    if value is None:
        return b""
    if column == PUBLISH_TIME:
        return b"\x20" + encode_varint(value)
    if column == SCHEMA_ID:
        return b"\x40" + encode_varint(value)
    if column == REQUEST_ID:
        return b"\x08" + encode_varint(value)
    if column == SCHEMA_VERSION:
        return b"\x48" + encode_varint(value)
    if column == ROUTING_KEY:
        return b"\x52" + _sized(value.encode())
    return _encoded_attribute(COMPACTION_KEY_ATTRIBUTE, value.decode())


def _encoded_attribute(name: str, value: str) -> bytes:
    return b"\x3a" + _sized(b"\x0a" + _sized(name.encode()) + b"\x12" + _sized(value.encode()))


def _sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data
