"""Avro schema declarations (specification 1.12) as resolved types; everything the grammar forbids is refused."""

import re
from collections.abc import Mapping

from pydanube.schemas.avro_defaults import DefaultCheck
from pydanube.schemas.avro_types import (
    NO_DEFAULT,
    PRIMITIVES,
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
)
from pydanube.schemas.documents import Json
from pydanube.schemas.limits import refuse

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
LOGICAL_TYPES = {
    "decimal": {"bytes", "fixed"},
    "big-decimal": {"bytes"},
    "uuid": {"string", "fixed"},
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-nanos": {"long"},
    "duration": {"fixed"},
}
FIXED_SIZES = {"uuid": 16, "duration": 12}


def parse_types(document: Json, references: Mapping[str, Json]) -> AvroType:
    """The type a document declares; names it does not declare are looked up in `references`."""
    parser = _Parser(references)
    root = parser.type_of(document, namespace="", where="")
    parser.check_defaults()
    return root


class _Parser:
    def __init__(self, references: Mapping[str, Json]) -> None:
        self._references = references
        self._opened: set[str] = set()
        self._named: dict[str, Named] = {}
        self._defaults: list[tuple[str, Field]] = []

    def type_of(self, node: Json, *, namespace: str, where: str) -> AvroType:
        """The type of a declaration inside `namespace`; `where` is the path for texts."""
        if isinstance(node, str):
            return self._by_name(node, namespace, where)
        if isinstance(node, list):
            return self._union(node, namespace, where)
        if not isinstance(node, dict):
            raise refuse(f"{_place(where)} is {node!r}: a type is a name, a list or an object")
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.type_of(kind, namespace=namespace, where=where)
        match kind:
            case "record" | "error":
                return self._record(node, namespace, where)
            case "enum":
                return self._enum(node, namespace, where)
            case "fixed":
                return self._fixed(node, namespace, where)
            case "array":
                return Array(self._inner(node, "items", namespace, f"{where}[]"))
            case "map":
                return Map(self._inner(node, "values", namespace, f"{where}{{}}"))
            case str() if kind in PRIMITIVES:
                return Primitive(kind, *_logical(node, kind, 0))
            case str():
                return self._by_name(kind, namespace, where)
            case _:
                raise refuse(f"{_place(where)} lacks 'type'")

    def check_defaults(self) -> None:
        """Refuse defaults that are no values of their type; only now is every record complete."""
        check = DefaultCheck()
        for where, field in self._defaults:
            problem = check.problem(field.type, field.default)
            if problem:
                raise refuse(f"the default of {_place(where)} does not fit its type: {problem}")

    def _inner(self, node: dict[str, Json], key: str, namespace: str, where: str) -> AvroType:
        if key not in node:
            raise refuse(f"{_place(where)} lacks '{key}'")
        return self.type_of(node[key], namespace=namespace, where=where)

    def _by_name(self, name: str, namespace: str, where: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        for candidate in dict.fromkeys((_full_name(name, namespace), name)):
            if candidate in self._named:
                return self._named[candidate]
            if candidate in self._references and candidate not in self._opened:
                self._opened.add(candidate)
                self.type_of(self._references[candidate], namespace="", where=f"reference {candidate}")
                if candidate in self._named:
                    return self._named[candidate]
                raise refuse(f"the reference {candidate!r} declares another name than its own")
        raise refuse(
            f"{_place(where)} has the unknown type {name[:64]!r}: declare it or give it as a reference"
        )

    def _union(self, node: list[Json], namespace: str, where: str) -> Union:
        branches = tuple(self.type_of(branch, namespace=namespace, where=where) for branch in node)
        seen = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise refuse(f"{_place(where)} is a union directly inside a union")
            key = branch.name if not isinstance(branch, Array | Map) else type(branch).__name__
            if key in seen:
                raise refuse(f"{_place(where)} is a union with {key} twice")
            seen.add(key)
        return Union(branches)

    def _record(self, node: dict[str, Json], namespace: str, where: str) -> Record:
        name, aliases, namespace = self._declared(node, namespace, where)
        record = Record(name, aliases)
        self._named[name] = record
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise refuse(f"record {name} lacks a list of 'fields'")
        seen = set()
        for declared in fields:
            if not isinstance(declared, dict):
                raise refuse(f"record {name} has a field that is not an object")
            field = self._field(declared, name, namespace, where)
            if field.name in seen:
                raise refuse(f"record {name} has the field {field.name!r} twice")
            seen.add(field.name)
            record.fields.append(field)
        return record

    def _field(self, node: dict[str, Json], record: str, namespace: str, where: str) -> Field:
        name = node.get("name")
        if not isinstance(name, str) or not NAME.match(name):
            raise refuse(f"record {record} has a field named {name!r}: letters, digits and _ only")
        path = f"{where}.{name}" if where else name
        if "type" not in node:
            raise refuse(f"{_place(path)} lacks 'type'")
        aliases = _strings(node, "aliases", path)
        default = node.get("default", NO_DEFAULT)
        field = Field(name, aliases, self.type_of(node["type"], namespace=namespace, where=path), default)
        if default is not NO_DEFAULT:
            self._defaults.append((path, field))
        return field

    def _enum(self, node: dict[str, Json], namespace: str, where: str) -> Enumeration:
        name, aliases, _ = self._declared(node, namespace, where)
        symbols = _strings(node, "symbols", f"enum {name}")
        if not isinstance(node.get("symbols"), list):
            raise refuse(f"enum {name} lacks a list of 'symbols'")
        for symbol in symbols:
            if not NAME.match(symbol):
                raise refuse(f"enum {name} has the symbol {symbol[:64]!r}: letters, digits and _ only")
        if len(set(symbols)) != len(symbols):
            raise refuse(f"enum {name} has a symbol twice")
        default = node.get("default")
        if default is not None and default not in symbols:
            raise refuse(f"enum {name} has the default {default!r}, which is not one of its symbols")
        enumeration = Enumeration(name, aliases, symbols, default)
        self._named[name] = enumeration
        return enumeration

    def _fixed(self, node: dict[str, Json], namespace: str, where: str) -> Fixed:
        name, aliases, _ = self._declared(node, namespace, where)
        size = node.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise refuse(f"fixed {name} has the size {size!r}: a number of bytes below 2^31")
        fixed = Fixed(name, aliases, size, *_logical(node, "fixed", size))
        self._named[name] = fixed
        return fixed

    def _declared(
        self, node: dict[str, Json], namespace: str, where: str
    ) -> tuple[str, tuple[str, ...], str]:
        """Full name, full aliases and the namespace inside the declaration."""
        name = node.get("name")
        space = node.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            raise refuse(f"{_place(where)} lacks a 'name', or its 'namespace' is no text")
        full = _full_name(name, space)
        if not all(NAME.match(part) for part in full.split(".")):
            raise refuse(
                f"{_place(where)} is named {full[:128]!r}: letters, digits and _ only, parted by dots"
            )
        if full in PRIMITIVES or full in self._named:
            raise refuse(f"the name {full!r} is declared twice")
        inside = full.rpartition(".")[0]
        return full, tuple(_full_name(alias, inside) for alias in _strings(node, "aliases", full)), inside


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _place(where: str) -> str:
    return f"'{where}'" if where else "the schema"


def _strings(node: dict[str, Json], key: str, where: str) -> tuple[str, ...]:
    values = node.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise refuse(f"'{key}' of {where} is not a list of names")
    return tuple(values)


def _logical(node: dict[str, Json], kind: str, size: int) -> tuple[str | None, tuple[int, int] | None]:
    """The logical type, or nothing when it is unknown or cannot apply: such a type is to be ignored."""
    logical = node.get("logicalType")
    if not isinstance(logical, str) or kind not in LOGICAL_TYPES.get(logical, ()):
        return None, None
    if kind == "fixed" and size != FIXED_SIZES.get(logical, size):
        return None, None
    if logical != "decimal":
        return logical, None
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision == 0:
        return None, None
    return logical, (precision, scale)
