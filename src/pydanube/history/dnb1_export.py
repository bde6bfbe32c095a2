"""Messages of segments as frames that a Danube broker and its tools read."""

from typing import Any

import pyarrow as pa

from pydanube.protocol.dnb1 import Message, encode_frame, encode_message

_U64_MASK = (1 << 64) - 1


def dnb1_frames(batch: pa.RecordBatch, topic: str) -> bytes:
    """A frame for each message of `batch`, whose columns are those of `SEGMENT_SCHEMA`.

    A message that came in a batch has no request id and no broker address: these become 0 and nothing.
    """
    values = {name: _values(batch.column(name)) for name in batch.schema.names}
    rows = zip(
        values["offset"],
        values["request_id"],
        values["producer_id"],
        values["broker_addr"],
        values["payload"],
        values["publish_time"],
        values["producer_name"],
        values["subscription_name"],
        values["attributes"],
        values["schema_id"],
        values["schema_version"],
        values["routing_key"],
        strict=True,
    )
    frames: list[bytes] = []
    for (
        offset,
        request_id,
        producer_id,
        broker_addr,
        payload,
        publish_time,
        producer_name,
        subscription_name,
        attributes,
        schema_id,
        schema_version,
        routing_key,
    ) in rows:
        message = Message(
            (request_id or 0) & _U64_MASK,
            producer_id & _U64_MASK,
            topic,
            broker_addr or "",
            offset,
            payload,
            publish_time,
            producer_name,
            subscription_name,
            tuple(attributes or ()),
            None if schema_id is None else schema_id & _U64_MASK,
            schema_version,
            routing_key,
        )
        frames.append(encode_frame(offset, encode_message(message)))
    return b"".join(frames)


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        # Python's own times end in the year 9999; a publish time is whatever a client said.
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values
