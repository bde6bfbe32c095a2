"""Sources as DataFrames: followed, or read whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.connection import Connection
from pydanube.spark.pipelines.catalogs import iceberg_catalog
from pydanube.spark.pipelines.document import FilesSource, KafkaSource, LakeTable, Source, static
from pydanube.spark.pipelines.environment import filled, filled_all
from pydanube.spark.pipelines.jdbc import jdbc_options
from pydanube.spark.reading import read_topic
from pydanube.spark.registration import register


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a pipeline's sources and sinks need to know of where it runs."""

    connection: Connection
    folder: Path | None = None
    """Of the file: other files and modules it names are there."""
    store: Mapping[str, str] = field(default_factory=dict)
    """How executors get into the object store that history lies in, if Spark itself is not told."""

    def place(self, name: str) -> str:
        """The path of a file or directory it names: beside its own, unless that is an address or begins at the root."""
        name = filled(name)
        return name if self.folder is None or "://" in name else str(self.folder / name)


def frame_of(
    spark: SparkSession, source: Source, around: Surroundings, *, to_its_end: bool = False
) -> DataFrame:
    """The rows of a source, as it gives them.

    Args:
        to_its_end: a stream of topics ends where they end now.
    """
    if source.files is not None:
        return _files(spark, source.files, source, around)
    if source.kafka is not None:
        return _kafka(spark, source.kafka, is_stream=not static(source))
    if source.jdbc is not None:
        return spark.read.format("jdbc").options(**jdbc_options(source.jdbc)).load()
    if source.table is not None:
        return _table(spark, source.table, around, is_stream=not static(source))
    topics = [source.topic] if source.topic is not None else source.topics or []
    if static(source):
        start = source.start or "earliest"
        return read_topic(spark, topics, connection=around.connection, start=start, store=around.store)
    return _topic_stream(spark, topics, source, around, to_its_end=to_its_end)


def _topic_stream(
    spark: SparkSession, topics: list[str], source: Source, around: Surroundings, *, to_its_end: bool
) -> DataFrame:
    register(spark)
    options: dict[str, object] = {"topics": ",".join(topics)}
    match source.start:
        case None:
            options["startingOffsets"] = "earliest"
        case dict() as offsets:
            options["startingOffsets"] = json.dumps(offsets)
        case "earliest" | "latest" as word:
            options["startingOffsets"] = word
        case moment:
            options["startingTimestamp"] = moment
    if source.max_messages_per_trigger is not None:
        options["maxMessagesPerTrigger"] = source.max_messages_per_trigger
    if source.max_bytes_per_trigger is not None:
        options["maxBytesPerTrigger"] = source.max_bytes_per_trigger
    if to_its_end:
        options["endingOffsets"] = "latest"
    stored = {f"store.{name}": value for name, value in around.store.items()}
    reader = spark.readStream.format("danube").options(**around.connection.options(), **stored)
    return reader.options(**options).load()  # type: ignore[arg-type]


def _files(spark: SparkSession, files: FilesSource, source: Source, around: Surroundings) -> DataFrame:
    reader = spark.read if static(source) else spark.readStream
    reader = reader.format(files.format).options(**filled_all(files.options))
    if source.columns is not None:
        reader = reader.schema(source.columns)
    return reader.load(around.place(files.path))


def _kafka(spark: SparkSession, kafka: KafkaSource, *, is_stream: bool) -> DataFrame:
    """With the columns of a topic, so that steps need not know where rows come from."""
    reader = spark.readStream if is_stream else spark.read
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": kafka.topic,
        "startingOffsets": kafka.start,
        "includeHeaders": "true",
        **filled_all(kafka.options),
    }
    rows = reader.format("kafka").options(**options).load()
    return kafka_messages(rows)


def kafka_messages(rows: DataFrame) -> DataFrame:
    """Records of Kafka as messages: the value is the payload, the key the routing key, headers are attributes."""
    headers = fn.transform(
        fn.col("headers"), lambda each: fn.struct(each["key"], each["value"].cast("string"))
    )
    values = {
        "topic": fn.col("topic"),
        "partition": fn.col("partition"),
        "offset": fn.col("offset"),
        "publish_time": fn.col("timestamp"),
        "append_time": fn.col("timestamp"),
        "producer_name": fn.lit(""),
        "routing_key": fn.col("key").cast("string"),
        "attributes": fn.map_from_entries(headers),
        "schema_id": fn.lit(None).cast("bigint"),
        "schema_version": fn.lit(None).cast("bigint"),
        "payload": fn.coalesce(fn.col("value"), fn.lit(b"")),
    }
    return rows.select(*(values[name].alias(name) for name in MESSAGE_SCHEMA.names))


def _table(spark: SparkSession, table: LakeTable, around: Surroundings, *, is_stream: bool) -> DataFrame:
    iceberg_catalog(spark, table.table, around.place(table.warehouse) if table.warehouse else None)
    reader = (spark.readStream if is_stream else spark.read).options(**filled_all(table.options))
    name = filled(table.table)
    if "/" not in name:
        return reader.format(table.format).table(name)
    path = around.place(name)
    if table.format == "parquet" and is_stream:
        # Spark wants to know the columns of files that it follows.
        reader = reader.schema(spark.read.parquet(path).schema)
    return reader.format(table.format).load(path)
