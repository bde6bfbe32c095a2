"""Looking after a table, without a sync: what a sync needs to know is kept apart from the log before the log is cut."""

from pydanube.kernel.errors import Rejected
from pydanube.spark.lakehouse.recovery import END_PROPERTY, NUMBER_PROPERTY
from pydanube.spark.lakehouse.table import Compaction, LakeTable


def tidy(table: LakeTable, expire_hours: float | None = None) -> Compaction:
    """Join small files, then forget old versions.

    Raises:
        Rejected: there is no such table.
    """
    if not table.exists():
        raise Rejected(f"there is no table {table.name}: `danube lakehouse sync` makes it")
    anchor(table)
    done = table.compact()
    if expire_hours is not None:
        table.expire(expire_hours)
    return done


def anchor(table: LakeTable) -> None:
    """Write how far the table is into its properties. Not atomic with rows, so only read when the log has lost it."""
    last = table.commits(1)
    if last:
        commit = last[0].commit.to_properties()
        table.set_properties({name: commit[name] for name in (END_PROPERTY, NUMBER_PROPERTY)})
