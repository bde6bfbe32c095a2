"""Writing to topics: what Spark asks for with `df.write.format("danube")` and `df.writeStream.format("danube")`."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pydanube.kernel.errors import Rejected
from pydanube.spark.sink.columns import SinkColumns, sink_columns
from pydanube.spark.sink.commit import commit
from pydanube.spark.sink.identity import Attempt
from pydanube.spark.sink.options import WriteOptions, new_run, parse_write_options
from pydanube.spark.sink.task import TaskReport, write_rows


def make_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> "BatchTopicWriter":
    """For one batch write; made on the driver, so all its tasks know what they have in common."""
    checked = _checked(options, overwrite=overwrite)
    write_id = checked.write_id or new_run()
    attempt = Attempt(
        f"{checked.producer_name}-{write_id}", new_run(), 0, has_ledger=checked.write_id is not None
    )
    return BatchTopicWriter(checked, sink_columns(schema, checked), attempt)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool = False
) -> "StreamTopicWriter":
    """For one batch of a streaming query; its tasks know which."""
    checked = _checked(options, overwrite=overwrite)
    return StreamTopicWriter(checked, sink_columns(schema, checked))


class BatchTopicWriter(DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, columns: SinkColumns, attempt: Attempt) -> None:
        self._options = options
        self._columns = columns
        self._attempt = attempt

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        return write_rows(self._options, self._columns, self._attempt, _context().partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self._options, self._columns, _reports(messages))


class StreamTopicWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        context = _context()
        attempt = _stream_attempt(self._options, context)
        return write_rows(self._options, self._columns, attempt, context.partitionId(), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit(self._options, self._columns, _reports(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was stored stays: the next run of the query finds it and goes on from there."""


def _checked(options: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    if overwrite:
        raise Rejected(
            "topics cannot be overwritten, messages are only added: use mode append (outputMode append or update)"
        )
    return parse_write_options(options)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context


def _stream_attempt(options: WriteOptions, context: TaskContext) -> Attempt:
    query, run, batch = (
        context.getLocalProperty(name)
        for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    )
    if query is None or run is None or batch is None:
        raise Rejected("Spark does not say which streaming query writes: micro-batch execution is needed")
    # Half of a random UUID tells the runs of one query apart.
    return Attempt(
        f"{options.producer_name}-{options.write_id or query}",
        run.replace("-", "")[:16],
        int(batch),
        has_ledger=True,
    )


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    return [message for message in messages if isinstance(message, TaskReport)]
