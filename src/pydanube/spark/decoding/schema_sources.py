"""Where the schemas of payloads come from: the registry, or a file where there is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from pydanube.client import blocking
from pydanube.client.schema_records import Schema
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.format import ParsedSchema, SchemaKind, kind_of, parse_schema
from pydanube.schemas.limits import DEFINITION_BYTES_MAX, REFERENCES_MAX
from pydanube.spark.connection import Connection

VERSIONS_FETCHED_MAX: Final = 100
"""The newest ones, by the driver; others are fetched by the executors that meet them."""

UnnamedRows = Literal["refuse", "decode"]


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a schema, as text."""

    kind: SchemaKind
    text: bytes
    references: Mapping[str, bytes] = field(default_factory=dict)
    """By name; what one of them refers to stands before it."""

    def parsed(self) -> ParsedSchema:
        return parse_schema(self.kind, self.text, references=self.references)


@dataclass(frozen=True, slots=True)
class LoadedSchemas:
    """What executors need to know: small, and fixed for the life of a query.

    It is a source itself, so that whoever decodes many times asks the registry once.
    """

    table: Definition
    """The version whose fields are the columns."""
    schema_id: int | None = None
    """Of the subject; without one, messages are decoded as the table's version whatever they name."""
    subject: str = ""
    versions: Mapping[int, Definition] = field(default_factory=dict)
    connection: Connection | None = None
    """Where versions are found that were registered later."""
    unnamed_rows: UnnamedRows = "refuse"

    def load(self) -> "LoadedSchemas":
        return self


class SchemaSource(Protocol):
    """Knows the schema of a table and the versions its messages may carry."""

    def load(self) -> LoadedSchemas:
        """Everything, fetched once, on the driver."""


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """All versions of a subject.

    Args:
        connection: the cluster whose registry it is.
        subject: the subject; that of the topic if not given.
        topic: whose subject is meant.
        version: whose fields are the columns; the latest of now if not given.
        unnamed_rows: what becomes of messages that name no schema: bad rows, or decoded as the table's version.
    """

    connection: Connection
    subject: str | None = None
    topic: str | None = None
    version: int | None = None
    unnamed_rows: UnnamedRows = "refuse"

    def load(self) -> LoadedSchemas:
        """Raises Rejected if there is no such subject or version."""
        with self.connection.client() as client:
            subject = self.subject or self._subject_of_topic(client)
            latest = client.schemas.latest(subject)
            table = latest if self.version is None else client.schemas.get(latest.schema_id, self.version)
            known = {latest.version: latest, table.version: table}
            for listed in client.schemas.versions(subject)[-VERSIONS_FETCHED_MAX:]:
                if listed.version not in known:
                    known[listed.version] = client.schemas.get(latest.schema_id, listed.version)
            versions = {version: definition_of(client, schema) for version, schema in known.items()}
        return LoadedSchemas(
            versions[table.version], latest.schema_id, subject, versions, self.connection, self.unnamed_rows
        )

    def _subject_of_topic(self, client: blocking.Client) -> str:
        if self.topic is None:
            raise Rejected("RegistrySchemas needs a subject, or a topic that follows one: give one of them")
        subject = client.schemas.topic_config(self.topic).subject
        if subject is None:
            raise Rejected(
                f"topic {self.topic} follows no schema subject: name the subject, or bind the topic to one",
                ErrorCode.SUBJECT_UNKNOWN,
            )
        return subject


@dataclass(frozen=True, slots=True)
class FileSchemas:
    """One schema from a file the driver can read; every message is decoded with it, whatever schema it names."""

    path: str
    type: str
    """json_schema, avro, protobuf, string, number or bytes; for the last three the file is not looked at."""

    def load(self) -> LoadedSchemas:
        kind = kind_of(self.type)
        if kind in (SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.BYTES):
            return LoadedSchemas(Definition(kind, b""))
        try:
            with Path(self.path).open("rb") as file:
                text = file.read(DEFINITION_BYTES_MAX + 1)
        except OSError as error:
            raise Rejected(
                f"the schema file {self.path} cannot be read: {error.strerror}", ErrorCode.SCHEMA_INVALID
            ) from error
        return LoadedSchemas(Definition(kind, text))


def definition_of(client: blocking.Client, schema: Schema) -> Definition:
    """A version with everything it refers to."""
    references: dict[str, bytes] = {}
    _follow(client, schema, references)
    return Definition(kind_of(schema.type), schema.definition.encode(), references)


def _follow(client: blocking.Client, schema: Schema, found: dict[str, bytes]) -> None:
    # References cannot form a circle, since each leads to a version that was there before.
    for reference in schema.references:
        if reference.name in found:
            continue
        subject = client.schemas.latest(reference.subject)
        referred = client.schemas.get(subject.schema_id, reference.version)
        _follow(client, referred, found)
        found[reference.name] = referred.definition.encode()
        if len(found) > REFERENCES_MAX:
            raise Rejected(
                f"subject {schema.subject!r} leads to more than {REFERENCES_MAX} references: use fewer",
                ErrorCode.SCHEMA_INVALID,
            )
