"""Avro values that hold no others: read from bytes, and made into the values of a column."""

from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Any, Final, TypeAlias
from uuid import UUID

import pyarrow as pa

from pydanube.schemas.avro_datum import Work, read_long
from pydanube.schemas.avro_types import Enumeration, Fixed, Primitive, label
from pydanube.schemas.limits import PAYLOAD_DEPTH_MAX
from pydanube.spark.columns import TIME
from pydanube.spark.decoding.avro_columns import LOCAL_TIME, Column
from pydanube.spark.decoding.payloads import BadPayload, misfit, spelled
from pydanube.spark.decoding.times import days, micros


class Cursor(Work):
    """Where the reading of a payload is, and what it may still cost."""

    __slots__ = ("at",)

    def __init__(self, payload_bytes: int) -> None:
        super().__init__(payload_bytes)
        self.at = 0

    def enter(self, fields: int) -> None:
        """One record deeper; whoever reads it to its end takes the depth back."""
        self.depth += 1
        if self.depth > PAYLOAD_DEPTH_MAX:
            raise BadPayload(f"nested more than {PAYLOAD_DEPTH_MAX} records deep")
        self.steps -= fields
        if self.steps < 0:
            self.spend(0)

    def expect(self, data: bytes, size: int) -> None:
        """Refuse a length the payload does not have."""
        if size < 0:
            raise BadPayload(f"a length before byte {self.at} is negative")
        missing = self.at + size - len(data)
        if missing > 0:
            raise BadPayload(f"{missing} bytes are missing at the end")


Read: TypeAlias = Callable[[bytes, Cursor], Any]
"""Takes the next value off the payload; IndexError if there are no bytes left for it."""

Scalar: TypeAlias = Primitive | Fixed | Enumeration
Convert: TypeAlias = Callable[[Any], object]


class Unreadable(Exception):
    """What the writer writes can be no value of the column."""

    def __init__(self, written: str, column: Column) -> None:
        super().__init__(f"{written} was written, which does not fit a column of type {spelled(column.type)}")


_FLOAT: Final = Struct("<f").unpack_from
_DOUBLE: Final = Struct("<d").unpack_from


def read_null(data: bytes, cursor: Cursor) -> Any:
    return None


def read_boolean(data: bytes, cursor: Cursor) -> Any:
    value = data[cursor.at]
    if value > 1:
        raise BadPayload(f"byte {cursor.at} is {value}: a boolean is 0 or 1")
    cursor.at += 1
    return value == 1


def read_count(data: bytes, cursor: Cursor) -> Any:
    """A long, as lengths and indices are, too."""
    at = cursor.at
    value = data[at]
    if value < 0x80:
        cursor.at = at + 1
        return (value >> 1) ^ -(value & 1)
    value, cursor.at = read_long(data, at)
    return value


def read_int(data: bytes, cursor: Cursor) -> Any:
    value = read_count(data, cursor)
    if -(1 << 31) <= value < 1 << 31:
        return value
    raise BadPayload(f"the integer before byte {cursor.at} does not fit 32 bits")


def read_float(data: bytes, cursor: Cursor) -> Any:
    at = _take(data, cursor, 4)
    return _FLOAT(data, at)[0]


def read_double(data: bytes, cursor: Cursor) -> Any:
    at = _take(data, cursor, 8)
    return _DOUBLE(data, at)[0]


def read_bytes(data: bytes, cursor: Cursor) -> Any:
    size = read_count(data, cursor)
    at = _take(data, cursor, size)
    return data[at : at + size]


def read_text(data: bytes, cursor: Cursor) -> Any:
    size = read_count(data, cursor)
    at = _take(data, cursor, size)
    try:
        return data[at : at + size].decode()
    except UnicodeDecodeError:
        raise BadPayload(f"the string at byte {at} is not UTF-8") from None


def _take(data: bytes, cursor: Cursor, size: int) -> int:
    at = cursor.at
    end = at + size
    if size < 0 or end > len(data):
        cursor.expect(data, size)
    cursor.at = end
    return at


_READ_PRIMITIVE: Final[dict[str, Read]] = {
    "null": read_null,
    "boolean": read_boolean,
    "int": read_int,
    "long": read_count,
    "float": read_float,
    "double": read_double,
    "bytes": read_bytes,
    "string": read_text,
}


def read_scalar(node: Scalar) -> Read:
    """Without regard to logical types; an enum's symbol."""
    match node:
        case Primitive(name=name):
            return _READ_PRIMITIVE[name]
        case Fixed(size=size):
            return lambda data, cursor: data[(at := _take(data, cursor, size)) : at + size]
        case Enumeration(symbols=symbols):
            return _read_symbol(symbols)


