"""The columns of a topic in Spark."""

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
"""Spark's timestamps count microseconds."""

MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", TIME, nullable=False),
        pa.field("append_time", TIME, nullable=False),
        pa.field("producer_name", pa.string(), nullable=False),
        pa.field("routing_key", pa.string()),
        pa.field("attributes", pa.map_(pa.string(), pa.string())),
        pa.field("schema_id", pa.int64()),
        pa.field("schema_version", pa.int64()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""What a row has. `topic` is the name asked for; a topic without partitions is its own partition 0."""

MESSAGE_DDL: Final = (
    "topic STRING NOT NULL, partition INT NOT NULL, offset BIGINT NOT NULL, publish_time TIMESTAMP NOT NULL, "
    "append_time TIMESTAMP NOT NULL, producer_name STRING NOT NULL, routing_key STRING, "
    "attributes MAP<STRING, STRING>, schema_id BIGINT, schema_version BIGINT, payload BINARY NOT NULL"
)
"""The same in Spark's words."""
