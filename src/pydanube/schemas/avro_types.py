"""The types of an Avro schema, with every name resolved: a graph, since a record may contain itself."""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydanube.schemas.documents import Json

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class _NoDefault:
    """A field without a default; `None` is one."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


# Compared by identity and never spelled out: two equal-looking types are two nodes of two graphs.
@dataclass(slots=True, eq=False, repr=False)
class Primitive:
    """One of the eight; `logical` says how to understand the value, `decimal` is (precision, scale)."""

    name: str
    logical: str | None = None
    decimal: tuple[int, int] | None = None


@dataclass(slots=True, eq=False, repr=False)
class Array:
    items: "AvroType"


@dataclass(slots=True, eq=False, repr=False)
class Map:
    values: "AvroType"


@dataclass(slots=True, eq=False, repr=False)
class Union:
    branches: tuple["AvroType", ...]


@dataclass(slots=True, eq=False, repr=False)
class Fixed:
    name: str
    aliases: tuple[str, ...]
    size: int
    logical: str | None = None
    decimal: tuple[int, int] | None = None


@dataclass(slots=True, eq=False, repr=False)
class Enumeration:
    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(slots=True, eq=False, repr=False)
class Field:
    name: str
    aliases: tuple[str, ...]
    type: "AvroType"
    default: Json = NO_DEFAULT


@dataclass(slots=True, eq=False, repr=False)
class Record:
    """`fields` are filled in after the name is known, so that they can mention it."""

    name: str
    aliases: tuple[str, ...]
    fields: list[Field] = field(default_factory=list)


Named: TypeAlias = Record | Enumeration | Fixed
AvroType: TypeAlias = Primitive | Array | Map | Union | Named


def label(node: AvroType) -> str:
    """How a text names a type."""
    match node:
        case Primitive(name=name, logical=None):
            return name
        case Primitive(name=name, logical=logical):
            return f"{name} ({logical})"
        case Record(name=name):
            return f"record {name}"
        case Enumeration(name=name):
            return f"enum {name}"
        case Fixed(name=name, size=size):
            return f"fixed {name} of {size} bytes"
        case Union():
            return "union"
        case Array():
            return "array"
        case Map():
            return "map"