def _read_symbol(symbols: tuple[str, ...]) -> Read:
    def read(data: bytes, cursor: Cursor) -> Any:
        index = read_count(data, cursor)
        if 0 <= index < len(symbols):
            return symbols[index]
        raise BadPayload(f"symbol {index} of an enum with {len(symbols)} is chosen before byte {cursor.at}")

    return read


def conversion(written: Scalar, column: Column) -> Convert | None:
    """From what is read to what the column holds, None if that is the same; Unreadable if there is no way."""
    name = written.name if isinstance(written, Primitive) else type(written).__name__
    wanted = column.node
    assert isinstance(wanted, Primitive | Fixed | Enumeration), "others have columns inside"
    whole = name in ("int", "long")
    if column.type in (TIME, LOCAL_TIME) and whole:
        return _to_micros(_unit(written) or _unit(wanted))
    if column.type == pa.date32() and name == "int":
        return days
    decimal = _decimal(wanted)
    if decimal is not None and name in ("bytes", "Fixed"):
        return _to_decimal(_decimal(written) or decimal, decimal, column.type)
    if isinstance(wanted, Enumeration) and isinstance(written, Enumeration):
        return _to_symbol(written, wanted)
    if column.type == pa.string() and not isinstance(wanted, Enumeration):
        return _to_text(written, name, column)
    if column.type == pa.binary() and name in ("bytes", "string", "Fixed"):
        if isinstance(wanted, Fixed) and (not isinstance(written, Fixed) or written.size != wanted.size):
            raise Unreadable(label(written), column)
        return str.encode if name == "string" else None
    if name in _READABLE_AS.get(column.type, ()):
        return float if whole and pa.types.is_floating(column.type) else None
    raise Unreadable(label(written), column)


_READABLE_AS: Final = {
    pa.bool_(): ("boolean",),
    # A table may be of an older version than its data. Values beyond it are found when the column is made.
    pa.int32(): ("int", "long"),
    pa.int64(): ("int", "long"),
    pa.float32(): ("int", "long", "float"),
    pa.float64(): ("int", "long", "float", "double"),
}


def _unit(node: Scalar) -> tuple[int, int] | None:
    """By what a count is multiplied and divided to be one of microseconds."""
    logical = None if isinstance(node, Enumeration) else node.logical
    return None if logical is None else _UNITS.get(logical.removeprefix("local-"))


_UNITS: Final = {
    "timestamp-millis": (1_000, 1),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1, 1_000),
}


def _decimal(node: Scalar) -> tuple[int, int] | None:
    return None if isinstance(node, Enumeration) else node.decimal


def _to_micros(unit: tuple[int, int] | None) -> Convert:
    assert unit is not None, "a column of times has a logical type"
    times, parts = unit
    return lambda count: micros(count * times // parts)


def _to_decimal(written: tuple[int, int], wanted: tuple[int, int], type_: pa.DataType) -> Convert:
    (_, scale), (precision, wanted_scale) = written, wanted
    most = 10**precision
    up, down = 10 ** max(wanted_scale - scale, 0), 10 ** max(scale - wanted_scale, 0)
    as_text = type_ == pa.string()

    def convert(data: bytes) -> object:
        number, rest = divmod(int.from_bytes(data, "big", signed=True) * up, down)
        if rest or not -most < number < most:
            raise BadPayload(
                f"the number does not fit {precision} digits, {wanted_scale} of them after the point"
            )
        value = Decimal(f"{number}E-{wanted_scale}")
        return format(value, "f") if as_text else value

    return convert


def _to_symbol(written: Enumeration, wanted: Enumeration) -> Convert | None:
    known = {symbol: symbol for symbol in wanted.symbols}
    if known.keys() >= set(written.symbols):
        return None

    def convert(symbol: str) -> object:
        found = known.get(symbol, wanted.default)
        if found is None:
            raise BadPayload("the symbol is none of the enum, and the enum has no default")
        return found

    return convert


def _to_text(written: Scalar, name: str, column: Column) -> Convert | None:
    if name in ("string", "Enumeration"):
        return None
    if name == "Fixed" and isinstance(written, Fixed) and written.size == 16 and written.logical == "uuid":
        return lambda data: str(UUID(bytes=data))
    if name == "bytes":
        return _decoded
    raise Unreadable(label(written), column)


def _decoded(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise misfit(pa.string()) from None
