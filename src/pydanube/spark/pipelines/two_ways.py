"""Two kinds of rows in one stream: a query has one output, and a batch goes to the sink and to the quarantine."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

_ROW: Final = "row"
_BAD: Final = "bad"


def together(rows: DataFrame, quarantined: DataFrame) -> DataFrame:
    """Each in a column of its own."""

    def shaped(df: DataFrame, name: str) -> DataFrame:
        columns = {
            _ROW: fn.lit(None).cast(rows.schema),
            _BAD: fn.lit(None).cast(quarantined.schema),
            name: fn.struct("*"),
        }
        return df.select(*(columns[each].alias(each) for each in (_ROW, _BAD)))

    return shaped(rows, _ROW).unionByName(shaped(quarantined, _BAD))


def split(df: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Both kinds again."""
    rows, bad = (df.where(fn.col(each).isNotNull()).select(f"{each}.*") for each in (_ROW, _BAD))
    return rows, bad


@contextmanager
def worked_out(df: DataFrame) -> Iterator[None]:
    """Compute a batch once and wholly, whatever is asked of it afterwards.

    Spark keeps the state of a query with the rows that are asked for: a sink that has the batch already, and asks for none,
    would leave the state behind.
    """
    df.persist()
    try:
        df.write.format("noop").mode("overwrite").save()
        yield
    finally:
        df.unpersist()
