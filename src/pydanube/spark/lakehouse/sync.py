"""Keeping a table up to date with a topic, exactly once.

The table is the checkpoint. A commit holds the messages of a stretch of offsets and says so in itself; the next one
begins where the last one in the table ends. Nothing is remembered elsewhere, so there is nothing that could differ
from the table after a crash, a rollback or a restored copy.

One commit goes like this, and may stop anywhere:

1. fix how far the topic reaches, then load its schemas: whatever was published by now has a schema that is registered;
2. ask the table how far it is; the stretch between, within bounds, is what this commit holds;
3. change the columns of the table if the schema wants others;
4. append what cannot be decoded to the quarantine table, marked with this attempt;
5. append the rows, on top of the commit that was found in 2 (`LakeTable.append` fails if there is another by now);
6. delete what other attempts at these offsets left in the quarantine table: after 5, none of them can succeed. Who died
   before that has it done by the next one to come.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pydanube.client import blocking
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.decoding import LoadedSchemas, SchemaSource, decode, table_schema
from pydanube.spark.lakehouse.commits import TOPIC, Commit, Progress, furthest
from pydanube.spark.lakehouse.envelope import (
    ENVELOPE,
    column_of,
    envelope_schema,
    raw_rows,
    raw_schema,
)
from pydanube.spark.lakehouse.evolution import OnIncompatible, Plan, fit, plan_evolution
from pydanube.spark.lakehouse.maintenance import tidy
from pydanube.spark.lakehouse.quarantine import Quarantine
from pydanube.spark.lakehouse.renames import renamed_columns
from pydanube.spark.lakehouse.stretches import CommitBounds, Stretch, next_stretch
from pydanube.spark.lakehouse.table import LakeTable, Layout
from pydanube.spark.reading import available, read_ranges
from pydanube.spark.topics import TopicPart, resolve

logger = logging.getLogger("pydanube.spark.lakehouse")

CONTENT_PROPERTY: Final = "danube.content"


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """What a sync may be told."""

    start: Literal["earliest", "latest"] = "earliest"
    """Where a new table begins."""
    bounds: CommitBounds = field(default_factory=CommitBounds)
    layout: Layout = field(default_factory=Layout)
    on_error: Literal["quarantine", "fail"] = "quarantine"
    on_incompatible: OnIncompatible = "stop"
    on_loss: Literal["stop", "skip"] = "stop"
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to get into the object store of the topic, if Spark itself was not told."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step did."""

    commit: Commit | None
    """None if there was nothing to do."""
    has_more: bool = False
    """Enough for another commit at once."""
    lag: int = 0
    """Messages that were there and are not in the table yet."""


