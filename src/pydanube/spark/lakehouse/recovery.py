"""How far a table is when its log has forgotten: maintenance replaced the last commit of a sync, and then removed it.

What is left are the rows, and the property `danube.end-offsets` that our own maintenance writes before it removes
anything. Messages behind the last row that made none are read again, and make none again. Rows that others deleted
from the end of the table come again; nothing else can.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pydanube.spark.lakehouse.commits import Progress, furthest, parse_position
from pydanube.spark.lakehouse.envelope import PARTITION
from pydanube.spark.topics import TopicPart

logger = logging.getLogger("pydanube.spark.lakehouse")

END_PROPERTY = "danube.end-offsets"
NUMBER_PROPERTY = "danube.commit"


class Readable(Protocol):
    @property
    def name(self) -> str: ...

    def frame(self) -> DataFrame: ...

    def properties(self) -> dict[str, str]: ...


def progress_of_rows(table: Readable, parts: Sequence[TopicPart], epoch: str = "0") -> Progress:
    """From what the table still has."""
    names = {(part.topic, part.partition): part.name for part in parts}
    highest = table.frame().groupBy("_topic", PARTITION).agg(fn.max("_offset").alias("last")).collect()
    position = {
        names[row._topic, row[PARTITION]]: int(row["last"]) + 1
        for row in highest
        if (row._topic, row[PARTITION]) in names and row["last"] is not None
    }
    properties = table.properties()
    number = int(properties.get(NUMBER_PROPERTY, "0"))
    if END_PROPERTY in properties:
        position = furthest(position, parse_position(properties[END_PROPERTY]))
    logger.warning(
        "table=%s no commit of a sync is in its log any more; going on from what its rows say: %s",
        table.name,
        position,
    )
    return Progress(position, number, epoch)
