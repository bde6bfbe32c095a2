"""Typed columns out of payloads, through the schema registry.

    decoded = decode(messages, RegistrySchemas(connection, topic="/default/orders"), on_error="quarantine")
    decoded.rows            # topic, partition, offset, …, and a column for each field of the schema
    decoded.quarantined     # what could not be decoded, with the reason; `replay_quarantine` tries again

Start reading at `frames.py`, then `batches.py` (what an executor does), then one format: `json_rows.py`, `avro_rows.py`
or `protobuf_rows.py` with its `_columns.py`.
"""

from pydanube.spark.decoding.frames import (
    KEPT,
    Decoded,
    OnError,
    decode,
    replay_quarantine,
    table_schema,
)
from pydanube.spark.decoding.payloads import ERROR_COLUMN
from pydanube.spark.decoding.schema_sources import FileSchemas, LoadedSchemas, RegistrySchemas, SchemaSource

__all__ = [
    "ERROR_COLUMN",
    "KEPT",
    "Decoded",
    "FileSchemas",
    "LoadedSchemas",
    "OnError",
    "RegistrySchemas",
    "SchemaSource",
    "decode",
    "replay_quarantine",
    "table_schema",
]
