"""Delta tables.

A commit carries the number of the sync's commit as a transaction of the application `danube-sync`. Delta keeps the last
number with the table, skips a write that comes with a number it has, and fails one that raced with another of the same
application. So the commit with a number is made once, whoever tries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from pydanube.kernel.errors import Conflict
from pydanube.spark.failures import SPARK_ERRORS
from pydanube.spark.lakehouse.commits import Commit, Progress, RecordedCommit
from pydanube.spark.lakehouse.delta_layout import partitioning
from pydanube.spark.lakehouse.evolution import Change, WidenColumn
from pydanube.spark.lakehouse.recovery import progress_of_rows
from pydanube.spark.lakehouse.sql_words import alteration, column_list, property_list, quoted
from pydanube.spark.lakehouse.table import Compaction, Layout
from pydanube.spark.topics import TopicPart

APPLICATION: Final = "danube-sync"
_RACED: Final = "DELTA_CONCURRENT_TRANSACTION"
_NO_TABLE: Final = ("DELTA_TABLE_ONLY_OPERATION", "DELTA_MISSING_DELTA_TABLE", "DELTA_PATH_DOES_NOT_EXIST")
_LOOK_BACK: Final = (20, 1_000, 1_000_000)
"""Versions to look through for the last commit of a sync, a few at first."""


@dataclass(frozen=True, slots=True)
class DeltaPlace:
    """A directory, or a name in the catalog of the session."""

    path: str | None = None
    name: str | None = None

    @property
    def identifier(self) -> str:
        if self.path is not None:
            return f"delta.{quoted(self.path)}"
        return ".".join(quoted(each) for each in (self.name or "").split("."))


class DeltaTable:
    can_rename = False
    """Only with column mapping, which many readers do not know."""

    def __init__(self, spark: SparkSession, place: DeltaPlace, sort_by: Sequence[str] = ()) -> None:
        self._spark = spark
        self._place = place
        self._table = place.identifier
        self._sort_by = sort_by
        self._is_made = False
        self.name = place.path or place.name or ""

    def exists(self) -> bool:
        self._is_made = self._is_made or self._is_there()
        return self._is_made

    def create(self, schema: StructType, layout: Layout) -> None:
        made, by = partitioning(schema, layout.partition_by)
        columns = ", ".join([column_list(schema), *made])
        clause = f"PARTITIONED BY ({', '.join(map(quoted, by))})" if by else ""
        given = f"TBLPROPERTIES ({property_list(layout.properties)})" if layout.properties else ""
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns}) USING delta {clause} {given}")

    def frame(self) -> DataFrame:
        return self._spark.table(self._table)

    def schema(self) -> StructType:
        return self.frame().schema

    def properties(self) -> dict[str, str]:
        return {row.key: row.value for row in self._spark.sql(f"SHOW TBLPROPERTIES {self._table}").collect()}

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({property_list(properties)})")

    def progress(self, parts: Sequence[TopicPart]) -> Progress:
        oldest = 0
        for limit in _LOOK_BACK:
            history = self._history(limit)
            for row in history:
                if commit := _commit_of(row):
                    return Progress(commit.end, commit.number, commit.epoch, commit.attempt)
            oldest = history[-1].version if history else 0
            if oldest == 0:
                return Progress()
            if len(history) < limit:
                break
        # Delta has removed the old part of its log, and no sync has written since. Numbers begin anew, in an epoch that
        # all who come now agree on.
        return progress_of_rows(self, parts, epoch=str(oldest))

    def append(self, rows: DataFrame, commit: Commit) -> None:
        if self._sort_by:
            rows = rows.sortWithinPartitions(*self._sort_by)
        once = {"txnAppId": f"{APPLICATION}-{commit.epoch}", "txnVersion": str(commit.number)}
        try:
            self._write(rows, commit, once)
        except SPARK_ERRORS as error:
            if _RACED not in str(error) and "ConcurrentTransactionException" not in str(error):
                raise
        # A write that came too late was skipped without a word.
        last = self._last_commit()
        if last is None or last.attempt != commit.attempt:
            raise Conflict(
                f"another sync writes to {self.name}: it made commit {commit.number}; stop one of them"
            )

    def insert(self, rows: DataFrame, commit: Commit) -> None:
        self._write(rows, commit, {})

    def close(self) -> None:
        """Nothing is left over."""

    def discard(self, condition: str) -> None:
        self._spark.sql(f"DELETE FROM {self._table} WHERE {condition}")

    def change(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change, WidenColumn) for change in changes):
            # A feature of the table, which readers must know; so only once it is needed.
            self.set_properties({"delta.enableTypeWidening": "true"})
        for change in changes:
            self._spark.sql(alteration(self._table, change))

    def commits(self, limit: int) -> list[RecordedCommit]:
        found: list[RecordedCommit] = []
        for row in self._history(_LOOK_BACK[1]):
            commit = _commit_of(row)
            if commit is not None and len(found) < limit:
                written = (row.operationMetrics or {}).get("numOutputRows")
                committed_ms = int(row.timestamp.timestamp() * 1000)
                found.append(
                    RecordedCommit(
                        commit, str(row.version), committed_ms, None if written is None else int(written)
                    )
                )
        return found

    def compact(self) -> Compaction:
        (row,) = self._spark.sql(f"OPTIMIZE {self._table}").collect()
        return Compaction(int(row.metrics.numFilesRemoved), int(row.metrics.numFilesAdded))

    def expire(self, older_than_hours: float) -> None:
        self._spark.sql(f"VACUUM {self._table} RETAIN {older_than_hours:g} HOURS")

    def _is_there(self) -> bool:
        if self._place.path is None:
            return self._spark.catalog.tableExists(self._table)
        try:
            return bool(self._history(1))
        except SPARK_ERRORS as error:
            if any(condition in str(error) for condition in _NO_TABLE):
                return False
            raise

    def _write(self, rows: DataFrame, commit: Commit, options: Mapping[str, str]) -> None:
        writer = rows.write.format("delta").mode("append").options(**options)
        writer = writer.option("userMetadata", json.dumps(commit.to_properties()))
        if self._place.path is not None:
            writer.save(self._place.path)
        else:
            writer.saveAsTable(self._table)

    def _last_commit(self) -> Commit | None:
        for limit in _LOOK_BACK:
            for row in self._history(limit):
                if commit := _commit_of(row):
                    return commit
        return None

    def _history(self, limit: int) -> list[Row]:
        """Newest first."""
        return self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT {limit}").collect()


def _commit_of(row: Row) -> Commit | None:
    try:
        properties = json.loads(row.userMetadata or "null")
    except ValueError:
        return None
    return Commit.of_properties(properties) if isinstance(properties, dict) else None
