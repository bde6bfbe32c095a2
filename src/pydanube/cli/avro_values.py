"""One Avro datum as JSON knows it. The payload was checked before: it is whole, and bounded in depth and items."""

import base64
import struct
from collections.abc import Callable
from typing import Any

from pydanube.schemas.avro_container import MAGIC
from pydanube.schemas.avro_datum import read_long
from pydanube.schemas.avro_schema import AvroSchema
from pydanube.schemas.avro_types import Array, AvroType, Enumeration, Fixed, Map, Primitive, Record, Union
from pydanube.schemas.format import ParsedSchema


def avro_value(schema: ParsedSchema, payload: bytes) -> Any:
    """The datum; None for a container file, which may hold many."""
    assert isinstance(schema, AvroSchema), "the kind says so"
    try:
        value, end = _read(schema.root, payload, 0)
    except (IndexError, ValueError, struct.error):
        # A container whose magic is no datum of this schema.
        assert payload.startswith(MAGIC), "a bare datum was walked over before"
        return None
    return value if end == len(payload) else None


def _read(node: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    match node:
        case Record():
            record = {}
            for each in node.fields:
                record[each.name], at = _read(each.type, data, at)
            return record, at
        case Union():
            branch, at = read_long(data, at)
            return _read(node.branches[branch], data, at)
        case Array():
            return _read_blocks(lambda place: _read(node.items, data, place), data, at)
        case Map():
            entries, at = _read_blocks(lambda place: _read_entry(node.values, data, place), data, at)
            return dict(entries), at
        case Enumeration():
            index, at = read_long(data, at)
            return node.symbols[index], at
        case Fixed():
            return _bytes_text(data[at : at + node.size]), at + node.size
        case Primitive():
            return _read_primitive(node.name, data, at)


def _read_blocks(read_item: Callable[[int], tuple[Any, int]], data: bytes, at: int) -> tuple[list[Any], int]:
    """Items in counted blocks, until an empty one."""
    found: list[Any] = []
    while True:
        count, at = read_long(data, at)
        if count == 0:
            return found, at
        if count < 0:
            # The size in bytes follows, for readers that skip.
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            value, at = read_item(at)
            found.append(value)


def _read_entry(values: AvroType, data: bytes, at: int) -> tuple[tuple[str, Any], int]:
    name, at = _read_primitive("string", data, at)
    value, at = _read(values, data, at)
    return (name, value), at


def _read_primitive(name: str, data: bytes, at: int) -> tuple[Any, int]:
    match name:
        case "null":
            return None, at
        case "boolean":
            return data[at] != 0, at + 1
        case "int" | "long":
            return read_long(data, at)
        case "float":
            return struct.unpack_from("<f", data, at)[0], at + 4
        case "double":
            return struct.unpack_from("<d", data, at)[0], at + 8
        case _:
            size, at = read_long(data, at)
            raw = data[at : at + size]
            return raw.decode() if name == "string" else _bytes_text(raw), at + size


def _bytes_text(raw: bytes) -> str:
    """JSON has no bytes: text if they are, else base64."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode()
