"""The options of writing, as users write them."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName
from pydanube.spark.connection import Connection
from pydanube.spark.source.options import nearest

ChangedRows = Literal["fail", "keep"]
Codec = Literal["lz4", "zstd"]

WRITE_OPTIONS: Final = (
    "topic", "path", "partitions", "writeId", "producerName", "ledger", "changedRows", "schema", "compression",
    "url", "token", "caFile", "certFile", "keyFile",
)  # fmt: skip
_OF_SPARK: Final = frozenset(("checkpointlocation", "queryname", "outputmode"))
"""Options Spark hands on that are meant for itself."""
PARTITIONS_MAX: Final = 1_000
_WORD: Final = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go, and how."""

    connection: Connection
    topic: str | None
    """None: a column says so for each row."""
    partitions: int | None
    write_id: str | None
    producer_name: str
    ledger: str | None
    changed_rows: ChangedRows
    schema: str | None
    compression: Codec | None

    def ledger_of(self, write: str) -> str:
        """The topic in which a write notes how far it got."""
        if self.ledger is not None:
            return self.ledger
        namespace = "default" if self.topic is None else TopicName.parse(self.topic).namespace
        return f"/{namespace}/{write.replace('.', '_')}"


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Read and check all options, whose names may come in any case.

    Raises:
        Rejected: an option is unknown or has a value it cannot have; the text says which ones it can.
    """
    given = _known(options)
    topic, path = given.get("topic"), given.get("path")
    if topic is not None and path is not None:
        raise Rejected(f"the topic is said twice, as topic {topic!r} and in save({path!r}): keep one")
    topic = topic or path
    for name in (topic, given.get("ledger")):
        if name is not None:
            TopicName.parse(name)
    return WriteOptions(
        connection=Connection.of_options(options),
        topic=topic,
        partitions=_partitions(given.get("partitions")),
        write_id=_word(given, "writeId"),
        producer_name=_word(given, "producerName") or "spark",
        ledger=given.get("ledger"),
        changed_rows=cast(ChangedRows, _choice(given, "changedRows", "fail", "keep") or "fail"),
        schema=given.get("schema"),
        compression=cast(Codec | None, _choice(given, "compression", "lz4", "zstd")),
    )


def new_run() -> str:
    """A name for one run of a write that nobody had before."""
    return secrets.token_hex(4)


def _known(options: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): name for name in WRITE_OPTIONS}
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower in names:
            given[names[lower]] = value
        elif lower not in _OF_SPARK:
            raise Rejected(f"unknown option {name!r} for writing: {nearest(name, WRITE_OPTIONS)}")
    return given


def _partitions(value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or not 1 <= int(value) <= PARTITIONS_MAX:
        raise Rejected(f"invalid partitions {value!r}: expected a number from 1 to {PARTITIONS_MAX}")
    return int(value)


def _word(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    if value is not None and _WORD.fullmatch(value) is None:
        raise Rejected(f"invalid {name} {value!r}: expected 1 to 64 letters, digits, '.', '_' and '-'")
    return value


def _choice(given: Mapping[str, str], name: str, *allowed: str) -> str | None:
    value = given.get(name)
    if value is not None and value.lower() not in allowed:
        raise Rejected(f"invalid {name} {value!r}: expected one of {', '.join(allowed)}")
    return None if value is None else value.lower()
