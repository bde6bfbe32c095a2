"""The topic or partitions that rows go to, and which row goes where."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.client import blocking
from pydanube.client.routing import partition_name
from pydanube.client.tables import by_partition
from pydanube.kernel.errors import Rejected


def parts_of(client: blocking.Client, topic: str, partitions: int | None) -> list[str]:
    """The names rows are published to; those that do not exist are made when a producer opens them.

    Raises:
        Rejected: the topic exists with another number of partitions.
    """
    there = client.partitions(topic)
    if partitions is None:
        return there or [topic]
    if there == [topic] or len(there) > partitions:
        has = "none" if there == [topic] else str(len(there))
        raise Rejected(f"invalid partitions {partitions}: {topic} has {has}; leave the option away")
    # Fewer may just be those that other tasks have made so far.
    return [partition_name(topic, number) for number in range(partitions)]


def by_topic(rows: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each topic, in order."""
    if topic is not None:
        yield topic, rows
        return
    topics = rows.column("topic")
    for name in pc.unique(topics).to_pylist():
        yield name, rows.filter(pc.equal(topics, name)).drop_columns(["topic"])


class Router:
    """Spreads the rows of one topic over its partitions."""

    def __init__(self, topic: str, parts: list[str]) -> None:
        self._topic = topic
        self._parts = parts
        self._turn = 0

    def route(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """By the column `partition`, else by key; rows without either go to the partitions in turn."""
        if "partition" in rows.column_names:
            yield from self._as_said(rows)
            return
        for some, number in by_partition(rows, len(self._parts)):
            if number is None:
                number = self._turn
                self._turn = (self._turn + 1) % len(self._parts)
            yield self._parts[number], some

    def _as_said(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        numbers = rows.column("partition")
        for number in sorted(pc.unique(numbers).to_pylist()):
            if not 0 <= number < len(self._parts):
                raise Rejected(
                    f"column partition is {number}, but {self._topic} has {len(self._parts)}, counted from 0: drop the "
                    "column to have rows routed by their key"
                )
            yield self._parts[number], rows.filter(pc.equal(numbers, number)).drop_columns(["partition"])
