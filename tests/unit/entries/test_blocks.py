"""Memory for writes past the page cache."""

import os

import pytest

from pydanube.entries.blocks import BLOCK_BYTES, Blocks, in_blocks
from pydanube.entries.disk import LocalDisk, write_all

SIZE = 16 * BLOCK_BYTES


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [1], [SIZE], [SIZE + 1], [100, 40_000, 0, 3 * SIZE, 7], [SIZE - 1, 1, 1], [33_000] * 5],
)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_pieces_are_the_buffers_one_after_the_other(sizes, kind):
    data = os.urandom(sum(sizes))
    buffers, at = [], 0
    for size in sizes:
        buffers.append(kind(data[at : at + size]))
        at += size
    pieces = [bytes(piece) for piece in Blocks(SIZE).filled(buffers)]
    assert b"".join(pieces) == data
    assert all(len(piece) == SIZE for piece in pieces[:-1])
    assert all(pieces)


def test_what_is_filled_can_be_written_past_the_cache(tmp_path):
    disk = LocalDisk()
    data = os.urandom(3 * SIZE + 2 * BLOCK_BYTES)
    fd = disk.create(tmp_path / "x")
    # On a file system that has nothing but its cache this is an ordinary write.
    disk.bypass_cache(fd, True)
    position = 0
    for piece in Blocks(SIZE).filled([data[:5], data[5:40_000], data[40_000:]]):
        position = write_all(disk, fd, [piece], position, sync=True)
    disk.close(fd)
    assert disk.read(tmp_path / "x") == data


def test_rounding():
    assert [in_blocks(size) for size in (0, 1, 4095, 4096, 4097)] == [0, 4096, 4096, 4096, 8192]
