"""Avro data as rows: one pass over the bytes, from the writer's types straight into the columns of the table.

Resolution is Avro's own: fields by name, then by the table's aliases; promotions; defaults for what the writer did not
have. It is kinder in three places, since every column may be null: a null is read wherever it is written, a field
that nobody wrote and that has no default is null, and names of records need not agree.

Why not a ready-made decoder: those follow hostile bytes wherever they lead, so each datum would have to be walked first,
and walking costs as much as reading.
"""

from typing import Any, TypeAlias

import pyarrow as pa

from pydanube.schemas.avro_container import MAGIC
from pydanube.schemas.avro_datum import BadDatum, Walk, compile_walk
from pydanube.schemas.avro_schema import AvroSchema
from pydanube.schemas.avro_types import Array, AvroType, Map, Primitive, Record, Union, label
from pydanube.schemas.avro_types import Field as AvroField
from pydanube.schemas.format import ParsedSchema
from pydanube.spark.decoding.avro_columns import Column, lay_out
from pydanube.spark.decoding.avro_scalars import Cursor, Read, Unreadable, conversion, read_null, read_scalar
from pydanube.spark.decoding.avro_values import (
    default_value,
    read_as_json,
    read_blocks,
    read_entry,
    read_union,
)
from pydanube.spark.decoding.payloads import VALUE_COLUMN, BadPayload, DecodeRow, Row

_Template: TypeAlias = dict[Any, Any] | list[Any]


class AvroTable:
    def __init__(self, schema: AvroSchema) -> None:
        self._column = lay_out(schema.root)
        fields = self._column.fields
        self.columns = (
            pa.schema([(each.name, each.column.type) for each in fields])
            if fields
            else pa.schema([(VALUE_COLUMN, self._column.type)])
        )

    def decoder(self, written: ParsedSchema, *, is_exact: bool = False) -> DecodeRow:
        assert isinstance(written, AvroSchema), "one subject has one format"
        read = _row_of(written.root, self._column)
        nothing = [None] * len(self.columns)

        def decode(payload: bytes) -> Row:
            cursor = Cursor(len(payload))
            try:
                row: Row | None = read(payload, cursor)
                if cursor.at != len(payload):
                    raise BadPayload(f"{len(payload) - cursor.at} bytes are left after the datum")
            except (BadPayload, BadDatum) as bad:
                raise _explained(payload, bad) from None
            except IndexError:
                raise _explained(payload, BadPayload("the payload ends inside the datum")) from None
            return nothing if row is None else row

        return decode


def _explained(payload: bytes, bad: BadPayload | BadDatum) -> BadPayload:
    # The magic is a legal beginning of a bare datum too, so only what is none is looked at.
    if payload.startswith(MAGIC):
        return BadPayload("an Avro container file: a row is made of one bare datum")
    return bad if isinstance(bad, BadPayload) else BadPayload(bad.explained())


def _row_of(written: AvroType, column: Column) -> Read:
    """A datum as a list of column values."""
    if not column.fields:
        value = read_into(written, column)
        return lambda data, cursor: (value(data, cursor),)
    match written:
        case Record():
            return _read_record(written, column, in_list=True)
        case Union(branches=branches):
            return read_union([_row_of(branch, column) for branch in branches])
        case _:
            return read_into(written, column)


def read_into(written: AvroType, column: Column) -> Read:
    """Reads what was written as one type and gives a value of the column; what can be none fails when it is met."""
    if column.is_json:
        return read_as_json(written)
    match written:
        case Primitive(name="null"):
            return read_null
        case Union(branches=branches):
            return read_union([read_into(branch, column) for branch in branches])
        case Record() if column.fields:
            return _read_record(written, column, in_list=False)
        case Array(items=items) if column.inner is not None and isinstance(column.node, Array):
            return read_blocks(read_into(items, column.inner))
        case Map(values=values) if column.inner is not None and isinstance(column.node, Map):
            return _unique(read_blocks(read_entry(read_into(values, column.inner))))
        case Record() | Array() | Map():
            return _fail(Unreadable(label(written), column))
        case _:
            if column.fields or column.inner is not None:
                return _fail(Unreadable(label(written), column))
            try:
                convert = conversion(written, column)
            except Unreadable as unreadable:
                return _fail(unreadable)
            read = read_scalar(written)
            return read if convert is None else lambda data, cursor: convert(read(data, cursor))


def _read_record(written: Record, column: Column, *, in_list: bool) -> Read:
    """As a list of all fields, or as a mapping: what Arrow takes for the top and for what is inside."""
    keys: dict[str, int | str] = {}
    template: _Template = [None] * len(column.fields) if in_list else {}
    reads: dict[str, Read] = {}
    names = {field.name for field in written.fields}
    for index, each in enumerate(column.fields):
        key: int | str = index if in_list else each.name
        source = _source(each.declared, names)
        if source is None:
            template[key] = default_value(each.column, each.declared.default)  # type: ignore[index]
        else:
            keys[source] = key
            reads[source] = read_into(_field(written, source).type, each.column)
    steps = [
        (field.name, keys.get(field.name), reads.get(field.name) or _skip(compile_walk(field.type)))
        for field in written.fields
    ]

    def read(data: bytes, cursor: Cursor) -> Any:
        cursor.enter(len(steps))
        row: Any = template.copy()
        name = ""
        try:
            for name, key, field in steps:  # noqa: B007  (the texts below name it)
                if key is None:
                    field(data, cursor)
                else:
                    row[key] = field(data, cursor)
        except BadPayload as bad:
            bad.where.append(f".{name}")
            raise
        except BadDatum as bad:
            raise _within(BadPayload(bad.explained()), name) from None
        except IndexError:
            raise _within(BadPayload("the payload ends inside this field"), name) from None
        cursor.depth -= 1
        return row

    return read


def _within(bad: BadPayload, name: str) -> BadPayload:
    bad.where.append(f".{name}")
    return bad


def _source(wanted: AvroField, written: set[str]) -> str | None:
    """The writer's field for one of the table: by its name, then by what it was called before."""
    return next((name for name in (wanted.name, *wanted.aliases) if name in written), None)


def _field(record: Record, name: str) -> AvroField:
    return next(field for field in record.fields if field.name == name)


def _skip(walk: Walk) -> Read:
    def skip(data: bytes, cursor: Cursor) -> Any:
        cursor.at = walk(data, cursor.at, cursor)

    return skip


def _unique(entries: Read) -> Read:
    """A hostile payload may hold a key twice; the last one counts, as in every decoder that makes a mapping."""
    return lambda data, cursor: list(dict(entries(data, cursor)).items())


def _fail(unreadable: Unreadable) -> Read:
    def fail(data: bytes, cursor: Cursor) -> Any:
        raise BadPayload(str(unreadable))

    return fail
