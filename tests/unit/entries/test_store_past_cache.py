"""Large runs are written past the page cache, and read like any other."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pydanube.entries.disk import Buffer, LocalDisk
from pydanube.entries.entry import Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.entries.run_store import BLOCK_BYTES, BLOCKS_BYTES, PAST_CACHE_BYTES_MIN, LocalRunStore
from pydanube.kernel.names import TopicName

TOPIC = TopicName("default", "orders")


class Watched:
    """A disk that notes how many bytes were written while the cache was bypassed."""

    def __init__(self, *, can_bypass: bool = True) -> None:
        self.can_bypass = can_bypass
        self.bypassed = 0
        self._disk = LocalDisk()
        self._is_on = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def bypass_cache(self, fd: int, on: bool) -> bool:
        self._is_on = self.can_bypass and self._disk.bypass_cache(fd, on) and on
        return self.can_bypass

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int, *, sync: bool) -> int:
        written = self._disk.pwritev(fd, buffers, position, sync=sync)
        self.bypassed += written if self._is_on else 0
        return written


async def read_back(store: LocalRunStore, size: int) -> bytes:
    _, run = encode_run([encode_header(Kind.ROW, b"x", 1, 1, 0, 0, 0, 7, 1, 0)], [b"x"], created_ms=7)
    named = msgspec.structs.replace(run, run_id="s")
    return await store.read(TOPIC, named, 0, size, lambda data: data)


@pytest.mark.parametrize(
    "size",
    [
        PAST_CACHE_BYTES_MIN,
        PAST_CACHE_BYTES_MIN + 1,
        BLOCKS_BYTES - BLOCK_BYTES,
        BLOCKS_BYTES,
        BLOCKS_BYTES + BLOCK_BYTES + 17,
        2 * BLOCKS_BYTES + 5,
    ],
)
async def test_every_byte_is_there_whatever_the_length(tmp_path: Path, size: int) -> None:
    disk = Watched()
    store = LocalRunStore(tmp_path, disk)
    data = os.urandom(size)
    await store.write(TOPIC, "s", [data[:100], data[100:70_000], data[70_000:]])
    assert await read_back(store, size) == data
    assert disk.bypassed == size - size % BLOCK_BYTES


@pytest.mark.parametrize(("size", "can_bypass"), [(1000, True), (PAST_CACHE_BYTES_MIN, False)])
async def test_small_runs_and_odd_file_systems_use_the_cache(
    tmp_path: Path, size: int, can_bypass: bool
) -> None:
    disk = Watched(can_bypass=can_bypass)
    store = LocalRunStore(tmp_path, disk)
    data = os.urandom(size)
    await store.write(TOPIC, "s", [data])
    assert await read_back(store, size) == data
    assert disk.bypassed == 0
