"""A file of which only some byte ranges are in memory, as Arrow's Parquet reader wants files."""

import io
from bisect import bisect_right
from collections.abc import Iterable

import pyarrow as pa

Bytes = bytes | memoryview


class SparseFile:
    """Reads ranges that were fetched before; asking for any other byte is an error, never I/O."""

    def __init__(self, size: int, ranges: Iterable[tuple[int, Bytes]]) -> None:
        """A file of `size` bytes of which each range is (position, bytes); ranges do not overlap."""
        self.closed = False
        self._size = size
        ordered = sorted(ranges, key=lambda given: given[0])
        self._starts = [start for start, _ in ordered]
        self._buffers = [pa.py_buffer(data) for _, data in ordered]
        self._position = 0

    def read_buffer(self, size: int = -1) -> pa.Buffer:
        """The next bytes, fewer only at the end of the file; Arrow asks for this one, as it copies nothing."""
        start = self._position
        end = self._size if size < 0 else min(start + size, self._size)
        if start >= end:
            return pa.py_buffer(b"")
        number = bisect_right(self._starts, start) - 1
        skip = start - self._starts[number] if number >= 0 else 0
        if number < 0 or skip + end - start > self._buffers[number].size:
            raise OSError(f"bytes {start} to {end} point outside the part of the file they belong to")
        self._position = end
        return self._buffers[number].slice(skip, end - start)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.read_buffer(size).to_pybytes()
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(f"position {base + offset} lies before the file")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        self._starts, self._buffers = [], []
