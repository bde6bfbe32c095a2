"""A run whose bytes lie in several places of a file: a table of these places, read as if they were one piece.

table   (position u64, size u64) of each place, in the order of the run's bytes; CRC-32C u32 of these
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from crc32c import crc32c

from pydanube.entries.run_file import DamagedRunError

_PLACE: Final = struct.Struct("<QQ")
_CRC: Final = struct.Struct("<I")

Place = tuple[int, int]
"""Position and size."""


def table_bytes(count: int) -> int:
    return count * _PLACE.size + _CRC.size


def encode_table(places: Sequence[Place]) -> bytes:
    table = b"".join(_PLACE.pack(*place) for place in places)
    return table + _CRC.pack(crc32c(table))


class Extents:
    """Where the bytes of a run are: 16 bytes of memory for each place."""

    __slots__ = ("_positions", "_starts")

    _positions: "array[int]"
    _starts: "array[int]"

    def __init__(self, places: Iterable[Place]) -> None:
        positions, sizes = zip(*places, strict=True)
        self._positions = array("Q", positions)
        self._starts = array("Q", accumulate(sizes, initial=0))
        """What of the run is before each place; the last one is all of it."""

    @classmethod
    def decode(cls, table: bytes, count: int) -> "Extents":
        """Raises DamagedRunError if this is not the table of so many places that was written."""
        if len(table) != table_bytes(count):
            raise DamagedRunError(0, "the table of the run's places is cut short")
        if crc32c(table[: -_CRC.size]) != _CRC.unpack_from(table, len(table) - _CRC.size)[0]:
            raise DamagedRunError(0, "the table of the run's places has a wrong checksum")
        return cls(_PLACE.iter_unpack(table[: -_CRC.size]))

    @property
    def places(self) -> list[Place]:
        return list(self.locate(0, self._starts[-1]))

    def locate(self, position: int, size: int) -> Iterator[Place]:
        """The places in the file of these bytes of the run; fewer bytes where the run ends."""
        end = min(position + size, self._starts[-1])
        number = bisect_right(self._starts, position) - 1
        while position < end:
            skipped = position - self._starts[number]
            count = min(self._starts[number + 1], end) - position
            yield self._positions[number] + skipped, count
            position += count
            number += 1

    def byte_at(self, position: int) -> int:
        """The place in the file of one byte of the run, or of its end."""
        number = min(bisect_right(self._starts, position) - 1, len(self._positions) - 1)
        begin: int = self._positions[number] - self._starts[number]
        return begin + position
