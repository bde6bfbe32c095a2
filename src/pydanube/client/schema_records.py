"""What the schema registry is asked with and answers with."""

from dataclasses import dataclass

from pydanube.kernel.errors import Rejected
from pydanube.protocol import schema_registry_pb2 as pb


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """Which version of a subject is meant: the latest, exactly `version`, or the latest if it is `at_least`."""

    subject: str
    version: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.at_least is not None:
            raise Rejected("version and at_least exclude each other: pass one of them")


AnySchema = str | SchemaRef
"""A subject stands for its latest version."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """What a definition means by a name it does not declare itself: a version of another subject.

    `name` is the full name of an Avro type, what a `$ref` of a JSON Schema says before its `#`, or the file that a
    Protobuf definition imports.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a registered schema is found; not new if the subject had it before."""

    schema_id: int
    version: int
    is_new_version: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a subject; `definition` is the text as it was registered."""

    schema_id: int
    version: int
    subject: str
    type: str
    definition: str
    description: str
    created_at: int
    """Unix seconds."""
    created_by: str
    tags: tuple[str, ...]
    fingerprint: str
    mode: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    version: int
    schema_id: int
    created_at: int
    created_by: str
    description: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Subject:
    subject: str
    schema_id: int
    type: str
    latest_version: int
    mode: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """Which subject a topic follows, and how strictly: none, warn or enforce."""

    subject: str | None
    schema_id: int | None
    policy: str
    payloads: bool
    """Whether payloads are checked, not only the names of schemas."""


def full_mode(answer: pb.GetSchemaResponse) -> str:
    """The compatibility mode, which is told in two fields: clients of other makers know only the words of one."""
    return answer.compatibility_mode + ("_transitive" if answer.compatibility_is_transitive else "")
