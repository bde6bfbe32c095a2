"""Segments made anew by Spark tasks: fetched, rewritten without some messages, and put in place by the broker.

    groups of neighbours (driver) ─▶ offsets to remove, by group (Spark) ─▶ one task per group: fetch, rewrite, replace

A group is done when the broker has swapped it, in one transaction. A group that fails leaves its segments as they were
and is told in the outcome; the others go on.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pydanube.history.removed_messages import Chosen
from pydanube.history.rewriting import Choose, rewrite_segments
from pydanube.kernel.errors import DanubeError
from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.placed_segment import local_file
from pydanube.spark.maintenance.rewrite_plan import RewriteGroup
from pydanube.spark.maintenance.storage_calls import StorageCalls

GROUPS_AT_ONCE_MAX: Final = 16
"""That a broker takes replacements of at the same time; the next ones follow."""

Watch = Callable[[int], Callable[[int], None]]
"""Told the bytes of all that is to be done, it gives whom to tell of each piece that is done."""


def unwatched(total: int) -> Callable[[int], None]:
    """Nobody looks."""
    return lambda size: None


class RewriteOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one group."""

    topic: str
    start_offset: int
    end_offset: int
    old: dict[str, str]
    """Checksums of the segments there were, by their ids."""
    new: dict[str, str] = {}
    size_before: int = 0
    size_after: int = 0
    removed: int = 0
    """Messages."""
    error: str = ""
    """Why nothing was changed; empty if all is well."""


@dataclass(frozen=True, slots=True)
class RewriteJob:
    """What every task has to know."""

    admin: Connection
    segment_bytes: int
    why: str
    """Of removed messages: `erased` or `compacted`."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)

    def rewrite(self, group: RewriteGroup, offsets: "np.ndarray[Any, np.dtype[np.int64]]") -> RewriteOutcome:
        """Make one group anew, without these messages."""
        outcome = planned(group, {})
        try:
            return self._replaced(group, offsets, outcome)
        except DanubeError as error:
            return msgspec.structs.replace(outcome, error=error.text)

    def _replaced(
        self, group: RewriteGroup, offsets: "np.ndarray[Any, np.dtype[np.int64]]", outcome: RewriteOutcome
    ) -> RewriteOutcome:
        with ExitStack() as opened:
            calls = opened.enter_context(StorageCalls(self.admin))
            spool = Path(opened.enter_context(TemporaryDirectory(prefix="danube-rewrite-")))
            made = rewrite_segments(
                [
                    (opened.enter_context(local_file(each, group.topic, calls, self.store)), each.descriptor)
                    for each in group.segments
                ],
                spool,
                created_ms=int(time.time() * 1000),
                segment_bytes=self.segment_bytes,
                choose=_these(offsets) if len(offsets) else None,
                why=self.why,
            )
            files = [Path(file.path) for file in made.files]
            new = calls.replace(group.topic, [each.descriptor for each in group.segments], files, self.why)
        return msgspec.structs.replace(
            outcome,
            new={each.segment_id: each.checksum for each in new},
            size_after=sum(each.size for each in new),
            removed=made.removed,
        )


def planned(group: RewriteGroup, counts: Mapping[str, int]) -> RewriteOutcome:
    """What would become of a group: `counts` has the messages that would go, by segment."""
    return RewriteOutcome(
        topic=group.topic,
        start_offset=group.start_offset,
        end_offset=group.end_offset,
        old={each.descriptor.segment_id: each.descriptor.checksum for each in group.segments},
        size_before=group.size,
        removed=sum(counts.get(each.descriptor.segment_id, 0) for each in group.segments),
    )


def rewrite_groups(
    spark: SparkSession,
    job: RewriteJob,
    groups: Sequence[RewriteGroup],
    removals: DataFrame | None,
    watch: Watch,
) -> Iterator[RewriteOutcome]:
    """Make all groups anew, some at a time; `removals` has the columns `part` (a topic's name) and `offset`."""
    if not groups:
        return
    done = watch(sum(group.size for group in groups))
    by_group = None if removals is None else _by_group(spark, groups, removals).persist()
    try:
        for first in range(0, len(groups), GROUPS_AT_ONCE_MAX):
            now = groups[first : first + GROUPS_AT_ONCE_MAX]
            for outcome in _rewrite(spark, job, now, by_group):
                done(outcome.size_before)
                yield outcome
    finally:
        if by_group is not None:
            by_group.unpersist()


def _by_group(spark: SparkSession, groups: Sequence[RewriteGroup], removals: DataFrame) -> DataFrame:
    """Offsets to remove with the number of the group they are in; each group has one row without an offset besides."""
    bounds = [(each.number, each.topic, each.start_offset, each.end_offset) for each in groups]
    ranges = spark.createDataFrame(bounds, "number INT, topic STRING, first BIGINT, last BIGINT")
    found = removals.join(
        F.broadcast(ranges),
        (F.col("part") == F.col("topic")) & F.col("offset").between(F.col("first"), F.col("last")),
    )
    marks = ranges.select("number", F.lit(None).cast("bigint").alias("offset"))
    return found.select("number", "offset").unionAll(marks)


def _rewrite(
    spark: SparkSession, job: RewriteJob, groups: Sequence[RewriteGroup], by_group: DataFrame | None
) -> Iterator[RewriteOutcome]:
    """One task for each of these groups."""
    numbered = {group.number: group for group in groups}

    def work(table: pa.Table) -> pa.Table:
        number = table.column("number")[0].as_py()
        offsets = table.column("offset").drop_null().to_numpy()
        outcome = job.rewrite(numbered[number], offsets)
        return pa.table({"outcome": [msgspec.json.encode(outcome).decode()]})

    def merge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                rows = pa.table({"number": [number], "offset": pa.array([None], pa.int64())})
                yield from work(rows).to_batches()

    if by_group is None:
        first = groups[0].number
        numbers = spark.range(first, first + len(groups), 1, numPartitions=len(groups))
        outcomes = numbers.mapInArrow(merge, "outcome STRING")
    else:
        # A task each: otherwise Spark would put so little data into one.
        rows = by_group.where(F.col("number").isin(list(numbered))).repartition(len(groups), "number")
        outcomes = rows.groupBy("number").applyInArrow(work, "outcome STRING")
    for row in outcomes.collect():
        yield msgspec.convert(json.loads(row.outcome), RewriteOutcome)


def _these(offsets: "np.ndarray[Any, np.dtype[np.int64]]") -> Choose:
    def choose(table: pa.Table) -> Chosen:
        chosen: Chosen = np.isin(table.column("offset").to_numpy(), offsets)
        return chosen

    return choose
