"""Topics as tables of SQL: in a statement, a name between backquotes that begins with a slash is a topic.

    rows = query(spark, "SELECT region, count(*) FROM `/default/orders` GROUP BY region", connection=connection)

A table has the columns of every message; that of a topic which follows a schema has one for each field besides.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pydanube.client import blocking
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.spark.connection import Connection
from pydanube.spark.decoding import RegistrySchemas, decode
from pydanube.spark.reading import read_topic
from pydanube.spark.registration import register
from pydanube.spark.source.options import ALL_COLUMNS
from pydanube.spark.topics import resolve

Start = str | Mapping[str, object] | datetime
"""earliest, latest, offsets or a moment, as for `read_topic`."""

TOPICS_MAX: Final = 100
"""That one statement may name."""

_TOKEN: Final = re.compile(
    r"""
      (?P<skipped> --[^\n]* | /\*)
    | (?P<text>    '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
    | `(?P<name>   (?:[^`]|``)*)`
    | (?P<word>    \w+ | \S)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Tables:
    """What the topics of a statement are to Spark."""

    connection: Connection
    typed: bool = True
    """Columns for the fields of a topic's schema, if it follows one."""
    start: Start = "earliest"
    end: Start = "latest"
    store: Mapping[str, str] = field(default_factory=dict)
    """How executors get into an object store, if Spark itself is not told."""
    follow: bool = False
    """Streams without an end: what comes, from `start` on."""


def query(spark: SparkSession, statement: str, tables: Tables) -> DataFrame:
    """Run a statement; the topics in it are views of the session afterwards.

    Raises:
        Rejected: a topic does not exist.
        ParseException, AnalysisException: Spark does not understand the statement.
    """
    topics = topics_in(statement)
    with tables.connection.client() as client:
        check_topics(client, topics)
        subjects = {topic: client.schemas.topic_config(topic).subject for topic in topics if tables.typed}
    for topic in topics:
        rows = _stream(spark, topic, tables) if tables.follow else _stored(spark, topic, tables)
        if subject := subjects.get(topic):
            schemas = RegistrySchemas(tables.connection, subject, unnamed_rows="decode")
            rows = decode(rows, schemas, keep=ALL_COLUMNS).rows
        rows.createOrReplaceTempView(f"`{topic}`")
    return spark.sql(statement)


def topics_in(statement: str) -> list[str]:
    """The topics a statement names, each once.

    Raises:
        Rejected: a name cannot be that of a topic, or there are too many.
    """
    found: dict[str, None] = {}
    before = ""
    for kind, token in _tokens(statement):
        # Behind `AS` it is a name given here, behind a dot a table of some catalog.
        if kind == "name" and token.startswith("/") and before.upper() not in ("AS", "."):
            found[str(TopicName.parse(token))] = None
        before = token if kind == "word" else ""
    if len(found) > TOPICS_MAX:
        raise Rejected(f"the statement names {len(found)} topics: {TOPICS_MAX} at most can be read at once")
    return list(found)


def check_topics(client: blocking.Client, topics: Sequence[str]) -> None:
    """Refuse topics that do not exist, naming the nearest that does."""
    for topic in topics:
        try:
            resolve(client, [topic])
        except Rejected as unknown:
            if unknown.code is not ErrorCode.TOPIC_UNKNOWN:
                raise
            known = _known(client, TopicName.parse(topic).namespace)
            near = get_close_matches(topic, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`danube topics list` shows those there are"
            raise Rejected(
                f"topic {topic} does not exist, or stores no messages: {hint}", ErrorCode.TOPIC_UNKNOWN
            ) from unknown


def _known(client: blocking.Client, namespace: str) -> list[str]:
    names = [TopicName.parse(name) for name in client.history.topics(namespace)]
    return sorted({str(name.partition_of or name) for name in names})


def _stored(spark: SparkSession, topic: str, tables: Tables) -> DataFrame:
    return read_topic(
        spark,
        topic,
        connection=tables.connection,
        start=tables.start,
        end=tables.end,
        store=tables.store,
    )


def _stream(spark: SparkSession, topic: str, tables: Tables) -> DataFrame:
    register(spark)
    options = {f"store.{name}": value for name, value in tables.store.items()}
    match tables.start:
        case datetime() as moment:
            options["startingTimestamp"] = moment.isoformat()
        case str() as word:
            options["startingOffsets"] = word
        case offsets:
            options["startingOffsets"] = json.dumps({topic: offsets.get(topic, "earliest")})
    reader = spark.readStream.format("danube").options(**tables.connection.options(), **options)
    return reader.option("topic", topic).load()


def _tokens(statement: str) -> Iterator[tuple[str, str]]:
    """Words, names between backquotes and texts of a statement, without its comments."""
    at = 0
    while found := _TOKEN.search(statement, at):
        at = found.end()
        kind = found.lastgroup or ""
        if kind != "skipped":
            yield kind, found[kind].replace("``", "`") if kind == "name" else found[kind]
        elif found["skipped"] == "/*":
            at = _comment_end(statement, at)


def _comment_end(statement: str, at: int) -> int:
    """Behind a bracketed comment, which may have others in it."""
    depth = 1
    while depth and (edge := _COMMENT_EDGE.search(statement, at)):
        depth += 1 if edge[0] == "/*" else -1
        at = edge.end()
    return len(statement) if depth else at
