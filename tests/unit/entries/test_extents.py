"""Runs in several places, read as if they were in one."""

import pytest

from pydanube.entries.extents import Extents, encode_table, table_bytes
from pydanube.entries.run_file import DamagedRunError

PLACES = [(100, 3), (10, 4), (50, 1), (200, 5)]
BYTES = [at + each for at, size in PLACES for each in range(size)]


def test_any_part_of_a_run_is_where_its_places_say():
    extents = Extents(PLACES)
    assert extents.places == PLACES
    for start in range(len(BYTES)):
        assert extents.byte_at(start) == BYTES[start]
        for size in range(len(BYTES) + 2 - start):
            found = [at + each for at, count in extents.locate(start, size) for each in range(count)]
            assert found == BYTES[start : start + size]
    assert extents.byte_at(len(BYTES)) == 205
    assert list(extents.locate(len(BYTES), 1)) == []


def test_a_table_is_read_as_it_was_written_or_not_at_all():
    table = encode_table(PLACES)
    assert len(table) == table_bytes(len(PLACES))
    assert Extents.decode(table, len(PLACES)).places == PLACES
    for bit in range(8 * len(table)):
        damaged = bytearray(table)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedRunError, match="wrong checksum at byte 0"):
            Extents.decode(bytes(damaged), len(PLACES))
    with pytest.raises(DamagedRunError, match="cut short"):
        Extents.decode(table[:-1], len(PLACES))
