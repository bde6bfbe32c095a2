"""The columns of a table that say which message a row was."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pydanube.spark.source.data_source import ROW

PAYLOAD: Final = "payload"
"""The column of raw tables that has the bytes of the message."""

PARTITION: Final = "_topic_partition"
"""Not `_partition`, which is one of Iceberg's own names."""

ENVELOPE: Final = {
    PARTITION if name == "partition" else f"_{name}": name for name in ROW.names if name != PAYLOAD
}
"""Column of the table, column of the message. They come first in a table: statistics are kept of its first columns."""

_TAKEN: Final = frozenset(ENVELOPE) | {
    "_deleted",
    "_file",
    "_last_updated_sequence_number",
    "_partition",
    "_pos",
    "_row_id",
    "_spec_id",
}
"""With what Iceberg knows about rows, and Spark refuses to read from tables that have columns so named."""

REASON: Final = "_reason"
ATTEMPT: Final = "_attempt"
"""Of quarantine tables: which attempt at a commit wrote the row."""


def envelope_schema() -> StructType:
    """All nullable: other engines may write to the table too."""
    schema = StructType()
    for column, name in ENVELOPE.items():
        schema.add(column, ROW[name].dataType)
    return schema


def raw_schema() -> StructType:
    return envelope_schema().add(PAYLOAD, ROW[PAYLOAD].dataType)


def quarantine_schema() -> StructType:
    return raw_schema().add(REASON, "string").add(ATTEMPT, "string")


def raw_rows(messages: DataFrame) -> DataFrame:
    return messages.select(
        *(fn.col(name).alias(column) for column, name in ENVELOPE.items()), fn.col(PAYLOAD)
    )


def column_of(field: str) -> str:
    """The column for a field of a schema, whatever it is called."""
    return f"{field}_" if field.lower() in _TAKEN else field
