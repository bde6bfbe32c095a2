"""Avro values as JSON, for columns that hold JSON, and defaults as values of their column."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from pydanube.schemas.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)
from pydanube.spark.decoding.avro_columns import Column
from pydanube.spark.decoding.avro_scalars import Cursor, Read, conversion, read_count, read_scalar, read_text
from pydanube.spark.decoding.payloads import BadPayload
from pydanube.spark.decoding.times import days, micros

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def default_value(column: Column, value: Any) -> object:
    """What a column holds if nobody wrote the field; nothing without a default."""
    if value is None or value is NO_DEFAULT:
        return None
    if column.is_json:
        return json_text(value)
    if column.fields:
        return {
            each.name: default_value(each.column, value.get(each.declared.name, each.declared.default))
            for each in column.fields
        }
    if column.inner is not None:
        inner = column.inner
        if isinstance(value, dict):
            return [(key, default_value(inner, item)) for key, item in value.items()]
        return [default_value(inner, item) for item in value]
    return _scalar_default(column, value)


def _scalar_default(column: Column, value: Any) -> object:
    node = column.node
    assert isinstance(node, Primitive | Fixed | Enumeration), "others have columns inside"
    if isinstance(node, Fixed) or node.name == "bytes":
        value = value.encode("latin-1")
    elif node.name in ("float", "double"):
        value = float(value)
    convert = conversion(node, column)
    return value if convert is None else convert(value)


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def read_as_json(node: AvroType) -> Read:
    """Reads any value as JSON text: records as objects, branches of unions without their name, bytes as base64."""
    read = _Natural().read(node)

    def read_text_of(data: bytes, cursor: Cursor) -> Any:
        value = read(data, cursor)
        return None if value is None else json_text(value)

    return read_text_of


class _Natural:
    """Readers of values JSON can hold; a record may contain itself."""

    def __init__(self) -> None:
        self._records: dict[int, Read] = {}

    def read(self, node: AvroType) -> Read:
        match node:
            case Array(items=items):
                return read_blocks(self.read(items))
            case Map(values=values):
                return _as_dict(read_blocks(read_entry(self.read(values))))
            case Union(branches=branches):
                return read_union([self.read(branch) for branch in branches])
            case Record():
                return self._record(node)
            case _:
                return _spelled(node)

    def _record(self, node: Record) -> Read:
        known = self._records.get(id(node))
        if known is None:
            fields: list[tuple[str, Read]] = []

            def read(data: bytes, cursor: Cursor) -> Any:
                cursor.enter(len(fields))
                value = {name: field(data, cursor) for name, field in fields}
                cursor.depth -= 1
                return value

            known = self._records[id(node)] = read
            fields.extend((field.name, self.read(field.type)) for field in node.fields)
        return known


def read_blocks(item: Read) -> Read:
    """The items of an array or the entries of a map, in a list."""

    def read(data: bytes, cursor: Cursor) -> Any:
        items: list[Any] = []
        while True:
            count = read_count(data, cursor)
            if count == 0:
                return items
            if count < 0:
                # The size of the block in bytes is there for readers that skip it.
                count = -count
                cursor.expect(data, read_count(data, cursor))
            cursor.spend(count)
            try:
                for _ in range(count):
                    items.append(item(data, cursor))  # noqa: PERF401  (the text below counts them)
            except BadPayload as bad:
                bad.where.append(f"[{len(items)}]")
                raise

    return read


def read_entry(value: Read) -> Read:
    return lambda data, cursor: (read_text(data, cursor), value(data, cursor))


def read_union(branches: list[Read]) -> Read:
    def read(data: bytes, cursor: Cursor) -> Any:
        index = read_count(data, cursor)
        if 0 <= index < len(branches):
            return branches[index](data, cursor)
        raise BadPayload(f"branch {index} of a union with {len(branches)} is chosen before byte {cursor.at}")

    return read


def _as_dict(read: Read) -> Read:
    return lambda data, cursor: dict(read(data, cursor))


def _spelled(node: Primitive | Fixed | Enumeration) -> Read:
    read = read_scalar(node)
    spell = _spelling(node)
    if spell is None:
        return read
    return lambda data, cursor: spell(read(data, cursor))


def _spelling(node: Primitive | Fixed | Enumeration) -> Callable[[Any], object] | None:
    if isinstance(node, Enumeration):
        return None
    match node.logical:
        case "decimal" if node.decimal is not None:
            scale = node.decimal[1]
            return lambda data: format(Decimal(f"{int.from_bytes(data, 'big', signed=True)}E-{scale}"), "f")
        case "uuid" if isinstance(node, Fixed):
            return lambda data: str(UUID(bytes=data))
        case "date":
            return lambda count: date.fromordinal(date(1970, 1, 1).toordinal() + days(count))
        case "timestamp-millis":
            return lambda count: _EPOCH + timedelta(microseconds=micros(count * 1_000))
        case "timestamp-micros":
            return lambda count: _EPOCH + timedelta(microseconds=micros(count))
        case _:
            return None
