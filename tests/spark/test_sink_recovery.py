"""Rows are stored once, however tries to write them end: the tasks and the driver of a write, without Spark."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from spark_harness.broker_process import BrokerProcess

from pydanube.kernel.errors import Conflict, DanubeError
from pydanube.spark.sink.columns import SinkColumns, sink_columns
from pydanube.spark.sink.commit import commit
from pydanube.spark.sink.identity import Attempt
from pydanube.spark.sink.options import WriteOptions, parse_write_options
from pydanube.spark.sink.task import TaskReport, write_rows

Row = tuple[bytes, str]
SCHEMA = StructType([StructField("payload", BinaryType()), StructField("key", StringType())])


class TaskKilled(Exception):
    pass


class Write:
    """A streaming write into one topic, tried in as many runs as it takes."""

    def __init__(self, broker: BrokerProcess, topic: str, **options: str) -> None:
        self.broker = broker
        self.topic = topic
        self.options: WriteOptions = parse_write_options({"url": broker.url, "topic": topic, **options})
        self.columns: SinkColumns = sink_columns(SCHEMA, self.options)
        self.attempt = Attempt(f"spark-{topic.rpartition('/')[2]}", "0", 0, has_ledger=True)

    def next_run(self) -> None:
        self.attempt = replace(self.attempt, run=f"{int(self.attempt.run) + 1}")

    def next_batch(self) -> None:
        self.attempt = replace(self.attempt, batch=self.attempt.batch + 1)

    def task(self, number: int, rows: Sequence[Row], *, dies_after: int | None = None) -> TaskReport:
        return write_rows(
            self.options, self.columns, self.attempt, number, batches_of(rows, dies_after=dies_after)
        )

    def commit(self, *reports: TaskReport) -> None:
        commit(self.options, self.columns, reports)

    def stored(self) -> Counter[Row]:
        found: Counter[Row] = Counter()
        with self.broker.client() as client:
            for part in client.partitions(self.topic):
                with client.reader(part, start="earliest", end="latest") as reader:
                    for batch in reader.batches():
                        columns = (batch.column(name).to_pylist() for name in ("payload", "routing_key"))
                        found.update(zip(*columns, strict=True))
        return found


def batches_of(rows: Sequence[Row], *, dies_after: int | None = None) -> Iterator[pa.RecordBatch]:
    """In batches of three; the task is killed when it asks for more than `dies_after` of them."""
    for number, first in enumerate(range(0, len(rows), 3)):
        if number == dies_after:
            raise TaskKilled
        payloads, keys = zip(*rows[first : first + 3], strict=True)
        yield pa.record_batch({"payload": list(payloads), "key": list(keys)})


def some_rows(count: int, *, seed: int = 0) -> list[Row]:
    """With many that are the same as others."""
    dice = random.Random(seed)
    return [(b"%d" % dice.randrange(count // 3), f"key-{dice.randrange(4)}") for _ in range(count)]


def test_another_try_of_a_task_writes_what_is_missing_in_whatever_order(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/task-retry", partitions="2")
    rows = some_rows(30)
    for _ in range(2):
        with pytest.raises(TaskKilled):
            write.task(0, rows, dies_after=6)
        write.commit(write.task(0, rows[::-1]))
        write.next_batch()
    assert write.stored() == Counter(rows + rows)


def test_without_a_ledger_tasks_can_be_tried_again_too(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/no-ledger")
    rows = some_rows(30)
    for write_id in ("one", "other"):
        write.attempt = Attempt(f"spark-{write_id}", "0", 0, has_ledger=False)
        with pytest.raises(TaskKilled):
            write.task(0, rows, dies_after=2)
        broker.publish(write.topic, [b"of somebody else"] * 20, key="key")
        write.commit(write.task(0, rows[::-1]))
    others = [(b"of somebody else", "key")] * 40
    assert write.stored() == Counter(rows + rows + others)


def test_rows_that_come_to_other_tasks_in_the_next_run_are_stored_once(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/next-run")
    rows = some_rows(40)
    with pytest.raises(TaskKilled):
        write.task(0, rows[:20], dies_after=4)
    write.task(1, rows[20:])
    write.next_run()
    shuffled = random.Random(1).sample(rows, len(rows))
    write.commit(*(write.task(number, shuffled[number::3]) for number in range(3)))
    assert write.stored() == Counter(rows)


def test_a_batch_that_was_stored_before_the_checkpoint_knew_is_not_stored_again(
    broker: BrokerProcess,
) -> None:
    write = Write(broker, "/default/repeat")
    rows = some_rows(12)
    write.commit(write.task(0, rows))
    write.next_run()
    write.commit(write.task(0, rows[:5]), write.task(1, rows[5:]))
    write.next_batch()
    write.commit(write.task(0, rows))
    assert write.stored() == Counter(rows + rows)
    write.next_run()
    with pytest.raises(Conflict, match="stored before, with 12 rows, and now has 11"):
        write.commit(write.task(0, rows[1:]))


def test_a_task_of_an_earlier_run_that_is_still_alive_is_shut_out(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/zombie")
    rows = some_rows(12)
    zombie = iter(batches_of(rows))

    def later_run_in_between() -> Iterator[pa.RecordBatch]:
        yield next(zombie)
        alive = write.attempt
        write.next_run()
        write.commit(write.task(1, rows))
        yield next(zombie)
        assert alive != write.attempt

    with pytest.raises(DanubeError, match="newer session"):
        write_rows(write.options, write.columns, write.attempt, 0, later_run_in_between())
    assert write.stored() == Counter(rows)


def test_rows_that_do_not_come_again_are_told(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/changed")
    rows = some_rows(12)
    with pytest.raises(TaskKilled):
        write.task(0, rows, dies_after=2)
    with pytest.raises(Conflict, match=r"6 rows that an earlier try stored .* did not come again"):
        write.task(0, [(b"other", "key")])
    write.next_run()
    with pytest.raises(
        Conflict, match=r"rows that an earlier try stored .* did not come again.*changedRows=keep"
    ):
        write.commit(write.task(0, [(b"another", "key")]))
    keeping = Write(broker, write.topic, changedRows="keep")
    keeping.attempt = replace(write.attempt, run="9")
    keeping.commit(keeping.task(0, [(b"last", "key")]))
    assert keeping.stored()[b"last", "key"] == 1


def test_an_older_checkpoint_is_refused(broker: BrokerProcess) -> None:
    write = Write(broker, "/default/old-checkpoint")
    write.attempt = replace(write.attempt, batch=7)
    write.commit(write.task(0, some_rows(3)))
    write.attempt = replace(write.attempt, batch=3)
    with pytest.raises(Conflict, match="has stored batch 7, and batch 3 is to be written"):
        write.task(0, some_rows(3))


@pytest.mark.parametrize("seed", range(6))
def test_any_number_of_tries_of_any_tasks_killed_anywhere(broker: BrokerProcess, seed: int) -> None:
    dice = random.Random(seed)
    write = Write(broker, f"/default/chaos-{seed}", **({"partitions": "3"} if seed % 2 else {}))
    wanted: list[Row] = []
    for batch in range(3):
        rows = some_rows(dice.randrange(6, 40), seed=seed * 100 + batch)
        wanted += rows
        is_done = False
        while not is_done:
            is_done = _try_once(write, dice, dice.sample(rows, len(rows)))
            if not is_done or dice.random() < 0.3:
                write.next_run()
        write.next_batch()
    assert write.stored() == Counter(wanted)


def _try_once(write: Write, dice: random.Random, rows: list[Row]) -> bool:
    """One run of a batch over some tasks, each tried up to twice; False if Spark died on the way."""
    tasks = dice.randrange(1, 4)
    reports = []
    for number in dice.sample(range(tasks), tasks):
        mine = rows[number::tasks]
        try:
            reports.append(write.task(number, mine, dies_after=dice.choice([None, None, 0, 1, 2])))
        except TaskKilled:
            if dice.random() < 0.5:
                return False
            reports.append(write.task(number, dice.sample(mine, len(mine))))
    if dice.random() < 0.3:
        return False
    write.commit(*reports)
    # Dies between this and the checkpoint: the same batch comes once more.
    return dice.random() < 0.7
