"""Writing past the page cache: from memory that begins on a page, in whole blocks.

On virtual machines, whose memory comes page by page from the host, a write into fresh pages of the cache costs four times
the CPU of a copy into memory that is there already (ADR 0013). Where a file system has nothing but its cache,
`Disk.bypass_cache` says so and the same writes go through it.
"""

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from typing import Final

from pydanube.entries.disk import Buffer

BLOCK_BYTES: Final = 4096
"""What position and size of such a write are multiples of."""

_MOVED_BYTES_MIN: Final = 32 * 1024
"""From this size on a copy without the interpreter's lock is worth the call."""


def in_blocks(size: int) -> int:
    """Rounded up to whole blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


class Blocks:
    """Memory that is used again for every write; for one thread at a time."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self._view = memoryview(self._memory)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def filled(self, buffers: Sequence[Buffer]) -> Iterator[memoryview]:
        """The bytes of all buffers in pieces as large as the memory; each has to be written before the next."""
        view, size = self._view, len(self._view)
        end = 0
        for buffer in buffers:
            start = 0
            while start < len(buffer):
                count = min(len(buffer) - start, size - end)
                if isinstance(buffer, bytes) and start == 0 and count >= _MOVED_BYTES_MIN:
                    ctypes.memmove(self._address + end, buffer, count)
                else:
                    view[end : end + count] = memoryview(buffer)[start : start + count]
                start += count
                end += count
                if end == size:
                    yield view
                    end = 0
        if end:
            yield view[:end]
