"""Payloads as typed columns of a DataFrame, batch or streaming.

Decoding is one function of three columns (schema id, version, payload) that gives a row and an error. Everything else is
Spark's: the other columns never leave the JVM, and nothing is decoded for a query that asks for none of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from pydanube.kernel.errors import Rejected
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.decoding.batches import ERROR, ROW, BatchDecoder, table_format
from pydanube.spark.decoding.payloads import ERROR_COLUMN
from pydanube.spark.decoding.schema_sources import LoadedSchemas, SchemaSource

OnError: TypeAlias = Literal["permissive", "quarantine", "fail"]

KEPT: Final = (
    "topic",
    "partition",
    "offset",
    "publish_time",
    "append_time",
    "producer_name",
    "routing_key",
    "attributes",
)
"""Columns of the message that stay beside the typed ones."""

REASON_COLUMN: Final = "reason"

_DECODED: Final = "_decoded"


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of messages. Nothing has run yet."""

    rows: DataFrame
    """Kept columns and typed ones; what is in it besides good rows, `on_error` says."""
    quarantined: DataFrame
    """The messages that make no row, as they came, each with its `reason`."""
    tagged: DataFrame
    """What both come from: persist it to write both in one pass."""


def decode(
    df: DataFrame,
    schemas: SchemaSource,
    *,
    on_error: OnError = "permissive",
    keep: Sequence[str] = KEPT,
) -> Decoded:
    """Payloads to columns: each message by the schema version it names, all of them in the columns of one version.

    Args:
        df: messages, as the data source gives them; only `payload` must be there.
        schemas: asked once, here; a version registered later is fetched by the executors that meet it.
        on_error: what a message that makes no row is in `rows`: a row of nulls with `_decode_error` (permissive),
            nothing (quarantine), or the end of the query, with topic, partition, offset and reason (fail).
        keep: columns of `df` to have beside the typed ones.

    Raises:
        Rejected: an argument is wrong, or the schema is unknown or cannot be understood.
    """
    if on_error not in get_args(OnError):
        raise Rejected(f"invalid on_error {on_error!r}: use one of {', '.join(get_args(OnError))}")
    _check_columns(df, keep)
    loaded = schemas.load()
    columns = table_format(loaded.table).columns
    tagged = df.select("*", _decoding(df, loaded, columns).alias(_DECODED))
    error = fn.col(_DECODED)[ERROR]
    typed = [fn.col(_DECODED)[ROW][name].alias(name) for name in columns.names]
    match on_error:
        case "permissive":
            rows = tagged.select(*map(_column, keep), *typed, error.alias(ERROR_COLUMN))
        case "quarantine":
            rows = tagged.filter(error.isNull()).select(*map(_column, keep), *typed)
        case "fail":
            rows = tagged.filter(_fine_or_fail(df, error)).select(*map(_column, keep), *typed)
    return Decoded(rows, _quarantined(df, tagged.filter(error.isNotNull()), error), tagged)


def replay_quarantine(
    quarantine: DataFrame | str,
    schemas: SchemaSource,
    *,
    spark: SparkSession | None = None,
    on_error: OnError = "quarantine",
    keep: Sequence[str] = KEPT,
) -> Decoded:
    """Decode again what was quarantined, now that the schema is right; `quarantined` is what still fails.

    Args:
        quarantine: what `Decoded.quarantined` was, or the name of a table it was written to.
        schemas: as for `decode`.
        spark: where the table is; the active session if not given.
        on_error: as for `decode`.
        keep: as for `decode`.
    """
    if isinstance(quarantine, str):
        session = spark or SparkSession.active()
        quarantine = session.table(quarantine)
    return decode(quarantine.drop(REASON_COLUMN), schemas, on_error=on_error, keep=keep)


def table_schema(schemas: SchemaSource) -> StructType:
    """The typed columns, all nullable."""
    columns = table_format(schemas.load().table).columns
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


def _decoding(df: DataFrame, schemas: LoadedSchemas, columns: pa.Schema) -> Column:
    def decode_batches(batches: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        decoder = BatchDecoder(schemas)
        for ids, versions, payloads in batches:
            yield decoder.decode(ids, versions, payloads)

    made = pa.struct([(ROW, pa.struct(list(columns))), (ERROR, pa.string())])
    type_ = from_arrow_type(made, prefer_timestamp_ntz=True)
    # The stubs know no iterators of several columns, the function does.
    function: Any = arrow_udf(decode_batches, type_)  # type: ignore[call-overload]
    named = [
        _column(name).cast("bigint") if name in df.columns else fn.lit(None).cast("bigint")
        for name in ("schema_id", "schema_version")
    ]
    # Spark would evaluate a deterministic function again for a filter on its result.
    decoded: Column = function.asNondeterministic()(*named, fn.col("payload").cast("binary"))
    return decoded


def _fine_or_fail(df: DataFrame, error: Column) -> Column:
    where = [
        fn.concat(fn.lit(f"{name} "), _column(name).cast("string"), fn.lit(", "))
        for name in ("topic", "partition", "offset")
        if name in df.columns
    ]
    text = fn.concat(fn.lit("a payload cannot be decoded: "), *where, error)
    return fn.when(error.isNull(), fn.lit(True)).otherwise(fn.raise_error(text).cast("boolean"))


def _quarantined(df: DataFrame, bad: DataFrame, error: Column) -> DataFrame:
    types = from_arrow_schema(MESSAGE_SCHEMA)
    columns = [
        (_column(field.name) if field.name in df.columns else fn.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for field in types
    ]
    return bad.select(*columns, error.alias(REASON_COLUMN))


def _check_columns(df: DataFrame, keep: Sequence[str]) -> None:
    for name in ("payload", *keep):
        if name not in df.columns:
            raise Rejected(
                f"the DataFrame has no column {name!r}, only {', '.join(df.columns)}: "
                "read it with the data source, or name the columns to keep"
            )


def _column(name: str) -> Column:
    return fn.col(f"`{name.replace('`', '``')}`")
