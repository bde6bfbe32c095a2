"""Values in the encoding that bincode 2 calls standard: little-endian, without tags, in a fixed order.

A number below 251 is one byte; larger ones follow a byte that tells their width: 251 two bytes, 252 four, 253 eight.
Bytes and texts follow their length; what is optional follows 0 or 1; a list or map follows its count.
"""

import struct
from typing import Final

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_WIDE_16: Final = 251
_WIDE_32: Final = 252
_WIDE_64: Final = 253
_U32_MAX: Final = (1 << 32) - 1
_U64_MAX: Final = (1 << 64) - 1


class Misfit(Exception):
    """The bytes are not what they are read as."""


class Fields:
    """Takes one value after another from the front of `data`."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, largest: int = _U64_MAX) -> int:
        """A number up to `largest`, which is 251 or more."""
        data, at = self._data, self._at
        value: int
        try:
            value = data[at]
            if value < _WIDE_16:
                self._at = at + 1
                return value
            if value == _WIDE_16:
                (value,) = _U16.unpack_from(data, at + 1)
                self._at = at + 3
            elif value == _WIDE_32:
                (value,) = _U32.unpack_from(data, at + 1)
                self._at = at + 5
            elif value == _WIDE_64:
                (value,) = _U64.unpack_from(data, at + 1)
                self._at = at + 9
            else:
                raise self._misfit(f"a number begins with {value:#x}")
        except (IndexError, struct.error):
            raise self._misfit("it ends inside a number") from None
        if value > largest:
            raise self._misfit(f"the number {value} exceeds {largest}")
        return value

    def sized(self) -> bytes:
        size = self.number()
        start = self._at
        end = start + size
        if end > len(self._data):
            raise self._misfit(f"a field of {size} bytes does not fit")
        self._at = end
        return self._data[start:end]

    def text(self) -> str:
        try:
            return self.sized().decode()
        except UnicodeDecodeError:
            raise self._misfit("a text is not UTF-8") from None

    def is_present(self) -> bool:
        flag = self.number()
        if flag > 1:
            raise self._misfit(f"an optional value begins with {flag}")
        return flag == 1

    def count(self, *, least_bytes: int) -> int:
        """How many items follow, each of `least_bytes` or more."""
        count = self.number()
        if count * least_bytes > len(self._data) - self._at:
            raise self._misfit(f"a list of {count} does not fit")
        return count

    def finish(self) -> None:
        if self._at != len(self._data):
            raise self._misfit(f"{len(self._data) - self._at} bytes are left over")

    def _misfit(self, what: str) -> Misfit:
        return Misfit(f"at byte {self._at} of its content, {what}")


def encode_number(value: int) -> bytes:
    if value < _WIDE_16:
        return value.to_bytes(1, "little")
    if value <= 0xFFFF:
        return b"\xfb" + _U16.pack(value)
    if value <= _U32_MAX:
        return b"\xfc" + _U32.pack(value)
    return b"\xfd" + _U64.pack(value)


def encode_bytes(value: bytes) -> bytes:
    return encode_number(len(value)) + value


def encode_optional_text(value: str | None) -> bytes:
    return b"\0" if value is None else b"\1" + encode_bytes(value.encode())


def encode_optional_number(value: int | None) -> bytes:
    return b"\0" if value is None else b"\1" + encode_number(value)
