"""Topics as DataFrames the fastest way: history by Spark's own Parquet reader, the rest through the data source."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from pydanube.client import blocking
from pydanube.protocol.native.removed import REMOVED_ATTRIBUTE
from pydanube.spark.connection import Connection
from pydanube.spark.registration import register
from pydanube.spark.source.data_source import ROW
from pydanube.spark.source.offsets import Wanted
from pydanube.spark.source.options import ALL_COLUMNS, ReadOptions, ranges_to_json
from pydanube.spark.source.planning import available, fix_ranges
from pydanube.spark.source.rows import TIME_MS_MAX
from pydanube.spark.source.segment_files import is_object
from pydanube.spark.source.slices import Slice, cover
from pydanube.spark.topics import TopicPart

__all__ = ["available", "read_ranges", "read_topic"]

_STORED = [name for name in ALL_COLUMNS if name not in ("topic", "partition")]


def read_topic(
    spark: SparkSession,
    topic: str | Sequence[str],
    *,
    connection: Connection | None = None,
    start: str | Mapping[str, object] | datetime = "earliest",
    end: str | Mapping[str, object] | datetime = "latest",
    columns: Sequence[str] | None = None,
    store: Mapping[str, str] | None = None,
) -> DataFrame:
    """The messages of a topic, or of several, from one position to another, both fixed now.

    Args:
        start: earliest, latest, offsets as in `{"/default/orders": {"0": 12}}`, or a moment of appending.
        end: the same; what it names is not read any more.
        columns: of those in `columns.py`; all if None.
        store: how to get into the object store, where a session without it is to read through the data source.
    """
    connection = connection or Connection()
    options = ReadOptions(
        connection,
        topics=(topic,) if isinstance(topic, str) else tuple(topic),
        start=Wanted.of(start, otherwise="earliest", what="start"),
        end=Wanted.of(end, otherwise="latest", what="end"),
    )
    with connection.client() as client:
        ranges = {name: one for name, (one,) in fix_ranges(client, options).items()}
        by_spark, by_source = _divide(spark, client, ranges)
    return _frame(spark, connection, by_spark, by_source, columns, store)


def read_ranges(
    spark: SparkSession,
    connection: Connection,
    ranges: Mapping[str, range],
    *,
    columns: Sequence[str] | None = None,
    store: Mapping[str, str] | None = None,
) -> DataFrame:
    """Exactly these offsets, by the names of parts, without those whose messages were removed."""
    with connection.client() as client:
        by_spark, by_source = _divide(spark, client, ranges)
    return _frame(spark, connection, by_spark, by_source, columns, store)


def _divide(
    spark: SparkSession, client: blocking.Client, ranges: Mapping[str, range]
) -> tuple[dict[TopicPart, list[Slice]], dict[str, list[range]]]:
    """What Spark reads itself, and what the data source has to."""
    by_spark: dict[TopicPart, list[Slice]] = {}
    by_source: dict[str, list[range]] = {}
    for name, wanted in ranges.items():
        part = TopicPart.of_name(name)
        segments = client.history.segments(name, wanted.start) if wanted else []
        for piece in cover(part, segments, wanted):
            if _can_spark_read(spark, piece):
                by_spark.setdefault(part, []).append(piece)
            else:
                by_source.setdefault(name, []).append(range(piece.start, piece.end))
    return by_spark, by_source


def _frame(  # noqa: PLR0917
    spark: SparkSession,
    connection: Connection,
    by_spark: Mapping[TopicPart, Sequence[Slice]],
    by_source: Mapping[str, Sequence[range]],
    columns: Sequence[str] | None,
    store: Mapping[str, str] | None,
) -> DataFrame:
    columns = ALL_COLUMNS if columns is None else columns
    frames = [_from_files(spark, part, pieces, columns) for part, pieces in by_spark.items()]
    if by_source or not frames:
        frames.append(_from_source(spark, connection, by_source, columns, store or {}))
    return _union(frames)


def _from_files(
    spark: SparkSession, part: TopicPart, pieces: Sequence[Slice], columns: Sequence[str]
) -> DataFrame:
    """Neighbouring slices of segments, read by Spark itself."""
    paths = [_path(piece.segment.place) for piece in pieces if piece.segment is not None]
    schema = StructType([ROW[name] for name in _STORED])
    reader = spark.read.schema(schema).options(ignoreMissingFiles=False, ignoreCorruptFiles=False)
    stored = reader.parquet(*paths)
    # A file that lies wholly within needs no look at each offset.
    first, last = pieces[0], pieces[-1]
    if first.segment is not None and first.segment.start_offset < first.start:
        stored = stored.where(F.col("offset") >= first.start)
    if last.segment is not None and last.segment.end_offset >= last.end:
        stored = stored.where(F.col("offset") < last.end)
    if any(piece.segment is not None and piece.segment.may_have_removed for piece in pieces):
        removed = F.map_contains_key("attributes", REMOVED_ATTRIBUTE)
        stored = stored.where(F.col("attributes").isNull() | ~removed)
    constants = {"topic": F.lit(part.topic), "partition": F.lit(part.partition).cast("int")}
    return stored.select(*(constants.get(name, F.col(name)).alias(name) for name in columns))


def _from_source(
    spark: SparkSession,
    connection: Connection,
    ranges: Mapping[str, Sequence[range]],
    columns: Sequence[str],
    store: Mapping[str, str],
) -> DataFrame:
    register(spark)
    given = {f"store.{key}": value for key, value in store.items()}
    reader = spark.read.format("danube").options(**connection.options(), **given)
    return reader.options(ranges=ranges_to_json(ranges), columns=",".join(columns)).load()


def _can_spark_read(spark: SparkSession, piece: Slice) -> bool:
    """Whether the file is one that every executor may be expected to reach, with times that Spark can express."""
    segment = piece.segment
    if segment is None or segment.max_publish_ms > TIME_MS_MAX:
        return False
    if not is_object(segment.place):
        return Path(segment.place).is_file()
    return segment.place.startswith("s3://") and _has_s3a(spark)


def _has_s3a(spark: SparkSession) -> bool:
    """Whether the session was told how to get into S3."""
    return any(
        spark.conf.get(f"spark.hadoop.fs.s3a.{key}", None) is not None
        for key in ("endpoint", "access.key", "aws.credentials.provider", "endpoint.region")
    )


def _path(place: str) -> str:
    if is_object(place):
        return f"s3a://{place.removeprefix('s3://')}"
    return Path(place).as_uri()


def _union(frames: list[DataFrame]) -> DataFrame:
    """Of neighbours first: a chain would be as deep as there are frames."""
    while len(frames) > 1:
        frames = [reduce(DataFrame.unionAll, frames[at : at + 2]) for at in range(0, len(frames), 2)]
    return frames[0]
