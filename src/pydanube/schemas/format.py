"""What every schema format promises: a parsed schema, its fingerprint, and two questions it can answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from pydanube.kernel.errors import ErrorCode, Rejected


class SchemaKind(Enum):
    """The formats; the value is the name tools see."""

    BYTES = "bytes"
    STRING = "string"
    NUMBER = "number"
    AVRO = "avro"
    JSON_SCHEMA = "json_schema"
    PROTOBUF = "protobuf"


class CompatibilityMode(Enum):
    """Which readers a new version must not break; the transitive forms look at every version, not the latest."""

    NONE = "none"
    BACKWARD = "backward"
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD = "forward"
    FORWARD_TRANSITIVE = "forward_transitive"
    FULL = "full"
    FULL_TRANSITIVE = "full_transitive"


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader cannot trust what a writer writes.

    `path` is a place such as `order.items[].price` (empty for the whole schema), `rule` a short stable word
    for programs, `text` one sentence that names both sides and what to do.
    """

    path: str
    rule: str
    text: str


class ParsedSchema(Protocol):
    """A definition that was understood; immutable, safe to share and to keep."""

    @property
    def kind(self) -> SchemaKind: ...

    @property
    def text(self) -> str:
        """The definition as it was registered."""

    @property
    def fingerprint(self) -> str:
        """Equal for definitions that differ in nothing but spelling; opaque to callers."""

    @property
    def quick_bytes_max(self) -> int:
        """Payloads up to here are checked within a few milliseconds, whatever they hold."""

    def problems_reading(self, written: "ParsedSchema") -> list[Incompatibility]:
        """Why data written with `written` cannot all be read with this schema; empty when it can."""

    def check_payload(self, payload: bytes) -> str | None:
        """None if the payload fits, else why not; bounded in time and depth."""


ALIASES = {
    "int64": SchemaKind.NUMBER,
    "int": SchemaKind.NUMBER,
    "float": SchemaKind.NUMBER,
    "double": SchemaKind.NUMBER,
    "json": SchemaKind.JSON_SCHEMA,
    "proto": SchemaKind.PROTOBUF,
} | {kind.value: kind for kind in SchemaKind}

NO_REFERENCES: Mapping[str, bytes] = MappingProxyType({})


def kind_of(text: str) -> SchemaKind:
    """The format a request names, in any case and under any of its names."""
    kind = ALIASES.get(text.lower())
    if kind is None:
        known = ", ".join(kind.value for kind in SchemaKind)
        raise Rejected(f"unknown schema type {text[:64]!r}: use one of {known}", ErrorCode.SCHEMA_INVALID)
    return kind


def mode_of(text: str) -> CompatibilityMode:
    """The compatibility mode a request names, in any case."""
    try:
        return CompatibilityMode(text.lower())
    except ValueError:
        known = ", ".join(mode.value for mode in CompatibilityMode)
        raise Rejected(f"unknown compatibility mode {text[:64]!r}: use one of {known}") from None


def parse_schema(
    kind: SchemaKind, definition: bytes, *, references: Mapping[str, bytes] = NO_REFERENCES
) -> ParsedSchema:
    """Understand a definition or raise `Rejected`; `references` are the only other texts it may name."""
    # The libraries behind a format are loaded with its first schema, not with the broker.
    match kind:
        case SchemaKind.AVRO:
            from pydanube.schemas.avro_schema import parse_avro  # noqa: PLC0415

            return parse_avro(definition, references)
        case SchemaKind.JSON_SCHEMA:
            from pydanube.schemas.json_schema import parse_json_schema  # noqa: PLC0415

            return parse_json_schema(definition, references)
        case SchemaKind.PROTOBUF:
            from pydanube.schemas.protobuf_schema import parse_protobuf  # noqa: PLC0415

            return parse_protobuf(definition, references)
        case _:
            from pydanube.schemas.plain import PlainSchema  # noqa: PLC0415

            return PlainSchema(kind, definition)


def other_kind(reader: ParsedSchema, written: ParsedSchema) -> list[Incompatibility]:
    """The one incompatibility between two formats."""
    text = f"the reader is {reader.kind.value}, the data is {written.kind.value}: use another subject"
    return [Incompatibility("", "kind_changed", text)]
