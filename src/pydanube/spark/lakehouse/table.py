"""What a sync needs of a table format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from pydanube.spark.lakehouse.commits import Commit, Progress, RecordedCommit
from pydanube.spark.lakehouse.evolution import Change
from pydanube.spark.topics import TopicPart


@dataclass(frozen=True, slots=True)
class Layout:
    """How a new table is laid out."""

    partition_by: Sequence[str] = ()
    """Columns, or `days(column)` and the like."""
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What became of small files."""

    files_before: int
    files_after: int


class LakeTable(Protocol):
    """A table that one sync writes to, and anybody reads or maintains."""

    @property
    def name(self) -> str:
        """As people write it."""

    @property
    def can_rename(self) -> bool:
        """Whether columns can get another name without rewriting rows."""

    def exists(self) -> bool: ...

    def create(self, schema: StructType, layout: Layout) -> None:
        """Unless somebody else just did."""

    def frame(self) -> DataFrame: ...

    def schema(self) -> StructType: ...

    def properties(self) -> dict[str, str]: ...

    def set_properties(self, properties: Mapping[str, str]) -> None: ...

    def progress(self, parts: Sequence[TopicPart]) -> Progress:
        """How far the table is: what its last commit by a sync says, or its rows if maintenance removed that."""

    def append(self, rows: DataFrame, commit: Commit) -> None:
        """Rows and what they are, in one atomic step, on top of commit `number - 1`; columns not given are null.

        Raises:
            Conflict: another sync has made a commit of that number.
        """

    def insert(self, rows: DataFrame, commit: Commit) -> None:
        """Rows that belong to a commit elsewhere, whatever the table holds."""

    def discard(self, condition: str) -> None:
        """Delete rows."""

    def change(self, changes: Sequence[Change]) -> None:
        """Apply changes to the columns; those that are there already are left out by who asks."""

    def commits(self, limit: int) -> list[RecordedCommit]:
        """Those of syncs, newest first."""

    def compact(self) -> Compaction: ...

    def expire(self, older_than_hours: float) -> None:
        """Forget old versions of the table, and delete files that only they have."""

    def close(self) -> None:
        """Leave nothing in the table that only this writer needed."""
