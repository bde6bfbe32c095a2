"""A batch into a topic, each row once.

The streaming writer of the data source does the same for a query that has no other sink; here a batch may go to two.
"""

import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from pydanube.kernel.errors import Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.decoding.frames import REASON_COLUMN
from pydanube.spark.pipelines.batch import Batch
from pydanube.spark.pipelines.document import TopicSink
from pydanube.spark.sink.columns import sink_columns
from pydanube.spark.sink.commit import commit
from pydanube.spark.sink.identity import Attempt
from pydanube.spark.sink.options import parse_write_options
from pydanube.spark.sink.task import TaskReport, write_rows

_ORIGIN = ("topic", "partition", "offset", REASON_COLUMN)
"""Of a quarantined message, kept as attributes `x-quarantine-…` of the one that holds it."""


def write_topic(
    messages: DataFrame, sink: TopicSink, connection: Connection, writer: str, batch: Batch
) -> None:
    """Publish messages but for those that an earlier try of the batch has stored."""
    given = {**connection.options(), "topic": sink.topic}
    if sink.partitions is not None:
        given["partitions"] = str(sink.partitions)
    options = parse_write_options(given)
    columns = sink_columns(messages.schema, options)
    attempt = Attempt(
        f"{writer}-{batch.query}", batch.run.replace("-", "")[:16], batch.number, has_ledger=True
    )

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        report = write_rows(options, columns, attempt, context.partitionId(), batches)
        yield pa.record_batch({"report": [pickle.dumps(report)]})

    reports = messages.mapInArrow(write, "report BINARY").collect()
    commit(options, columns, [_report(row.report) for row in reports])


def messages_of(df: DataFrame, sink: TopicSink) -> DataFrame:
    """Rows as messages: one column as the payload, or all of them as JSON."""
    columns = [
        _payload(df, sink.payload).alias("payload"),
        *([] if sink.key is None else [_column(df, sink.key).cast("string").alias("routing_key")]),
        *([] if sink.attributes is None else [_column(df, sink.attributes).alias("attributes")]),
    ]
    return df.select(*columns)


def quarantined_messages(df: DataFrame) -> DataFrame:
    """Messages as they came; where they came from, and what is wrong with them, is among their attributes."""
    origin = [
        entry
        for name in _ORIGIN
        for entry in (fn.lit(f"x-quarantine-{name}"), fn.coalesce(fn.col(name).cast("string"), fn.lit("")))
    ]
    own = fn.coalesce(fn.col("attributes"), fn.create_map().cast("map<string,string>"))
    # A message that went through here before keeps what the last time says.
    marks = fn.map_filter(own, lambda name, _: ~name.startswith("x-quarantine-"))
    return df.select(
        "payload",
        "routing_key",
        "schema_id",
        "schema_version",
        fn.map_concat(marks, fn.create_map(*origin)).alias("attributes"),
    )


def _payload(df: DataFrame, name: str | None) -> Column:
    if name is None:
        return fn.to_json(
            fn.struct(*(fn.col(f"`{each}`") for each in df.columns)), {"ignoreNullFields": "false"}
        )
    return _column(df, name)


def _column(df: DataFrame, name: str) -> Column:
    if name not in df.columns:
        raise Rejected(f"the sink names the column {name!r}, and rows have {', '.join(df.columns)}")
    return fn.col(f"`{name}`")


def _report(text: bytes) -> TaskReport:
    report = pickle.loads(text)
    assert isinstance(report, TaskReport)
    return report
