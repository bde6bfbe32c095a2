"""A run whose bytes lie in several places of a file: a table of these places, read as if they were one piece.

table   (position u64, size u64) of each place, in the order of the run's bytes; CRC-32C u32 of these
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
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
    """Where the bytes of a run are."""

    __slots__ = ("_starts", "places")

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self._starts = list(accumulate((size for _, size in places), initial=0))

    @classmethod
    def decode(cls, table: bytes) -> "Extents":
        """Raises DamagedRunError if this is not what was written."""
        if crc32c(table[: -_CRC.size]) != _CRC.unpack_from(table, len(table) - _CRC.size)[0]:
            raise DamagedRunError(0, "the table of the run's places has a wrong checksum")
        return cls(list(_PLACE.iter_unpack(table[: -_CRC.size])))

    def locate(self, position: int, size: int) -> Iterator[Place]:
        """The places in the file of these bytes of the run; fewer bytes where the run ends."""
        number = bisect_right(self._starts, position) - 1
        while size > 0 and number < len(self.places):
            at, length = self.places[number]
            skipped = position - self._starts[number]
            count = min(length - skipped, size)
            yield at + skipped, count
            position += count
            size -= count
            number += 1

    def byte_at(self, position: int) -> int:
        """The place in the file of one byte of the run, or of its end."""
        for at, _ in self.locate(position, 1):
            return at
        at, size = self.places[-1]
        return at + size
