"""Partitioning of Delta tables: by columns only, so that days and the like become columns made from others."""

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import StructType

from pydanube.kernel.errors import Rejected
from pydanube.spark.lakehouse.sql_words import quoted

_TRANSFORM: Final = re.compile(r"(?P<how>\w+)\((?P<column>\w+)\)")
_MADE: Final = {
    "years": ("year", "INT", "YEAR({})"),
    "months": ("month", "STRING", "DATE_FORMAT({}, 'yyyy-MM')"),
    "days": ("day", "DATE", "CAST({} AS DATE)"),
    "hours": ("hour", "STRING", "DATE_FORMAT({}, 'yyyy-MM-dd-HH')"),
}


def partitioning(schema: StructType, partition_by: Sequence[str]) -> tuple[list[str], list[str]]:
    """Columns to be made, as SQL declares them, and the names to partition by.

    Raises:
        Rejected: something is neither a column nor days(column) and the like.
    """
    made: list[str] = []
    names: list[str] = []
    for each in partition_by:
        found = _TRANSFORM.fullmatch(each.strip())
        column = found["column"] if found else each.strip()
        how = _MADE.get(found["how"].lower()) if found else None
        if column not in schema.names or (found and how is None):
            raise Rejected(
                f"invalid partitioning {each!r}: a Delta table is partitioned by a column ({', '.join(schema.names)}) "
                f"or by one of {', '.join(f'{name}(column)' for name in _MADE)}"
            )
        if how is None:
            names.append(column)
            continue
        suffix, kind, expression = how
        name = f"{column.removesuffix('_time')}_{suffix}"
        made.append(f"{quoted(name)} {kind} GENERATED ALWAYS AS ({expression.format(quoted(column))})")
        names.append(name)
    return made, names
