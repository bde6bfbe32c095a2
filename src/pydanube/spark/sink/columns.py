"""From the columns of a DataFrame to those of messages."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pydanube.client.encoding import ROW_BYTES_MAX
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import ALL_COLUMNS
from pydanube.spark.sink.options import WriteOptions
from pydanube.spark.source.options import nearest

_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)
_TYPES: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "payload": ((BinaryType, StringType), "BINARY or STRING"),
    "routing_key": ((StringType,), "STRING"),
    "attributes": ((MapType,), "MAP<STRING, STRING>"),
    "publish_time": ((TimestampType,), "TIMESTAMP"),
    "schema_id": (_INTEGERS, "an integer"),
    "schema_version": (_INTEGERS, "an integer"),
    "partition": (_INTEGERS, "an integer"),
    "topic": ((StringType,), "STRING"),
}
_GIVEN_BY_BROKER: Final = ("offset", "append_time", "producer_name")
"""Columns of rows that were read: those written get their own."""
_ALIASES: Final = {"key": "routing_key"}
_MESSAGE: Final = arrow.schema_of(ALL_COLUMNS)
_NEVER_NULL: Final = ("payload", "publish_time", "topic", "partition")


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Which columns make messages: by the names messages know, those of the DataFrame."""

    sources: dict[str, str]
    topic: str | None
    """The column that names the topic; None if an option does."""
    partition: str | None

    def messages(self, batch: pa.RecordBatch) -> pa.Table:
        """What becomes of the rows, with columns as messages have them, and `topic` and `partition` if they decide."""
        wanted = {**self.sources, "topic": self.topic, "partition": self.partition}
        columns = {}
        for name, source in wanted.items():
            if source is not None:
                columns[name] = _column(batch.column(source), name, source)
        return pa.table(columns)

    def digests(self, topic: str, rows: pa.Table) -> Iterator[bytes]:
        """What tells the content of a message from any other; of rows to be written and of stored ones alike."""
        values = [_canonical(name, rows.column(name)) for name in sorted(self.sources)]
        prefix = hashlib.blake2b(topic.encode(), digest_size=16)
        for row in zip(*values, strict=True):
            digest = prefix.copy()
            for value in row:
                digest.update(b"-" if value is None else b"%d:" % len(value))
                digest.update(value or b"")
            yield digest.digest()


def sink_columns(schema: StructType, options: WriteOptions) -> SinkColumns:
    """Check the columns of what is to be written.

    Raises:
        Rejected: one is missing, unknown, of another type, or said twice.
    """
    found: dict[str, str] = {}
    for field in schema:
        name = _ALIASES.get(field.name, field.name)
        if name in _GIVEN_BY_BROKER:
            continue
        if name not in _TYPES:
            raise Rejected(
                f"column {field.name!r} cannot be written to a topic: {nearest(field.name, list(_TYPES))} "
                "Put it into the payload, e.g. with to_json(struct(*)), or drop it"
            )
        if name in found:
            raise Rejected(f"columns {found[name]!r} and {field.name!r} are both the {name}: drop one")
        types, wanted = _TYPES[name]
        if not isinstance(field.dataType, types) or not _is_text_map(field.dataType):
            raise Rejected(
                f"column {field.name!r} is {field.dataType.simpleString().upper()}, expected {wanted}: cast it"
            )
        found[name] = field.name
    if "payload" not in found:
        raise Rejected(
            f"there is no column payload, only {', '.join(schema.names) or 'none at all'}: select the bytes or text "
            "of each message as payload, e.g. to_json(struct(*)) AS payload"
        )
    topic, partition = found.pop("topic", None), found.pop("partition", None)
    if options.topic is not None:
        topic = None
    elif topic is None:
        raise Rejected("no topic to write to: set the option topic, or select a column topic")
    if options.schema is not None and "schema_id" in found:
        raise Rejected("the option schema and the column schema_id both name a schema: keep one")
    return SinkColumns(found, topic, partition)


def _is_text_map(kind: DataType) -> bool:
    if not isinstance(kind, MapType):
        return True
    return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)


def _column(values: pa.Array, name: str, source: str) -> pa.Array:
    if name in _NEVER_NULL and values.null_count:
        place = pc.index(pc.is_null(values), True).as_py()
        raise Rejected(
            f"column {source!r} is null in row {place + 1} of {len(values)} that were to be written: "
            "nothing of them was; filter such rows or fill them in"
        )
    if name == "payload":
        _check_size(values, source)
    if name == "attributes" and values.items.null_count:
        raise Rejected(f"column {source!r} has an attribute whose value is null: filter or fill it in")
    if name == "publish_time":
        # Spark counts microseconds, messages milliseconds.
        return pc.floor_temporal(values, unit="millisecond").cast(_MESSAGE.field(name).type)
    if name in ("topic", "partition"):
        return values.cast(pa.string() if name == "topic" else pa.int64())
    try:
        return values.cast(_MESSAGE.field(name).type)
    except pa.ArrowException as error:
        raise Rejected(
            f"column {source!r} of type {values.type} cannot be sent as {name}, which is "
            f"{_MESSAGE.field(name).type}: {error}"
        ) from error


def _check_size(payloads: pa.Array, source: str) -> None:
    sizes = pc.binary_length(payloads)
    largest = pc.max(sizes).as_py() or 0
    if largest > ROW_BYTES_MAX:
        raise Rejected(
            f"column {source!r} has {largest} bytes in row {pc.index(sizes, largest).as_py() + 1} of {len(payloads)} "
            f"that were to be written, a message has {ROW_BYTES_MAX} at most: split it, or store it elsewhere and send "
            "where it is",
            ErrorCode.MESSAGE_TOO_LARGE,
        )


def _canonical(name: str, column: pa.ChunkedArray) -> list[bytes | None]:
    if name == "publish_time":
        column = column.cast(pa.int64())
    return [_as_bytes(value) for value in column.to_pylist()]


def _as_bytes(value: Any) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case list():
            # Attributes have no order, and none at all are as good as null.
            pairs = sorted(value)
            return (
                b"".join(b"%d:%d:" % (len(k.encode()), len(v.encode())) + (k + v).encode() for k, v in pairs)
                or None
            )
        case _:
            return str(value).encode()
