"""Streaming into an Iceberg table, next to Spark's rate source with the same rows into the same kind of table.

Micro-batches have the same number of rows on both sides. The first one, which starts workers and compiles code, is
left out.
"""

import os
import shutil
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from bench.results import Sample
from bench.spark.messages import PER_MEBIBYTE, numbered_messages, numbered_payload
from bench.spark.process_tree import cpu_seconds
from bench.spark.workbench import CATALOG, Turn, Workbench
from pydanube.spark.source.data_source import ROW

SCENARIO = "streaming into Iceberg"
RATE, SEGMENTS, BROKER = "rate source", "topic, from segments", "topic, from the broker"
TOPIC = "/default/bench-ingest"
TABLE = f"{CATALOG}.bench.ingest"
BATCHES = 5
"""Counted ones; one more comes before them."""
LOOK_EVERY_SECONDS = 0.02
SECONDS_MAX = 600


def run(bench: Workbench, megabytes: int) -> None:
    per_batch = max(1, megabytes * PER_MEBIBYTE // (BATCHES + 1))
    messages = per_batch * (BATCHES + 1)
    bench.say(f"publishing {messages:,} messages of 1 KiB")
    bench.publish(TOPIC, numbered_messages(messages))
    bench.seal(TOPIC)
    case = f"micro-batches of {per_batch:,} rows"

    def topic(read_from: str) -> DataFrame:
        options = {**bench.connection.options(), "topic": TOPIC, "readFrom": read_from}
        return (
            bench.spark.readStream.format("danube").options(maxMessagesPerTrigger=per_batch, **options).load()
        )

    contestants = {
        RATE: lambda: _rate(bench, per_batch),
        SEGMENTS: lambda: topic("auto"),
        BROKER: lambda: topic("broker"),
    }
    bench.alternate(
        SCENARIO,
        [Turn(case, name, lambda rows=rows: _ingest(bench, rows())) for name, rows in contestants.items()],  # type: ignore[misc]
    )
    bench.delete(TOPIC)


def _rate(bench: Workbench, per_batch: int) -> DataFrame:
    """Rows that look like those of the topic."""
    rows = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", per_batch).load()
    columns = {
        "topic": F.lit(TOPIC),
        "partition": F.lit(0),
        "offset": F.col("value"),
        "publish_time": F.col("timestamp"),
        "append_time": F.col("timestamp"),
        "producer_name": F.lit("producer-1"),
        "payload": numbered_payload("value"),
    }
    return rows.select(
        *(columns.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in ROW)
    )


def _ingest(bench: Workbench, rows: DataFrame) -> Sample:
    checkpoint = bench.scratch / "checkpoint"
    bench.spark.sql(f"CREATE TABLE {TABLE} ({', '.join(_declared())}) USING iceberg")
    query = (
        rows.writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
        .toTable(TABLE)
    )
    try:
        return _sample(query)
    finally:
        query.stop()
        bench.spark.sql(f"DROP TABLE {TABLE} PURGE")
        shutil.rmtree(checkpoint)


def _declared() -> list[str]:
    return [f"{field.name} {field.dataType.simpleString()}" for field in ROW]


def _sample(query: StreamingQuery) -> Sample:
    """From the end of the first batch to the end of the last."""
    _await_batches(query, 1)
    cpu, wall = cpu_seconds(os.getpid()), time.perf_counter()
    rows = _await_batches(query, BATCHES + 1) - _await_batches(query, 1, only=1)
    return Sample(rows, time.perf_counter() - wall, cpu_seconds(os.getpid()) - cpu)


def _await_batches(query: StreamingQuery, count: int, *, only: int | None = None) -> int:
    """The rows of the batches there are, or of the first of them, once there are so many."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if error := query.exception():
            raise error
        filled = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        if len(filled) >= count:
            return sum(filled[:only])
        time.sleep(LOOK_EVERY_SECONDS)
    raise TimeoutError(f"no {count} batches within {SECONDS_MAX} s: {query.status}")
