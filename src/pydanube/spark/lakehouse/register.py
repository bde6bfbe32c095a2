"""Segments as files of an Iceberg table, where they are: nothing is read but their footers, nothing is copied.

The columns are those of the segments except times, found by name since the files know no ids of Iceberg's, and `partition`, which no
file has: the table is partitioned by it, and Iceberg fills such a column from what it knows about the file.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pydanube.client.history import StoredSegment
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.lakehouse.catalogs import TablePlace
from pydanube.spark.lakehouse.commits import TOPIC, Commit, Position, Progress, furthest
from pydanube.spark.lakehouse.iceberg_table import IcebergTable
from pydanube.spark.lakehouse.sync import CONTENT_PROPERTY
from pydanube.spark.lakehouse.table import Layout
from pydanube.spark.source.data_source import ROW
from pydanube.spark.source.segment_files import is_object
from pydanube.spark.topics import TopicPart, resolve

SEGMENTS_MAX: Final = 10_000
"""In one commit; later ones come with the next call."""

_TIMES: Final = ("publish_time", "append_time")
"""Not lent. Segments count milliseconds; Iceberg knows microseconds only, reads the others rightly and yet takes the
statistics of row groups for microseconds: a filter by time would find nothing."""

_NAMES_PROPERTY: Final = "schema.name-mapping.default"
_UNUSED_ID: Final = 1_000_000_000

_OTHER_COLUMNS: Final = {
    "producer_id": "long",
    "request_id": "long",
    "broker_addr": "string",
    "subscription_name": "string",
}
"""Of segments, besides those that messages have in Spark."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What was added."""

    segments: int
    messages: int
    end: Position = field(default_factory=dict)


def register_segments(
    spark: SparkSession, connection: Connection, topic: str, place: TablePlace, *, dry_run: bool = False
) -> Registered:
    """Add the segments of a topic that a table does not have yet, in one commit.

    Raises:
        Rejected: the table is of another topic or was made by a sync, or segments it has were replaced.
        Conflict: somebody else did so at the same time.
    """
    table = place.open(spark)
    if not isinstance(table, IcebergTable) or not hasattr(spark, "_jvm"):
        raise Rejected("segments can be registered in Iceberg tables only, and not through Spark Connect")
    with connection.client() as client:
        parts = resolve(client, [topic])
        progress = _progress(table, topic, parts)
        found = {
            part: _new(
                part,
                client.history.segments(part.name, progress.position.get(part.name, 0)),
                progress.position,
            )
            for part in parts
        }
    pieces = [(part, segment) for part, segments in found.items() for segment in segments][:SEGMENTS_MAX]
    ends: dict[str, int] = {}
    for part, segment in pieces:
        ends[part.name] = segment.end_offset + 1
    end = furthest(progress.position, ends)
    messages = sum(segment.end_offset + 1 - segment.start_offset for _, segment in pieces)
    if pieces and not dry_run:
        if not table.exists():
            _create(table, topic)
        starts = {part.name: segment.start_offset for part, segment in reversed(pieces)}
        commit = Commit(topic, progress.number + 1, uuid4().hex, furthest(progress.position, starts), end)
        table.commit_staged(commit, lambda branch: _append(spark, table, pieces, commit, branch))
        table.close()
    return Registered(len(pieces), messages, end)


def _progress(table: IcebergTable, topic: str, parts: Sequence[TopicPart]) -> Progress:
    if not table.exists():
        return Progress()
    marks = table.properties()
    if (marks.get(TOPIC), marks.get(CONTENT_PROPERTY)) != (topic, "segments"):
        raise Rejected(
            f"table {table.name} was not made for the segments of {topic}: register them in another table"
        )
    return table.progress(parts)


def _new(part: TopicPart, segments: Sequence[StoredSegment], position: Position) -> list[StoredSegment]:
    """Those behind a position, which must be the border of one."""
    start = position.get(part.name)
    for segment in segments:
        if start is not None and segment.start_offset < start <= segment.end_offset:
            raise Rejected(
                f"segments of {part.name} were merged since they were registered: the files the table has will be "
                "deleted, so register the topic in a new table",
                ErrorCode.OFFSET_GONE,
            )
    return [segment for segment in segments if start is None or segment.start_offset >= start]


def _create(table: IcebergTable, topic: str) -> None:
    schema = StructType().add("partition", "integer")
    for stored in ROW:
        if stored.name not in ("topic", "partition", *_TIMES):
            schema.add(stored.name, stored.dataType)
    for name, kind in _OTHER_COLUMNS.items():
        schema.add(name, kind)
    marks = {TOPIC: topic, CONTENT_PROPERTY: "segments", "gc.enabled": "false"}
    table.create(schema, Layout(("partition",), (), marks))


def _append(
    spark: SparkSession,
    table: IcebergTable,
    pieces: Sequence[tuple[TopicPart, StoredSegment]],
    commit: Commit,
    branch: str,
) -> None:
    """What Spark's procedure `add_files` does, which can say neither partitions nor properties of the commit."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    java = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table.identifier)
    names = _names_of_columns(iceberg, java)
    if _NAMES_PROPERTY not in table.properties():
        table.set_properties({_NAMES_PROPERTY: names})
        java.refresh()
    mapping = iceberg.mapping.NameMappingParser.fromJson(names)
    metrics = iceberg.MetricsConfig.forTable(java)
    append = java.newAppend().toBranch(branch)
    for part, segment in pieces:
        path = _address(segment.place)
        file = (
            iceberg.DataFiles.builder(java.spec())
            .withPath(path)
            .withFormat("parquet")
            .withFileSizeInBytes(segment.size)
            .withPartitionPath(f"partition={part.partition}")
            .withMetrics(
                iceberg.parquet.ParquetUtil.fileMetrics(java.io().newInputFile(path), metrics, mapping)
            )
            .build()
        )
        append = append.appendFile(file)
    for name, value in commit.to_properties().items():
        append = append.set(name, value)
    append.commit()


def _names_of_columns(iceberg: Any, java: Any) -> str:
    """The ids of the columns by their names in files, as Iceberg wants it.

    Columns that are not lent get ids that no column will ever have: pyiceberg refuses files with a column it finds no id for.
    """
    mapping = iceberg.mapping.NameMappingParser.toJson(iceberg.mapping.MappingUtil.create(java.schema()))
    unused = [{"field-id": _UNUSED_ID + at, "names": [name]} for at, name in enumerate(_TIMES)]
    return json.dumps([*json.loads(mapping), *unused])


def _address(place: str) -> str:
    if is_object(place):
        return f"s3a://{place.removeprefix('s3://')}" if place.startswith("s3://") else place
    return Path(place).as_uri()
