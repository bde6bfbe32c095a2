"""What one Spark task does to write its rows, each of them once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pydanube.client import blocking
from pydanube.client.options import Batching
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.spark.sink.columns import SinkColumns
from pydanube.spark.sink.identity import Attempt, task_writer
from pydanube.spark.sink.ledger import Ledger, Progress
from pydanube.spark.sink.options import WriteOptions
from pydanube.spark.sink.parts import Router, by_topic, parts_of
from pydanube.spark.sink.recovery import Recovery, StoredRows

TASKS_MAX: Final = 500
"""Tasks that may write at once: a topic remembers 1,000 producers, and others write to it too."""


@dataclass(slots=True)
class TaskReport(WriterCommitMessage):
    """What a task tells the driver."""

    attempt: Attempt
    writer: str
    rows: int = 0
    is_repeat: bool = False
    """An earlier run had stored the whole batch: nothing was written."""
    floors: dict[str, dict[str, int]] = field(default_factory=dict)
    """By topic, for each of its partitions: nothing of this batch is before that offset."""
    sequences: dict[str, int] = field(default_factory=dict)
    """By partition: how many messages this task's writer has stored there in this run."""
    held: dict[str, Counter[bytes]] = field(default_factory=dict)
    """Where earlier runs have stored rows, by topic: those that came again, which were not written.

    Whether they came as often as they are stored, only the driver sees.
    """


def write_rows(
    options: WriteOptions,
    columns: SinkColumns,
    attempt: Attempt,
    partition: int,
    batches: Iterable[pa.RecordBatch],
) -> TaskReport:
    """Publish the rows of a task but for those that are stored already; returns when all are safe."""
    if partition >= TASKS_MAX:
        raise Rejected(
            f"Spark partition {partition} cannot be written: at most {TASKS_MAX} can write to a topic at once; "
            f"use coalesce({TASKS_MAX}) or less before writing"
        )
    with options.connection.client() as client:
        return _TaskWriter(client, options, columns, attempt, task_writer(partition)).write(batches)


class _TaskWriter:
    def __init__(
        self,
        client: blocking.Client,
        options: WriteOptions,
        columns: SinkColumns,
        attempt: Attempt,
        name: str,
    ) -> None:
        self._client = client
        self._options = options
        self._columns = columns
        self._attempt = attempt
        self._name = name
        self._report = TaskReport(attempt, name)
        self._ledger = Ledger(client, options.ledger_of(attempt.write), attempt)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        report = self._report
        progress = self._progress()
        report.is_repeat = progress.batch == self._attempt.batch
        with ExitStack() as stack:
            topics: dict[str, _TopicWriter] = {}
            for batch in batches:
                report.rows += batch.num_rows
                if report.is_repeat:
                    continue
                for topic, rows in by_topic(self._columns.messages(batch), self._options.topic):
                    writer = topics.get(topic)
                    if writer is None:
                        writer = topics[topic] = self._open(topic, progress, stack)
                    writer.send(rows)
            for writer in topics.values():
                report.sequences |= writer.finish()
        return report

    def _progress(self) -> Progress:
        if not self._attempt.has_ledger:
            return Progress()
        attempt = self._attempt
        progress = self._ledger.progress()
        if progress.batch > attempt.batch:
            raise Conflict(
                f"{attempt.write} has stored batch {progress.batch}, and batch {attempt.batch} is to be written: the "
                "checkpoint is older than that. Start the query with a new checkpoint, from where it is to go on",
                ErrorCode.VERSION_MISMATCH,
            )
        return progress

    def _open(self, topic: str, progress: Progress, stack: ExitStack) -> "_TopicWriter":
        """Shut out this task's earlier tries, then find out what they, and earlier runs, have stored."""
        options, attempt = self._options, self._attempt
        parts = parts_of(self._client, topic, options.partitions)
        producers = {
            part: stack.enter_context(
                self._client.producer(
                    part,
                    name=attempt.producer_name(self._name),
                    schema=options.schema,
                    batching=Batching(compression=options.compression),
                )
            )
            for part in parts
        }
        recovery = Recovery(self._client, attempt, self._columns, self._name)
        # Within a run no batch is written twice, so only the first batch of a run can meet rows of earlier runs.
        is_first = attempt.has_ledger and progress.run != attempt.run
        was_tried = any(
            producer.last_sequence != progress.sequence(attempt.run, part, self._name)
            for part, producer in producers.items()
        )
        if attempt.has_ledger:
            floors = self._noted_floors(parts, progress)
        elif was_tried:
            floors = {
                part: recovery.floor(part, producer.last_sequence) for part, producer in producers.items()
            }
        else:
            floors = {}
        stored = recovery.stored(topic, floors) if is_first or was_tried else StoredRows()
        self._report.floors[topic] = floors
        held: Counter[bytes] = Counter()
        if stored.by_earlier_runs:
            self._report.held[topic] = held
        return _TopicWriter(topic, producers, stored, held, self._columns, options)

    def _noted_floors(self, parts: list[str], progress: Progress) -> dict[str, int]:
        floors = {part: progress.ends[part] for part in parts if part in progress.ends}
        begins = {
            part: self._client.history.storage(part).next_offset for part in parts if part not in floors
        }
        if begins:
            self._ledger.begin(self._name, begins)
        return floors | begins


class _TopicWriter:
    """The rows of one task for one topic."""

    def __init__(  # noqa: PLR0917
        self,
        topic: str,
        producers: dict[str, blocking.Producer],
        stored: StoredRows,
        held: Counter[bytes],
        columns: SinkColumns,
        options: WriteOptions,
    ) -> None:
        self._topic = topic
        self._producers = producers
        self._stored = stored
        self._held = held
        self._columns = columns
        self._options = options
        self._router = Router(topic, list(producers))

    def send(self, rows: pa.Table) -> None:
        if self._stored.by_earlier_runs or self._stored.by_same_writer:
            rows = rows.filter(pa.array(self._is_new(rows), pa.bool_()))
        if rows.num_rows:
            for part, some in self._router.route(rows):
                self._producers[part].send_table(some)

    def _is_new(self, rows: pa.Table) -> Iterator[bool]:
        earlier, own = self._stored.by_earlier_runs, self._stored.by_same_writer
        for digest in self._columns.digests(self._topic, rows):
            if digest in earlier:
                self._held[digest] += 1
                yield False
            elif own.get(digest, 0):
                own[digest] -= 1
                yield False
            else:
                yield True

    def finish(self) -> dict[str, int]:
        """All rows have come; returns the sequences that were reached.

        Raises:
            Conflict: rows that this task stored before did not come again.
        """
        left = self._stored.by_same_writer.total()
        if left and self._options.changed_rows == "fail":
            raise changed_rows(self._topic, left)
        return {part: producer.last_sequence for part, producer in self._producers.items()}


def changed_rows(topic: str, count: int) -> Conflict:
    return Conflict(
        f"{count} rows that an earlier try stored in {topic} did not come again: the query gives other rows each time "
        "it runs (rand(), uuid(), the time of day, a source that changed), so each once cannot be kept. Make it "
        "repeatable, or set changedRows=keep to go on with the rows of both tries",
        ErrorCode.VERSION_MISMATCH,
    )
