"""What a consumer of the native protocol gets: record batches with offsets and times, of batches and rows alike."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.batch import (
    APPEND_TIME,
    ATTRIBUTES,
    BATCH_MESSAGES_MAX,
    COMPACTION_KEY,
    PUBLISH_TIME,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    is_batch,
    read_layout,
)
from pydanube.protocol.native.bodies import NO_OFFSET, Item
from pydanube.protocol.native.columns import (
    ATTRIBUTE_MAP,
    TIME,
    decode_record_batch,
    publisher_numbers,
)
from pydanube.protocol.native.head import decode_head, publishers_of, shared_attributes
from pydanube.protocol.native.head_scan import TIME_MS_MAX
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE
from pydanube.protocol.native_pb2 import BatchHead

_NAME: Final = pa.dictionary(pa.int32(), pa.utf8())
_OFFSET_MAX: Final = (1 << 63) - 1

DELIVERED_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("publish_time", TIME),
        pa.field("append_time", TIME),
        pa.field("producer_name", _NAME),
        pa.field("routing_key", pa.utf8()),
        pa.field("attributes", ATTRIBUTE_MAP),
        pa.field("schema_id", pa.uint64()),
        pa.field("schema_version", pa.uint32()),
        pa.field("payload", pa.binary()),
    ]
)
"""What a consumer gets; null where a message has no such value. The metadata names the topic."""

_TYPES: Final[dict[str, pa.DataType]] = {field.name: field.type for field in DELIVERED_SCHEMA}
_NUMBERS: Final = {
    "publish_time": struct.Struct("<q"),
    "append_time": struct.Struct("<q"),
    "schema_id": struct.Struct("<Q"),
    "schema_version": struct.Struct("<I"),
}


def delivered_batch(item: Item, topic: str, generation: int = 0) -> pa.RecordBatch:
    """The messages an item brings, as consumers get them; payloads are not copied.

    Metadata of the schema names the topic and tells the generation, for acks of what was delivered before a seek.
    """
    if not is_batch(item.body):
        return delivered_rows([item], topic, generation)
    layout = read_layout(item.body)
    _check_range(item, layout.count)
    head = decode_head(layout)
    batch = decode_record_batch(item.body, layout).slice(item.skip, item.messages)
    columns = layout.columns
    count = item.messages
    first = item.base + item.skip
    return pa.RecordBatch.from_arrays(
        [
            _nulls("offset", count) if item.base == NO_OFFSET else pa.arange(first, first + count),
            _own_or_shared(batch, "publish_time", columns & PUBLISH_TIME, head.publish_time),
            _own_or_shared(batch, "append_time", columns & APPEND_TIME, item.append_ms),
            _producer_names(batch, head),
            _own_or_shared(batch, "routing_key", columns & ROUTING_KEY, _optional(head, "routing_key")),
            _all_attributes(batch, head, columns),
            _own_or_shared(batch, "schema_id", columns & SCHEMA_ID, _optional(head, "schema_id")),
            _own_or_shared(
                batch, "schema_version", columns & SCHEMA_VERSION, _optional(head, "schema_version")
            ),
            batch.column(0),
        ],
        schema=_delivered_schema(topic, generation),
    )


def delivered_rows(items: Sequence[Item], topic: str, generation: int = 0) -> pa.RecordBatch:
    """One record batch of items whose bodies are rows."""
    messages: list[StreamMessage] = []
    for item in items:
        _check_range(item, 1)
        try:
            messages.append(StreamMessage.FromString(item.body))
        except DecodeError as error:
            raise Rejected(f"malformed StreamMessage: {error}", ErrorCode.MALFORMED_REQUEST) from error
    arrays = [
        pa.array([None if item.base == NO_OFFSET else item.base for item in items], pa.int64()),
        pa.array([min(message.publish_time, TIME_MS_MAX) for message in messages], TIME),
        pa.array([item.append_ms for item in items], TIME),
        pa.array([message.producer_name for message in messages], _NAME),
        pa.array([m.routing_key if m.HasField("routing_key") else None for m in messages], pa.utf8()),
        pa.array([list(m.attributes.items()) or None for m in messages], ATTRIBUTE_MAP),
        pa.array([m.schema_id if m.HasField("schema_id") else None for m in messages], pa.uint64()),
        pa.array([m.schema_version if m.HasField("schema_version") else None for m in messages], pa.uint32()),
        pa.array([message.payload for message in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_delivered_schema(topic, generation))


def _check_range(item: Item, count: int) -> None:
    if not 0 < item.messages <= count - item.skip:
        raise _bad_item(f"messages {item.skip} to {item.skip + item.messages} of {count}")
    if item.base != NO_OFFSET and item.base > _OFFSET_MAX - count:
        raise _bad_item(f"offset {item.base}")


def _bad_item(what: str) -> Rejected:
    return Rejected(f"malformed DELIVER: {what} cannot be", ErrorCode.PROTOCOL_VIOLATION)


@lru_cache(maxsize=1024)
def _delivered_schema(topic: str, generation: int) -> pa.Schema:
    return DELIVERED_SCHEMA.with_metadata({"topic": topic, "generation": str(generation)})


def _optional(head: BatchHead, name: str) -> Any:
    return getattr(head, name) if head.HasField(name) else None


def _own_or_shared(batch: pa.RecordBatch, name: str, own: int, shared: Any) -> pa.Array:
    """The batch's column if it has one, else the head's value for every row."""
    if own:
        return batch.column(name)
    if shared is None:
        return _nulls(name, batch.num_rows)
    return _repeated(name, shared, batch.num_rows)


def _producer_names(batch: pa.RecordBatch, head: BatchHead) -> pa.Array:
    publishers = publishers_of(head)
    numbers = publisher_numbers(batch, len(publishers))
    if numbers is None:
        return _names(publishers[0].producer_name, batch.num_rows)
    names = _texts([publisher.producer_name for publisher in publishers])
    return pa.DictionaryArray.from_arrays(numbers.cast(pa.int32()), names)


def _all_attributes(batch: pa.RecordBatch, head: BatchHead, columns: int) -> pa.Array:
    """Attributes of each message as its `StreamMessage` would have them."""
    shared = shared_attributes(head)
    if not columns & (ATTRIBUTES | COMPACTION_KEY):
        if shared:
            return _repeated("attributes", list(shared.items()), batch.num_rows)
        return _nulls("attributes", batch.num_rows)
    if not shared and not columns & COMPACTION_KEY:
        return batch.column("attributes")
    merged = [dict(shared) for _ in range(batch.num_rows)]
    if columns & ATTRIBUTES:
        for attributes, own in zip(merged, batch.column("attributes").to_pylist(), strict=True):
            attributes.update(own or ())
    if columns & COMPACTION_KEY:
        for attributes, key in zip(merged, batch.column("compaction_key").to_pylist(), strict=True):
            if key is not None:
                attributes[COMPACTION_KEY_ATTRIBUTE] = key.decode()
    return pa.array([list(attributes.items()) or None for attributes in merged], ATTRIBUTE_MAP)


# What most batches need is made of buffers: where pandas is installed, the first `pa.array`, `pa.scalar` or `pa.repeat`
# of a process loads it, which takes longer than to read a million messages, and 50 MB.


def _repeated(name: str, value: Any, count: int) -> pa.Array:
    number = _NUMBERS.get(name)
    if number is not None:
        data = pa.py_buffer(number.pack(value) * count)
        return pa.Array.from_buffers(_TYPES[name], count, [None, data])
    if name == "attributes":
        keys, items = _texts([key for key, _ in value]), _texts([item for _, item in value])
        once = pa.MapArray.from_arrays(_numbers([0, len(value)]), keys, items)
    else:
        once = _texts([value])
    return once.take(_zeros().slice(0, count))


def _texts(values: Sequence[str]) -> pa.StringArray:
    encoded = [value.encode() for value in values]
    ends = list(accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(
        len(values), _numbers(ends).buffers()[1], pa.py_buffer(b"".join(encoded))
    )


def _numbers(values: Sequence[int]) -> pa.Array:
    data = pa.py_buffer(struct.pack(f"<{len(values)}i", *values))
    return pa.Array.from_buffers(pa.int32(), len(values), [None, data])


# Made once, as long as any batch needs, and slices of them kept: batches of one topic mostly have one length.


@lru_cache(maxsize=256)
def _nulls(name: str, count: int) -> pa.Array:
    return _all_nulls(name).slice(0, count)


@lru_cache(maxsize=len(DELIVERED_SCHEMA))
def _all_nulls(name: str) -> pa.Array:
    return pa.nulls(BATCH_MESSAGES_MAX, _TYPES[name])


@lru_cache(maxsize=1024)
def _names(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(_zeros().slice(0, count), _texts([name]))


@lru_cache(maxsize=1)
def _zeros() -> pa.Array:
    return pa.Array.from_buffers(
        pa.int32(), BATCH_MESSAGES_MAX, [None, pa.py_buffer(bytes(4 * BATCH_MESSAGES_MAX))]
    )
