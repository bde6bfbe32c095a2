"""Everything of a batch that needs Arrow, under one name.

Importing this costs 0.2 s and 80 MB for Arrow itself, so its users import it when the first batch comes. Whatever reads
a body raises `Rejected` with BATCH_INVALID for a broken one, and sets aside no more memory than the body's bounded size.
Start reading at `columns.py`; `checking.py` is what a broker asks first.
"""

from pydanube.protocol.native.columns import (
    decode_record_batch,
    encode_payloads,
    encode_record_batch,
    schema_of,
)
from pydanube.protocol.native.delivered import DELIVERED_SCHEMA, delivered_batch, delivered_rows
from pydanube.protocol.native.rows import append_times, routing_keys, rows

__all__ = [
    "DELIVERED_SCHEMA",
    "append_times",
    "decode_record_batch",
    "delivered_batch",
    "delivered_rows",
    "encode_payloads",
    "encode_record_batch",
    "routing_keys",
    "rows",
    "schema_of",
]
