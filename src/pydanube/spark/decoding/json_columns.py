"""Columns for a JSON Schema, and how the values of a document become theirs.

A schema says what a document may be, not what it is: where it allows more than a column can have, the column holds JSON.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa

from pydanube.schemas.documents import Json, read_document
from pydanube.schemas.json_types import (
    ARRAY,
    BOOLEAN,
    EVERY_TYPE,
    INTEGER,
    NULL,
    NUMERIC,
    OBJECT,
    STRING,
    WHOLE,
    Home,
    Node,
)
from pydanube.spark.columns import TIME
from pydanube.spark.decoding.payloads import JSON_TEXT, BadPayload, Budget, column_names, misfit
from pydanube.spark.decoding.times import days_of_text, micros_of_text

Convert = Callable[[Any], object]
"""Takes a value of a document that is not null."""

_INT64: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Field:
    """A property and the column it fills."""

    key: str
    name: str
    shape: "Shape"


@dataclass(frozen=True, slots=True)
class Shape:
    """A column's type, and what makes values for it; `fields` if it is a struct."""

    type: pa.DataType
    convert: Convert
    is_direct: bool = False
    """Arrow makes the same of a value that was checked, or refuses it."""
    fields: tuple[Field, ...] = ()


@dataclass(slots=True)
class _Facts:
    """What all schemas of one place say together, as far as columns care."""

    types: frozenset[str] = EVERY_TYPE
    values: tuple[Json, ...] | None = None
    format: str | None = None
    properties: dict[str, tuple[Node, ...]] = field(default_factory=dict)
    additional: tuple[Node, ...] = ()
    items: tuple[Node, ...] = ()
    is_tuple: bool = False
    choices: list[tuple[Node, ...]] = field(default_factory=list)
    is_guess: bool = False
    """Nothing says that the place holds an object, but for the properties described."""
    members: frozenset[int] = frozenset()

    def settles(self, types: frozenset[str]) -> bool:
        """Whether the column is clear before any of the choices is looked at."""
        if types <= {OBJECT}:
            return bool(self.properties or self.additional)
        return bool(self.items) if types <= {ARRAY} else types != EVERY_TYPE - {NULL}


def lay_out(text: bytes, references: Mapping[str, bytes], root: Node) -> Shape:
    """The shape of a whole document; `root` is the schema of the text."""
    texts = {**references, "": text}
    return _Layout({name: read_document(each) for name, each in texts.items()}).shape(
        (root,), frozenset(), at_top=True
    )


class _Layout:
    def __init__(self, documents: Mapping[str, Json]) -> None:
        self._documents = documents
        self._budget = Budget()

    def shape(self, nodes: tuple[Node, ...], above: frozenset[int], *, at_top: bool = False) -> Shape:
        self._budget.spend()
        facts = self._facts(nodes)
        if facts.members & above:
            return TEXT_OF_JSON  # a type inside itself has no end
        above |= facts.members
        if facts.types == EVERY_TYPE and facts.properties:
            facts.types, facts.is_guess = frozenset({OBJECT}), True
        types = facts.types - {NULL}
        if facts.choices and not facts.settles(types):
            return self._chosen(facts, above, at_top=at_top)
        if facts.values is not None:
            types &= frozenset(map(_type_of, facts.values))
        if not types:
            return TEXT_OF_JSON
        if types <= {STRING}:
            return _FORMATS.get(facts.format or "", _STRING)
        if types <= {BOOLEAN}:
            return _BOOLEAN
        if types <= WHOLE:
            return _INTEGER
        if types <= NUMERIC:
            return _NUMBER
        if types <= {OBJECT}:
            return self._object(facts, above, at_top=at_top)
        if types <= {ARRAY} and facts.items and not facts.is_tuple:
            return _list_of(self.shape(facts.items, above))
        return TEXT_OF_JSON

    def _object(self, facts: _Facts, above: frozenset[int], *, at_top: bool) -> Shape:
        if facts.properties:
            shapes = {key: self.shape(nodes, above) for key, nodes in facts.properties.items()}
            names = column_names(shapes, at_top=at_top)
            fields = [
                Field(key, name, shape) for name, (key, shape) in zip(names, shapes.items(), strict=True)
            ]
            return _struct_of(tuple(fields), is_guess=facts.is_guess)
        if facts.additional:
            return _map_of(self.shape(facts.additional, above))
        return TEXT_OF_JSON

    def _chosen(self, facts: _Facts, above: frozenset[int], *, at_top: bool) -> Shape:
        """The column all branches agree on, JSON if they do not."""
        branches = {
            id(node): node
            for choice in facts.choices
            for node in choice
            if not self._facts((node,)).types <= {NULL}
        }
        shapes = [self.shape((node,), above, at_top=at_top) for node in branches.values()]
        if len(shapes) == 1:
            return shapes[0]
        distinct = {(shape.type, shape.convert) for shape in shapes}
        if distinct == {(_INTEGER.type, _INTEGER.convert), (_NUMBER.type, _NUMBER.convert)}:
            return _NUMBER
        return shapes[0] if len(distinct) == 1 else TEXT_OF_JSON

    def _facts(self, nodes: Iterable[Node]) -> _Facts:
        facts = _Facts()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop(0)
            if id(node) in facts.members:
                continue
            facts.members |= {id(node)}
            facts.types &= frozenset() if node.never else node.types
            facts.values = node.values if facts.values is None else facts.values
            facts.format = facts.format or self._format(node.home)
            for key, schema in node.properties.items():
                facts.properties[key] = (*facts.properties.get(key, ()), schema)
            if node.additional is not None and not node.additional.never and not node.patterns:
                facts.additional += (node.additional,)
            if node.rest is not None and not node.rest.never:
                facts.items += (node.rest,)
            facts.is_tuple |= bool(node.prefix)
            facts.choices += [branches for branches in (node.any_of, node.one_of) if branches]
            waiting += node.all_of
        return facts

    def _format(self, home: Home | None) -> str | None:
        """The annotation, which nodes do not carry: it constrains nothing."""
        value = None if home is None else self._documents.get(home.document)
        if home is None or value is None:
            return None
        for part in home.pointer.split("/")[1:]:
            key: Any = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key) if isinstance(value, list) else key]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        named = value.get("format") if isinstance(value, dict) else None
        return named if isinstance(named, str) else None


