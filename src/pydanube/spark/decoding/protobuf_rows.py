"""Protobuf messages as rows: parsed as their own version says, then taken field by field into the table's columns.

Fields are known by their numbers, so a renamed one stays in its column. What the writer's version does not declare is
null, and so is a field that knows its own presence and is absent; other fields have their default, as everywhere.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.protobuf_schema import ProtobufSchema
from pydanube.spark.columns import TIME
from pydanube.spark.decoding.payloads import VALUE_COLUMN, BadPayload, DecodeRow, Row, spelled
from pydanube.spark.decoding.protobuf_columns import TIMESTAMP, WRAPPERS, Column, Field, lay_out, map_entry
from pydanube.spark.decoding.times import micros

Get: TypeAlias = Callable[[Any], object]
"""Takes a column's value out of a message."""

Convert: TypeAlias = Callable[[Any], object]
"""Makes a column's value of one value of a field."""


class ProtobufTable:
    def __init__(self, schema: ProtobufSchema) -> None:
        self._column = lay_out(schema.message)
        fields = self._column.fields
        self.columns = (
            pa.schema([(each.name, each.column.type) for each in fields])
            if fields
            else pa.schema([(VALUE_COLUMN, self._column.type)])
        )

    def decoder(self, written: ParsedSchema, *, is_exact: bool = False) -> DecodeRow:
        assert isinstance(written, ProtobufSchema), "one subject has one format"
        check = written.check_payload
        parse = GetMessageClass(written.message).FromString
        values = _values(written.message, self._column.fields)
        convert = None if self._column.fields else _conversion(written.message, self._column)

        def decode(payload: bytes) -> Row:
            problem = check(payload)
            if problem is not None:
                raise BadPayload(problem)
            message = parse(payload)
            return values(message) if convert is None else (convert(message),)

        return decode


def _values(message: Descriptor, fields: tuple[Field, ...]) -> Callable[[Any], list[object]]:
    """Takes the values of all these fields, null for those the message's version does not have."""
    declared = message.fields_by_number
    gets = [
        (declared[each.number].name if each.number in declared else "", _get(message, each))
        for each in fields
    ]

    def values(message: Any) -> list[object]:
        taken: list[object] = []
        name = ""
        try:
            for name, get in gets:  # noqa: B007  (the text below names it)
                taken.append(get(message))
        except BadPayload as bad:
            bad.where.append(f".{name}")
            raise
        return taken

    return values


def _get(message: Descriptor, wanted: Field) -> Get:
    field = message.fields_by_number.get(wanted.number)
    if field is None:
        return lambda message: None
    get = _value(field, wanted.column)
    if field.has_presence and not field.has_default_value:
        name = field.name
        return lambda message: get(message) if message.HasField(name) else None
    return get


def _value(field: FieldDescriptor, column: Column) -> Get:
    """A field's value, if it is there."""
    entry = map_entry(field)
    try:
        if entry is not None and column.key is not None and column.inner is not None:
            return _entries(field, entry, column.key, column.inner)
        if field.is_repeated and entry is None and column.inner is not None and column.key is None:
            return _items(field, column.inner)
        if field.is_repeated or column.inner is not None:
            raise _Unfit(field, column)
        value, convert = attrgetter(field.name), _single(field, column)
        return value if convert is None else lambda message: convert(value(message))
    except _Unfit as unfit:
        return _refuse_set(field.name, str(unfit))


def _items(field: FieldDescriptor, column: Column) -> Get:
    values, convert = attrgetter(field.name), _single(field, column)
    if convert is None:
        return lambda message: list(values(message))
    return lambda message: [convert(value) for value in values(message)]


def _entries(field: FieldDescriptor, entry: Descriptor, key_column: Column, value_column: Column) -> Get:
    name, (keys, values) = field.name, entry.fields
    as_key = _single(keys, key_column) or _same
    as_value = _single(values, value_column) or _same
    return lambda message: [(as_key(key), as_value(value)) for key, value in getattr(message, name).items()]


def _same(value: object) -> object:
    return value


def _single(field: FieldDescriptor, column: Column) -> Convert | None:
    """For one value of a field; None if it can stay as it is, _Unfit if there is no way."""
    if field.message_type is not None:
        return _conversion(field.message_type, column)
    if field.enum_type is not None and column.type == pa.string():
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number) or str(number)
    if field.type == FieldDescriptor.TYPE_BYTES:
        if column.type != pa.binary():
            raise _Unfit(field, column)
        return None
    if column.is_json or field.cpp_type not in _HOLDS.get(column.type, ()):
        raise _Unfit(field, column)
    return float if pa.types.is_floating(column.type) and field.cpp_type in _WHOLE else None


def _conversion(message: Descriptor, column: Column) -> Convert:
    """For a whole message."""
    if column.is_json:
        return _json
    if column.fields:
        names = [each.name for each in column.fields]
        values = _values(message, column.fields)
        return lambda message: dict(zip(names, values(message), strict=True))
    if message.full_name == TIMESTAMP and column.type == TIME:
        return lambda time: micros(time.seconds * 1_000_000 + time.nanos // 1_000)
    if message.full_name in WRAPPERS:
        return _value(message.fields[0], column)
    raise _Unfit(message, column)


def _json(message: Message) -> object:
    try:
        return MessageToJson(message, indent=None, preserving_proto_field_name=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadPayload(f"the message has no form in JSON: {type(error).__name__}") from None


def _refuse_set(name: str, text: str) -> Get:
    """A field whose values cannot be the column's is no harm while it is not set."""

    def refuse(message: Message) -> object:
        if getattr(message, name):
            raise BadPayload(text)
        return None

    return refuse


class _Unfit(Exception):
    """What the writer writes can be no value of the column."""

    def __init__(self, written: FieldDescriptor | Descriptor, column: Column) -> None:
        super().__init__(
            f"{written.full_name} was written, which does not fit a column of type {spelled(column.type)}"
        )


_WHOLE: Final = (
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT64,
)
_HOLDS: Final = {
    pa.bool_(): (FieldDescriptor.CPPTYPE_BOOL,),
    # A table may be of an older version than its messages. Values beyond it are found when the column is made.
    pa.int32(): _WHOLE,
    pa.int64(): _WHOLE,
    pa.decimal128(20, 0): _WHOLE,
    pa.float32(): (FieldDescriptor.CPPTYPE_FLOAT,),
    pa.float64(): (*_WHOLE, FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE),
    pa.string(): (FieldDescriptor.CPPTYPE_STRING,),
}
