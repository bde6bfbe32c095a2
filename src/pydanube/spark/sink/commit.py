"""What the driver does when all tasks have written: settle what no task could decide alone, and note the batch."""

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from pydanube.client import blocking
from pydanube.kernel.errors import Conflict, ErrorCode
from pydanube.spark.sink.columns import SinkColumns
from pydanube.spark.sink.identity import DRIVER, Attempt
from pydanube.spark.sink.ledger import Ledger, Progress
from pydanube.spark.sink.options import WriteOptions
from pydanube.spark.sink.recovery import Recovery
from pydanube.spark.sink.task import TaskReport, changed_rows


def commit(options: WriteOptions, columns: SinkColumns, reports: Sequence[TaskReport]) -> None:
    """Make sure that every row is stored once, and note that the batch is complete."""
    if not reports or not reports[0].attempt.has_ledger:
        return
    attempt = reports[0].attempt
    rows = sum(report.rows for report in reports)
    with options.connection.client() as client:
        ledger = Ledger(client, options.ledger_of(attempt.write), attempt)
        progress = ledger.progress()
        if progress.batch == attempt.batch:
            _check_repeat(attempt, progress.rows, rows)
            return
        floors = _floors(reports)
        for topic, parts in floors.items():
            held = [report.held[topic] for report in reports if topic in report.held]
            if held:
                _settle(client, options, columns, attempt, topic, parts, sum(held, Counter()))
        ends = {part: client.history.storage(part).next_offset for parts in floors.values() for part in parts}
        ledger.complete(
            Progress(
                attempt.batch,
                attempt.run,
                rows,
                {**progress.ends, **ends},
                _sequences(attempt, progress, reports),
            )
        )


def _sequences(
    attempt: Attempt, progress: Progress, reports: Sequence[TaskReport]
) -> dict[str, dict[str, int]]:
    known = progress.sequences if progress.run == attempt.run else {}
    sequences = {part: dict(writers) for part, writers in known.items()}
    for report in reports:
        for part, sequence in report.sequences.items():
            sequences.setdefault(part, {})[report.writer] = sequence
    return sequences


def _check_repeat(attempt: Attempt, before: int, now: int) -> None:
    if before != now:
        raise Conflict(
            f"batch {attempt.batch} of {attempt.write} was stored before, with {before} rows, and now has {now}: "
            "nothing was written. Take another writeId for other rows",
            ErrorCode.VERSION_MISMATCH,
        )


def _floors(reports: Sequence[TaskReport]) -> dict[str, dict[str, int]]:
    floors: dict[str, dict[str, int]] = {}
    for report in reports:
        for topic, parts in report.floors.items():
            known = floors.setdefault(topic, {})
            for part, floor in parts.items():
                known[part] = min(floor, known.get(part, floor))
    return floors


def _settle(  # noqa: PLR0917
    client: blocking.Client,
    options: WriteOptions,
    columns: SinkColumns,
    attempt: Attempt,
    topic: str,
    floors: dict[str, int],
    held: Counter[bytes],
) -> None:
    """Store rows that came more often than they are stored."""
    recovery = Recovery(client, attempt, columns, DRIVER)
    stored = recovery.stored(topic, floors).by_earlier_runs
    left = (stored - held).total()
    if left and options.changed_rows == "fail":
        raise changed_rows(topic, left)
    missing = held - stored
    if not missing:
        return
    for digest, (part, row) in recovery.samples(topic, floors, set(missing)).items():
        copies = pa.concat_tables([row] * missing[digest])
        with client.producer(part, name=attempt.producer_name(DRIVER), schema=options.schema) as producer:
            producer.send_table(copies)
