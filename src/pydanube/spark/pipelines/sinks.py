"""Writing one batch of a query.

A batch that was written before, and comes again because its run ended before the checkpoint knew, is not written a
second time where the sink can tell: topics, Iceberg, Delta and Parquet can, JDBC, Kafka and the console cannot.
"""

import sys
from collections.abc import Callable

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pydanube.spark.pipelines.batch import Batch
from pydanube.spark.pipelines.document import (
    ConsoleSink,
    FilesSink,
    JdbcTable,
    KafkaSink,
    Sink,
    TableSink,
    TopicSink,
    given,
)
from pydanube.spark.pipelines.environment import filled, filled_all
from pydanube.spark.pipelines.frames import Surroundings
from pydanube.spark.pipelines.jdbc import jdbc_options
from pydanube.spark.pipelines.table_sinks import append_delta, append_iceberg, write_files
from pydanube.spark.pipelines.topic_sink import messages_of, quarantined_messages, write_topic

Write = Callable[[DataFrame, Batch], None]


def sink_of(sink: Sink, around: Surroundings, *, pipeline: str, role: str) -> Write:
    """How batches are written; `role` is rows or quarantine, for one table or topic may serve as both."""
    (kind,) = given(sink)
    where = getattr(sink, kind)
    is_whole = sink.mode == "complete"
    if kind == "topic":
        return _topic(where, around, pipeline=pipeline, role=role)
    match _placed(_named(kind, where) if isinstance(where, str) else where, around):
        case TableSink() as table if kind == "iceberg":
            return lambda df, batch: append_iceberg(df, table, role, batch, overwrite=is_whole)
        case TableSink() as table:
            return lambda df, batch: append_delta(df, table, role, batch, overwrite=is_whole)
        case FilesSink() as files:
            return lambda df, batch: write_files(df, files, batch, overwrite=is_whole)
        case JdbcTable() as jdbc:
            return lambda df, batch: _write_jdbc(df, jdbc)
        case KafkaSink() as kafka:
            return lambda df, batch: _write_kafka(df, kafka)
        case ConsoleSink(rows=rows):
            return lambda df, batch: _write_console(df, rows, batch)
    raise AssertionError(f"sink {kind} is not known")


def _topic(where: TopicSink | str, around: Surroundings, *, pipeline: str, role: str) -> Write:
    sink = TopicSink(topic=where) if isinstance(where, str) else where
    is_quarantine = role == "quarantine"
    writer = f"{pipeline}-quarantine" if is_quarantine else pipeline

    def write(df: DataFrame, batch: Batch) -> None:
        messages = quarantined_messages(df) if is_quarantine else messages_of(df, sink)
        write_topic(messages, sink, around.connection, writer, batch)

    return write


def _named(kind: str, name: str) -> TableSink | FilesSink:
    return FilesSink(path=name) if kind == "parquet" else TableSink(table=name)


def _placed(where: object, around: Surroundings) -> object:
    """With the paths of files that are said relative to the pipeline's own."""
    match where:
        case FilesSink(path=path):
            return replace(where, path=around.place(path))
        case TableSink(table=table, warehouse=warehouse):
            return replace(
                where,
                table=around.place(table) if "/" in table else filled(table),
                warehouse=None if warehouse is None else around.place(warehouse),
            )
    return where


def _write_jdbc(df: DataFrame, table: JdbcTable) -> None:
    df.write.format("jdbc").mode("append").options(**jdbc_options(table)).save()


def _write_kafka(df: DataFrame, kafka: KafkaSink) -> None:
    sink = TopicSink(topic=kafka.topic, key=kafka.key, payload=kafka.payload)
    messages = (
        messages_of(df, sink).withColumnRenamed("payload", "value").withColumnRenamed("routing_key", "key")
    )
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **filled_all(kafka.options)}
    messages.withColumn("topic", fn.lit(kafka.topic)).write.format("kafka").options(**options).save()


def _write_console(df: DataFrame, rows: int, batch: Batch) -> None:
    found = df.limit(rows + 1).toJSON().collect()
    for text in found[:rows]:
        sys.stdout.write(f"{text}\n")
    if len(found) > rows:
        sys.stdout.write(f"… more than {rows} rows in batch {batch.number}\n")
    sys.stdout.flush()