class LakehouseSync:
    """One topic into one table. `step` is all there is: call it until it has no more, or for ever."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        topic: str,
        table: LakeTable,
        *,
        schemas: SchemaSource | None = None,
        quarantine: LakeTable | None = None,
        options: SyncOptions | None = None,
    ) -> None:
        """
        Args:
            schemas: what makes columns of payloads; None keeps them as they are.
            quarantine: where messages go that make no row; needed unless `on_error` is fail.
        """
        self._spark = spark
        self._connection = connection
        self._topic = topic
        self._table = table
        self._schemas = schemas
        self._options = options or SyncOptions()
        self._is_ours = False
        """The table was looked at, and is of this topic."""
        self._quarantine: Quarantine | None = None
        if schemas is not None and self._options.on_error == "quarantine":
            if quarantine is None:
                raise Rejected("a sync with schemas needs a quarantine table: give one, or use on_error=fail")
            self._quarantine = Quarantine(quarantine)

    def plan(self) -> tuple[Progress, Stretch, int]:
        """How far the table is, what the next commit would hold, and the lag; nothing is changed."""
        with self._connection.client() as client:
            parts = resolve(client, [self._topic])
            there = available(client, parts)
            progress = self._progress(parts)
            return progress, self._stretch(client, progress, there), _lag(progress.position, there)

    def step(self) -> Outcome:
        """Make the next commit, if there is something to commit.

        Raises:
            Conflict: another sync writes to the table.
            Rejected: the topic, its schema or the table cannot be used as they are.
        """
        with self._connection.client() as client:
            parts = resolve(client, [self._topic])
            there = available(client, parts)
            loaded = None if self._schemas is None else self._schemas.load()
            self._make_table(loaded)
            progress = self._progress(parts)
            stretch = self._stretch(client, progress, there)
        if self._quarantine is not None and not self._quarantine.is_settled:
            self._quarantine.recover(next((one.commit for one in self._table.commits(1)), None))
        if not stretch:
            return Outcome(None)
        commit = self._commit_for(progress, stretch)
        messages = read_ranges(self._spark, self._connection, stretch.ranges, store=self._options.store)
        if loaded is None:
            self._append(raw_rows(messages), raw_schema(), commit)
        else:
            commit = self._append_typed(messages, loaded, commit)
        logger.info(
            "table=%s commit=%d messages=%d quarantined=%d end=%s",
            self._table.name,
            commit.number,
            commit.messages,
            commit.quarantined,
            dict(commit.end),
        )
        return Outcome(commit, stretch.is_full, _lag(commit.end, there))

    def tidy(self, expire_hours: float | None = None) -> None:
        """Join small files, and forget old versions of the table."""
        done = tidy(self._table, expire_hours)
        logger.info("table=%s files=%d became=%d", self._table.name, done.files_before, done.files_after)

    def close(self) -> None:
        """Leave the table as others expect to find it."""
        self._table.close()
        if self._quarantine is not None:
            self._quarantine.close()

    def _make_table(self, loaded: LoadedSchemas | None) -> None:
        if not self._table.exists():
            schema = raw_schema() if loaded is None else _typed_schema(loaded)
            layout = self._options.layout
            marks = {TOPIC: self._topic, CONTENT_PROPERTY: "raw" if loaded is None else "typed"}
            marked = Layout(layout.partition_by, layout.sort_by, {**layout.properties, **marks})
            self._table.create(schema, marked)
        if self._quarantine is not None:
            self._quarantine.make(self._topic)

    def _progress(self, parts: list[TopicPart]) -> Progress:
        if not self._table.exists():
            return Progress()
        if not self._is_ours:
            self._check_marks(self._table.properties())
            self._is_ours = True
        return self._table.progress(parts)

    def _check_marks(self, marks: Mapping[str, str]) -> None:
        if marks.get(TOPIC) != self._topic:
            raise Rejected(
                f"table {self._table.name} holds {marks.get(TOPIC) or 'no topic'}, not {self._topic}: sync into another "
                f"table, or set its property {TOPIC} if its columns were made for this"
            )
        wanted = "raw" if self._schemas is None else "typed"
        if marks.get(CONTENT_PROPERTY, wanted) != wanted:
            raise Rejected(
                f"table {self._table.name} was made {marks[CONTENT_PROPERTY]}, not {wanted}: sync it "
                f"{'without' if wanted == 'raw' else 'with'} --raw, or into another table"
            )

    def _stretch(self, client: blocking.Client, progress: Progress, there: Mapping[str, range]) -> Stretch:
        position = progress.position
        if not position and self._options.start == "latest":
            position = {name: kept.stop for name, kept in there.items()}
        return next_stretch(
            position,
            there,
            self._options.bounds,
            client.history.segments,
            skip_lost=self._options.on_loss == "skip",
        )

    def _commit_for(self, progress: Progress, stretch: Stretch) -> Commit:
        start = {name: one.start for name, one in stretch.ranges.items()}
        ends = {name: one.stop for name, one in stretch.ranges.items()}
        return Commit(
            self._topic,
            progress.number + 1,
            uuid4().hex,
            furthest(progress.position, start),
            furthest(progress.position, ends),
            epoch=progress.epoch,
            lost=stretch.lost,
        )

    def _append_typed(self, messages: DataFrame, loaded: LoadedSchemas, commit: Commit) -> Commit:
        keep = list(ENVELOPE.values())
        decoded = decode(messages, loaded, on_error=self._options.on_error, keep=keep)
        renames = {name: column for column, name in ENVELOPE.items()}
        typed = table_schema(loaded)
        rows = decoded.rows.select(
            *(fn.col(name).alias(column) for name, column in renames.items()),
            *(decoded.rows[_quoted(name)].alias(column_of(name)) for name in typed.names),
        )
        if self._quarantine is None:
            self._append(rows, _typed_schema(loaded), commit, renamed_columns(loaded))
            return commit
        tagged = decoded.tagged.persist()
        try:
            commit = self._quarantine.append(decoded.quarantined, commit)
            try:
                self._append(rows, _typed_schema(loaded), commit, renamed_columns(loaded))
            except Conflict:
                self._quarantine.take_back(commit)
                raise
            self._quarantine.settle(commit)
        finally:
            tagged.unpersist()
        return commit

    def _append(
        self,
        rows: DataFrame,
        schema: StructType,
        commit: Commit,
        renames: Mapping[str, str] | None = None,
    ) -> None:
        plan = self._evolved(schema, renames or {})
        types = {field.name: field.dataType for field in self._table.schema()}
        fitted = [
            fit(rows[_quoted(field.name)], field.dataType, types[plan.columns[field.name]]).alias(
                plan.columns[field.name]
            )
            for field in rows.schema
        ]
        self._table.append(rows.select(*fitted), commit)

    def _evolved(self, schema: StructType, renames: Mapping[str, str]) -> Plan:
        """The table has a place for each column of the schema on return."""
        plan = plan_evolution(
            self._table.schema(),
            schema,
            renames,
            on_incompatible=self._options.on_incompatible,
            can_rename=self._table.can_rename,
        )
        if plan.changes:
            logger.info("table=%s columns change: %s", self._table.name, plan.changes)
            self._table.change(plan.changes)
        return plan


def _typed_schema(loaded: LoadedSchemas) -> StructType:
    schema = envelope_schema()
    for each in table_schema(loaded):
        schema.add(column_of(each.name), each.dataType)
    if clash := {name for name in schema.names if sum(name == other for other in schema.names) > 1}:
        raise Rejected(
            f"fields of the schema would share the column {', '.join(sorted(clash))}: rename one of them",
            ErrorCode.SCHEMA_INCOMPATIBLE,
        )
    return schema


def _lag(position: Mapping[str, int], there: Mapping[str, range]) -> int:
    return sum(max(0, kept.stop - position.get(name, kept.start)) for name, kept in there.items())


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
