"""The rows of a table published into a topic, each once, also when the job is run again."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from pydanube.kernel.errors import Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.registration import register

REPLAYED_FROM: Final = "x-replayed-from"


class TableFormat(StrEnum):
    PARQUET = "parquet"
    ICEBERG = "iceberg"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class TableReplay:
    """What goes where."""

    table: str
    """A path, a pattern of paths, or the name of a table of a catalog."""
    format: TableFormat
    topic: str
    write_id: str
    """Names the job: rows it has published are not published again by a job of that name."""
    payload: str | None = None
    """The column with the payload; None: the whole row as JSON."""
    key: str | None = None
    attributes: Sequence[str] = ()
    """Columns that become attributes; one of type map brings all its entries."""
    where: str | None = None
    """A condition in SQL."""
    version: str | None = None
    """Of an Iceberg or Delta table: a snapshot, a version."""
    partitions: int | None = None
    dry_run: bool = False


class TableReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    topic: str
    write_id: str
    rows: int
    dry_run: bool


def replay_table(spark: SparkSession, connection: Connection, replay: TableReplay) -> TableReplayReport:
    """Publish the rows of a table; return when all are stored.

    Raises:
        Rejected: the table has no such column, or a row cannot be published.
    """
    messages = as_messages(_rows(spark, replay), replay)
    rows = messages.count()
    if not replay.dry_run:
        register(spark)
        options = {**connection.options(), "topic": replay.topic, "writeId": replay.write_id}
        if replay.partitions is not None:
            options["partitions"] = str(replay.partitions)
        messages.write.format("danube").options(**options).mode("append").save()
    return TableReplayReport(
        table=replay.table, topic=replay.topic, write_id=replay.write_id, rows=rows, dry_run=replay.dry_run
    )


def as_messages(rows: DataFrame, replay: TableReplay) -> DataFrame:
    """The columns of messages: payload, routing_key if there is a key, attributes."""
    _check_columns(rows, [replay.payload, replay.key, *replay.attributes])
    columns = [_payload(rows, replay.payload).alias("payload")]
    if replay.key is not None:
        columns.append(F.col(f"`{replay.key}`").cast("string").alias("routing_key"))
    columns.append(_attributes(rows, replay).alias("attributes"))
    return rows.select(*columns)


def _rows(spark: SparkSession, replay: TableReplay) -> DataFrame:
    reader = spark.read.format(replay.format.value)
    if replay.version is not None:
        if replay.format is TableFormat.PARQUET:
            raise Rejected(f"{replay.format} files have no versions: --version goes with iceberg and delta")
        reader = reader.option("versionAsOf", replay.version)
    is_path = "/" in replay.table or "*" in replay.table or replay.format is TableFormat.PARQUET
    rows = reader.load(replay.table) if is_path else reader.table(replay.table)
    return rows if replay.where is None else rows.where(replay.where)


def _payload(rows: DataFrame, column: str | None) -> Column:
    if column is None:
        return F.to_json(
            F.struct(*(F.col(f"`{name}`") for name in rows.columns)), {"ignoreNullFields": "false"}
        )
    kind = rows.schema[column].dataType
    value = F.col(f"`{column}`")
    if isinstance(kind, (BinaryType, StringType)):
        return value
    return F.to_json(value) if _is_nested(kind) else value.cast("string")


def _attributes(rows: DataFrame, replay: TableReplay) -> Column:
    """Where it came from, and the columns asked for; what is null is left out."""
    single: list[Column] = [F.lit(REPLAYED_FROM), F.lit(replay.table)]
    maps: list[Column] = []
    for name in replay.attributes:
        value = F.col(f"`{name}`")
        if isinstance(rows.schema[name].dataType, MapType):
            maps.append(
                F.coalesce(value.cast("map<string,string>"), F.create_map().cast("map<string,string>"))
            )
        else:
            single += [F.lit(name), value.cast("string")]
    own = F.map_filter(F.create_map(*single), lambda _, value: value.isNotNull())
    # Of the same name in two of them, the last counts, as it does for Spark.
    return F.map_concat(*maps, own) if maps else own


def _is_nested(kind: DataType) -> bool:
    return isinstance(kind, (ArrayType, MapType, StructType))


def _check_columns(rows: DataFrame, names: Sequence[str | None]) -> None:
    for name in names:
        if name is not None and name not in rows.columns:
            near = get_close_matches(name, rows.columns, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise Rejected(f"the table has no column {name!r}: it has {', '.join(rows.columns)}{hint}")
