"""Iceberg tables.

A commit is staged on a branch that belongs to this object alone, then the main branch is moved forward to it. Iceberg
moves a branch forward only along its line: had anybody committed in between, what we staged would not descend from
what is there, and nothing moves. So a commit is made on top of exactly what was looked at, and two syncs can never
both make the next one. An append by itself would not do: Iceberg puts it on top of whatever it finds.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pydanube.kernel.errors import Conflict
from pydanube.spark.failures import SPARK_ERRORS, sentence
from pydanube.spark.lakehouse.commits import Commit, Progress, RecordedCommit
from pydanube.spark.lakehouse.evolution import Change
from pydanube.spark.lakehouse.recovery import progress_of_rows
from pydanube.spark.lakehouse.sql_words import alteration, column_list, property_list, quoted, text
from pydanube.spark.lakehouse.table import Compaction, Layout
from pydanube.spark.lakehouse.trouble import of_catalog, passes
from pydanube.spark.topics import TopicPart

logger = logging.getLogger("pydanube.spark.lakehouse")

BRANCH: Final = "danube_sync_"
ATTEMPTS_MAX: Final = 5
"""At a commit while others, who are no syncs, commit too."""

_OUTRUN: Final = ("is not an ancestor of", "CommitFailedException")
"""In what Iceberg says when somebody else has changed the table first."""

_NEW: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


@dataclass(frozen=True, slots=True)
class _Line:
    """The snapshots of the main branch that are still known, newest first."""

    snapshots: tuple[Row, ...]
    is_whole: bool
    """It reaches back to the first one ever; otherwise older ones have expired."""

    @property
    def head(self) -> int | None:
        return self.snapshots[0].snapshot_id if self.snapshots else None

    def last_commit(self) -> Commit | None:
        for snapshot in self.snapshots:
            if commit := Commit.of_properties(snapshot.summary or {}):
                return commit
        return None


class IcebergTable:
    can_rename = True

    def __init__(self, spark: SparkSession, catalog: str, name: str) -> None:
        self._spark = spark
        self._catalog = quoted(catalog)
        self._in_catalog = name
        self.identifier = f"{self._catalog}.{'.'.join(map(quoted, name.split('.')))}"
        self._branch = f"{BRANCH}{uuid4().hex[:12]}"
        self._is_made = False
        self._has_branch = False
        self._seen: _Line | None = None
        """What the next commit goes on top of."""
        self.name = f"{catalog}.{name}"

    def exists(self) -> bool:
        try:
            self._is_made = self._is_made or self._spark.catalog.tableExists(self.identifier)
        except SPARK_ERRORS as error:
            raise of_catalog(error, self._address()) from error
        return self._is_made

    def create(self, schema: StructType, layout: Layout) -> None:
        namespace = ".".join(map(quoted, self._in_catalog.split(".")[:-1]))
        if namespace:
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._catalog}.{namespace}")
        partitioning = f"PARTITIONED BY ({', '.join(layout.partition_by)})" if layout.partition_by else ""
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.identifier} ({column_list(schema)}) USING iceberg {partitioning} "
            f"TBLPROPERTIES ({property_list({**_NEW, **layout.properties})})"
        )
        if layout.sort_by:
            self._spark.sql(f"ALTER TABLE {self.identifier} WRITE ORDERED BY {', '.join(layout.sort_by)}")

    def frame(self) -> DataFrame:
        return self._spark.table(self.identifier)

    def schema(self) -> StructType:
        return self.frame().schema

    def properties(self) -> dict[str, str]:
        return {
            row.key: row.value for row in self._spark.sql(f"SHOW TBLPROPERTIES {self.identifier}").collect()
        }

    def set_properties(self, properties: Mapping[str, str]) -> None:
        self._spark.sql(f"ALTER TABLE {self.identifier} SET TBLPROPERTIES ({property_list(properties)})")

    def progress(self, parts: Sequence[TopicPart]) -> Progress:
        line = self._seen = self._line()
        if last := line.last_commit():
            return Progress(last.end, last.number, last.epoch, last.attempt)
        if line.is_whole:
            return Progress()
        # What a sync wrote last was replaced by maintenance, and then expired.
        return progress_of_rows(self, parts)

    def append(self, rows: DataFrame, commit: Commit) -> None:
        missing = [field for field in self.schema() if field.name not in rows.columns]
        rows = rows.select("*", *(fn.lit(None).cast(field.dataType).alias(field.name) for field in missing))
        self.commit_staged(commit, lambda branch: _write(rows, self._of_branch(branch), commit))

    def commit_staged(self, commit: Commit, write: Callable[[str], None]) -> None:
        """Have a commit written to a branch, then move the main one forward to it; as `append` otherwise."""
        for _ in range(ATTEMPTS_MAX):
            try:
                self._stage_on(commit)
                write(self._branch)
                self._call("fast_forward", branch="main", to=self._branch)
            except SPARK_ERRORS as error:
                last = self._line().last_commit()
                if last is not None and last.attempt == commit.attempt:
                    return  # it was made, only the answer was lost
                if not _is_outrun(error):
                    raise
                logger.info(
                    "table=%s was changed meanwhile, committing again: %s", self.name, sentence(error)
                )
            else:
                return
        raise Conflict(
            f"{self.name} was changed by others {ATTEMPTS_MAX} times while one commit was tried: "
            "let their work end first, or commit less at once"
        )

    def insert(self, rows: DataFrame, commit: Commit) -> None:
        _write(rows, self.identifier, commit)

    def close(self) -> None:
        """Remove the branch that commits are staged on."""
        if not self._has_branch:
            return
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                self._spark.sql(f"ALTER TABLE {self.identifier} DROP BRANCH IF EXISTS {quoted(self._branch)}")
            except SPARK_ERRORS as error:
                if _is_outrun(error) and attempt < ATTEMPTS_MAX:
                    continue
                if not (_is_outrun(error) or passes(error)):
                    raise
                logger.warning("table=%s keeps a branch that is not needed: %s", self.name, sentence(error))
            return

    def discard(self, condition: str) -> None:
        self._spark.sql(f"DELETE FROM {self.identifier} WHERE {condition}")

    def change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._spark.sql(alteration(self.identifier, change))

    def commits(self, limit: int) -> list[RecordedCommit]:
        found: list[RecordedCommit] = []
        for snapshot in self._line().snapshots:
            commit = Commit.of_properties(snapshot.summary or {})
            if commit is not None and len(found) < limit:
                rows = int((snapshot.summary or {}).get("added-records", 0))
                committed_ms = int(snapshot.committed_at.timestamp() * 1000)
                found.append(RecordedCommit(commit, str(snapshot.snapshot_id), committed_ms, rows))
        return found

    def compact(self) -> Compaction:
        (row,) = self._call("rewrite_data_files")
        return Compaction(int(row.rewritten_data_files_count), int(row.added_data_files_count))

    def expire(self, older_than_hours: float) -> None:
        (row,) = self._spark.sql(
            f"SELECT date_format(current_timestamp() - make_dt_interval(0, 0, 0, {older_than_hours * 3600:f}), "
            "'yyyy-MM-dd HH:mm:ss.SSS') AS at"
        ).collect()
        self._spark.sql(
            f"CALL {self._catalog}.system.expire_snapshots(table => {text(self._in_catalog)}, "
            f"older_than => TIMESTAMP {text(row['at'])})"
        )

    def _address(self) -> str:
        """Of the catalog, as far as the session was told; without what a URI may say about users."""
        name = self.name.partition(".")[0]
        told = (
            self._spark.conf.get(f"spark.sql.catalog.{name}.{property_}", None)
            for property_ in ("uri", "warehouse")
        )
        return next(filter(None, told), name).partition("?")[0]

    def _of_branch(self, branch: str) -> str:
        return f"{self.identifier}.{quoted(f'branch_{branch}')}"

    def _stage_on(self, commit: Commit) -> None:
        """Point our branch at what `progress` saw of the main one, which must hold the commit before this one.

        The main branch is not looked at again: if it has moved since, moving it forward fails.
        """
        line, self._seen = self._seen or self._line(), None
        last = line.last_commit()
        if last is not None and last.number != commit.number - 1:
            raise Conflict(
                f"another sync writes to {self.name}, or it was rolled back: its last commit is {last.number}, up to "
                f"{dict(last.end)}, and number {commit.number} was to be made; let one sync write to a table"
            )
        branch = quoted(self._branch)
        self._has_branch = True
        if line.head is None:
            # A branch cannot be moved to nowhere, only made there.
            self._spark.sql(f"ALTER TABLE {self.identifier} DROP BRANCH IF EXISTS {branch}")
            self._spark.sql(f"ALTER TABLE {self.identifier} CREATE BRANCH {branch}")
        else:
            self._spark.sql(
                f"ALTER TABLE {self.identifier} CREATE OR REPLACE BRANCH {branch} AS OF VERSION {line.head}"
            )

    def _line(self) -> _Line:
        # Somebody else may have committed: what this session has cached is not the table.
        self._spark.sql(f"REFRESH TABLE {self.identifier}")
        for _ in range(ATTEMPTS_MAX):
            # In this order: two queries see two versions of the table, and the later one has the snapshots of the earlier.
            heads = self._spark.sql(
                f"SELECT snapshot_id FROM {self.identifier}.refs WHERE name = 'main'"
            ).collect()
            known = self._spark.sql(
                f"SELECT snapshot_id, parent_id, committed_at, summary FROM {self.identifier}.snapshots"
            ).collect()
            by_id = {row.snapshot_id: row for row in known}
            head = heads[0].snapshot_id if heads else None
            if head is None or head in by_id:
                return _line_from(head, by_id)
        raise Conflict(
            f"{self.name} changes faster than it can be looked at: let the work of others end first"
        )

    def _call(self, procedure: str, **arguments: str) -> list[Row]:
        given = {"table": self._in_catalog, **arguments}
        listed = ", ".join(f"{quoted(name)} => {text(value)}" for name, value in given.items())
        return self._spark.sql(f"CALL {self._catalog}.system.{procedure}({listed})").collect()


def _is_outrun(error: BaseException) -> bool:
    return any(words in str(error) for words in _OUTRUN)


def _line_from(head: int | None, by_id: Mapping[int, Row]) -> _Line:
    line: list[Row] = []
    at = head
    while at is not None and at in by_id:
        line.append(by_id[at])
        at = by_id[at].parent_id
    return _Line(tuple(line), at is None)


def _write(rows: DataFrame, target: str, commit: Commit) -> None:
    writer = rows.writeTo(target)
    for name, value in commit.to_properties().items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()
