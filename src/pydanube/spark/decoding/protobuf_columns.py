"""Columns for a Protobuf message."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pydanube.spark.columns import TIME
from pydanube.spark.decoding.payloads import JSON_TEXT, Budget, column_names

TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages around one value, there to be absent."""
_JSON_FORMS: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Duration", "FieldMask")
)
"""Messages that have a form of their own in JSON."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message, known by its number, and the column it fills."""

    number: int
    name: str
    column: "Column"


@dataclass(frozen=True, slots=True)
class Column:
    type: pa.DataType
    is_json: bool = False
    fields: tuple[Field, ...] = ()
    inner: "Column | None" = None
    """Of repeated fields; the values of maps."""
    key: "Column | None" = None
    """Of maps."""


def lay_out(message: Descriptor) -> Column:
    return _Layout().message(message, frozenset(), at_top=True)


class _Layout:
    def __init__(self) -> None:
        self._budget = Budget()

    def message(self, message: Descriptor, above: frozenset[str], *, at_top: bool = False) -> Column:
        name = message.full_name
        if name == TIMESTAMP and not at_top:
            return Column(TIME)
        if name in WRAPPERS and not at_top:
            return self._single(message.fields[0], above)
        if name in above or name in _JSON_FORMS or not message.fields:
            return Column(JSON_TEXT, is_json=True)  # a type inside itself has no end
        names = column_names((field.name for field in message.fields), at_top=at_top)
        fields = tuple(
            Field(field.number, name, self._field(field, above | {message.full_name}))
            for field, name in zip(message.fields, names, strict=True)
        )
        return Column(pa.struct([(each.name, each.column.type) for each in fields]), fields=fields)

    def _field(self, field: FieldDescriptor, above: frozenset[str]) -> Column:
        self._budget.spend()
        entry = map_entry(field)
        if entry is not None:
            key, value = (self._single(each, above) for each in entry.fields)
            return Column(pa.map_(key.type, value.type), inner=value, key=key)
        one = self._single(field, above)
        return Column(pa.list_(one.type), inner=one) if field.is_repeated else one

    def _single(self, field: FieldDescriptor, above: frozenset[str]) -> Column:
        if field.message_type is not None:
            return self.message(field.message_type, above)
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        return Column(pa.binary() if is_bytes else _SCALARS[field.cpp_type])


def map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The message of key and value, if the field is a map."""
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
