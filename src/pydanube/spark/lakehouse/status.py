"""How far a table is, and how far behind its topic."""

from typing import Any

from pydanube.kernel.errors import Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.lakehouse.commits import TOPIC
from pydanube.spark.lakehouse.table import LakeTable
from pydanube.spark.reading import available
from pydanube.spark.topics import resolve


def look_at(connection: Connection, table: LakeTable, limit: int) -> dict[str, Any]:
    """A document: topic, position, lag and the last commits.

    Raises:
        Rejected: there is no such table, or no sync wrote to it.
    """
    if not table.exists():
        raise Rejected(f"there is no table {table.name}: `danube lakehouse sync` makes it")
    topic = table.properties().get(TOPIC)
    if topic is None:
        raise Rejected(f"table {table.name} holds no topic: it has no property {TOPIC}")
    with connection.client() as client:
        parts = resolve(client, [topic])
        there = available(client, parts)
    position = table.progress(parts).position
    return {
        "table": table.name,
        "topic": topic,
        "position": dict(position),
        "lag": sum(max(0, kept.stop - position.get(name, kept.start)) for name, kept in there.items()),
        "commits": [
            {
                "commit": each.commit.number,
                "version": each.version,
                "committed_ms": each.committed_ms,
                "messages": each.commit.messages,
                "rows": each.rows,
                "quarantined": each.commit.quarantined,
                "lost": each.commit.lost,
                "start": dict(each.commit.start),
                "end": dict(each.commit.end),
            }
            for each in table.commits(limit)
        ],
    }
