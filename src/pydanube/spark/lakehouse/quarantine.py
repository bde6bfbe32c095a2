"""The table beside a table, for messages that make no row.

Two tables have no commit in common. So what goes here comes first, marked with the attempt it belongs to; only when the
rows are committed does it count, and only then is what other attempts at the same offsets left here deleted: none of
them can succeed any more.
"""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pydanube.kernel.errors import Rejected
from pydanube.spark.lakehouse.commits import TOPIC, Commit
from pydanube.spark.lakehouse.envelope import ATTEMPT, ENVELOPE, PARTITION, PAYLOAD, REASON, quarantine_schema
from pydanube.spark.lakehouse.sql_words import text
from pydanube.spark.lakehouse.table import LakeTable, Layout
from pydanube.spark.topics import TopicPart


class Quarantine:
    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self._is_made = False
        self.is_settled = False
        """No attempt is under way, and none died here unnoticed."""
        self._others_reach: dict[str, int] | None = None
        """How far rows of other attempts go, some of which may have died between two commits; None until looked at."""

    def make(self, topic: str) -> None:
        """Once; whoever calls it again is told nothing new."""
        if self._is_made:
            return
        if not self._table.exists():
            self._table.create(
                quarantine_schema(), Layout(properties={TOPIC: topic, "danube.content": "quarantine"})
            )
        elif (held := self._table.properties().get(TOPIC)) != topic:
            raise Rejected(
                f"the quarantine table {self._table.name} is of {held or 'no topic'}, not of {topic}"
            )
        self._is_made = True

    def recover(self, last: Commit | None) -> None:
        """The last commit of the rows may have been made by somebody who died before settling it."""
        self._others_reach = None
        if last is not None:
            self.settle(last)
        self.is_settled = True

    def append(self, bad: DataFrame, commit: Commit) -> Commit:
        """Keep what an attempt cannot decode; the commit with their number in it."""
        self.is_settled = False
        count = bad.count()
        commit = replace(commit, quarantined=count)
        if count:
            rows = bad.select(
                *(fn.col(name).alias(column) for column, name in ENVELOPE.items()),
                fn.col(PAYLOAD),
                fn.col("reason").alias(REASON),
                fn.lit(commit.attempt).alias(ATTEMPT),
            )
            self._table.insert(rows, commit)
        return commit

    def take_back(self, commit: Commit) -> None:
        """The attempt has failed for good: another one succeeded."""
        if commit.quarantined:
            self._table.discard(f"{ATTEMPT} = {text(commit.attempt)}")

    def settle(self, commit: Commit) -> None:
        """The attempt has succeeded: no other one can, for the same offsets."""
        if self._others_reach is None:
            self._others_reach = self._reach_of_others(commit)
        if any(self._others_reach.get(name, 0) > start for name, start in commit.start.items()):
            self._table.discard(f"({_within(commit)}) AND {ATTEMPT} <> {text(commit.attempt)}")
        self.is_settled = True

    def close(self) -> None:
        self._table.close()

    def _reach_of_others(self, commit: Commit) -> dict[str, int]:
        others = self._table.frame().where(fn.col(ATTEMPT) != commit.attempt)
        highest = others.groupBy("_topic", PARTITION).agg(fn.max("_offset").alias("last")).collect()
        ends = {(row._topic, row[PARTITION]): int(row["last"]) + 1 for row in highest}
        parts = map(TopicPart.of_name, commit.end)
        return {part.name: ends.get((part.topic, part.partition), 0) for part in parts}


def _within(commit: Commit) -> str:
    """The offsets of a commit, as a condition."""
    conditions = []
    for name, end in commit.end.items():
        part = TopicPart.of_name(name)
        start = commit.start.get(name, 0)
        conditions.append(
            f"(_topic = {text(part.topic)} AND {PARTITION} = {part.partition} AND _offset >= {start} AND _offset < {end})"
        )
    return " OR ".join(conditions)
