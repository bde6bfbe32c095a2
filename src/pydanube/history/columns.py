"""The columns of a segment, as Arrow sees them. Importing this loads Arrow."""

from typing import Final

import pyarrow as pa

from pydanube.protocol.native.columns import ATTRIBUTE_MAP, TIME

SEGMENT_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("publish_time", TIME, nullable=False),
        pa.field("append_time", TIME, nullable=False),
        pa.field("producer_name", pa.dictionary(pa.int32(), pa.utf8()), nullable=False),
        pa.field("routing_key", pa.utf8()),
        pa.field("attributes", ATTRIBUTE_MAP),
        pa.field("schema_id", pa.int64()),
        pa.field("schema_version", pa.int64()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("request_id", pa.int64()),
        pa.field("broker_addr", pa.dictionary(pa.int32(), pa.utf8())),
        pa.field("subscription_name", pa.dictionary(pa.int32(), pa.utf8())),
    ]
)
"""First what users ask for, then what a StreamMessage has beside it; these are null for messages that came in batches.

Unsigned 64-bit numbers of the wire (schema_id, producer_id, request_id) are kept as signed ones of the same bits: many
engines know no unsigned ones, and real values are far from the sign.
"""

MESSAGE_COLUMNS: Final = SEGMENT_SCHEMA.names[:9]
"""What `DELIVERED_SCHEMA` of the native protocol has too."""
