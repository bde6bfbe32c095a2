"""Columns for an Avro schema."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pydanube.schemas.avro_types import Array, AvroType, Enumeration, Fixed, Map, Primitive, Record, Union
from pydanube.schemas.avro_types import Field as AvroField
from pydanube.spark.columns import TIME
from pydanube.spark.decoding.payloads import JSON_TEXT, Budget, column_names

LOCAL_TIME: Final = pa.timestamp("us")
DECIMAL_DIGITS_MAX: Final = 38
"""Of Spark's decimals; longer ones are text."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record and the column it fills."""

    declared: AvroField
    name: str
    column: "Column"


@dataclass(frozen=True, slots=True)
class Column:
    """The column of an Avro type: null is left out of it, since every column may be null."""

    type: pa.DataType
    node: AvroType
    is_json: bool = False
    fields: tuple[Field, ...] = ()
    inner: "Column | None" = None
    """Of arrays and maps."""


def lay_out(root: AvroType) -> Column:
    """The column of a whole datum."""
    return _Layout().column(root, frozenset(), at_top=True)


class _Layout:
    def __init__(self) -> None:
        self._budget = Budget()

    def column(self, node: AvroType, above: frozenset[int], *, at_top: bool = False) -> Column:
        self._budget.spend()
        match node:
            case Union(branches=branches):
                some = [branch for branch in branches if not _is_null(branch)]
                return self.column(some[0], above, at_top=at_top) if len(some) == 1 else _as_json(node)
            case Array(items=items):
                inner = self.column(items, above)
                return Column(pa.list_(inner.type), node, inner=inner)
            case Map(values=values):
                inner = self.column(values, above)
                return Column(pa.map_(pa.string(), inner.type), node, inner=inner)
            case Record(fields=fields):
                if id(node) in above or not fields:
                    return _as_json(node)
                return self._struct(node, above | {id(node)}, at_top=at_top)
            case Enumeration():
                return Column(pa.string(), node)
            case Fixed():
                return Column(_logical_type(node) or pa.binary(), node)
            case Primitive(name="null"):
                return _as_json(node)
            case Primitive(name=name):
                return Column(_logical_type(node) or _PRIMITIVES[name], node)

    def _struct(self, node: Record, above: frozenset[int], *, at_top: bool) -> Column:
        names = column_names((field.name for field in node.fields), at_top=at_top)
        fields = tuple(
            Field(field, name, self.column(field.type, above))
            for field, name in zip(node.fields, names, strict=True)
        )
        return Column(pa.struct([(each.name, each.column.type) for each in fields]), node, fields=fields)


def _is_null(node: AvroType) -> bool:
    return isinstance(node, Primitive) and node.name == "null"


def _as_json(node: AvroType) -> Column:
    return Column(JSON_TEXT, node, is_json=True)


def _logical_type(node: Primitive | Fixed) -> pa.DataType | None:
    """None where the count or the bytes stay what they are: times of day, nanoseconds, durations."""
    match node.logical:
        case "decimal" if node.decimal is not None:
            precision, scale = node.decimal
            return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else pa.string()
        case "uuid":
            return pa.string()
        case "date":
            return pa.date32()
        case "timestamp-millis" | "timestamp-micros":
            return TIME
        case "local-timestamp-millis" | "local-timestamp-micros":
            return LOCAL_TIME
        case _:
            return None


_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