def _type_of(value: Json) -> str:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case str():
            return STRING
        case int():
            return INTEGER
        case float():
            return "number"
        case list():
            return ARRAY
        case _:
            return OBJECT


def _struct_of(fields: tuple[Field, ...], *, is_guess: bool) -> Shape:
    type_ = pa.struct([(each.name, each.shape.type) for each in fields])
    plan = tuple((each.key, each.name, each.shape.convert) for each in fields)
    is_direct = not is_guess and all(each.shape.is_direct and each.key == each.name for each in fields)

    def convert(value: Any) -> object:
        if not isinstance(value, dict):
            raise misfit(type_)
        row = {}
        key = ""
        try:
            for key, name, inner in plan:
                item = value.get(key)
                if item is not None:
                    row[name] = inner(item)
        except BadPayload as bad:
            bad.where.append(f".{key}")
            raise
        return row

    return Shape(type_, convert, is_direct, fields)


def _list_of(items: Shape) -> Shape:
    type_ = pa.list_(items.type)

    def convert(value: Any) -> object:
        if not isinstance(value, list):
            raise misfit(type_)
        inner = items.convert
        try:
            return [None if item is None else inner(item) for item in value]
        except BadPayload as bad:
            bad.where.append("[]")
            raise

    return Shape(type_, convert, items.is_direct)


def _map_of(values: Shape) -> Shape:
    type_ = pa.map_(pa.string(), values.type)

    def convert(value: Any) -> object:
        if not isinstance(value, dict):
            raise misfit(type_)
        inner = values.convert
        try:
            return [(key, None if item is None else inner(item)) for key, item in value.items()]
        except BadPayload as bad:
            bad.where.append("{}")
            raise

    return Shape(type_, convert, values.is_direct)


def _text(value: Any) -> object:
    if type(value) is str:
        return value
    raise misfit(pa.string())


def _boolean(value: Any) -> object:
    if type(value) is bool:
        return value
    raise misfit(pa.bool_())


def _whole(value: Any) -> object:
    if type(value) is float and value.is_integer():
        value = int(value)  # 1.0 is an integer, but for draft 4
    if type(value) is int and value in _INT64:
        return value
    raise misfit(pa.int64())


def _double(value: Any) -> object:
    try:
        if type(value) is float or type(value) is int:
            return float(value)
    except OverflowError:
        pass
    raise misfit(pa.float64())


def _time(value: Any) -> object:
    if type(value) is str:
        return micros_of_text(value)
    raise misfit(TIME)


def _date(value: Any) -> object:
    if type(value) is str:
        return days_of_text(value)
    raise misfit(pa.date32())


def _json(value: Any) -> object:
    return msgspec.json.encode(value).decode()


TEXT_OF_JSON: Final = Shape(JSON_TEXT, _json)
_STRING: Final = Shape(pa.string(), _text, is_direct=True)
_BOOLEAN: Final = Shape(pa.bool_(), _boolean, is_direct=True)
_INTEGER: Final = Shape(pa.int64(), _whole, is_direct=True)
_NUMBER: Final = Shape(pa.float64(), _double, is_direct=True)
_FORMATS: Final = {"date-time": Shape(TIME, _time), "date": Shape(pa.date32(), _date)}
