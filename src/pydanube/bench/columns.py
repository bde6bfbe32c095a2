"""Looks into an Arrow column of payloads without touching the messages one by one."""

from array import array
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.bench.plan import STAMP_BYTES

_ASCENDING: Final = pa.py_buffer(array("Q", range(65_536)))
"""0, 1, 2 … as they lie in a column: as many as a batch may hold."""


def payload_bytes(payloads: pa.BinaryArray) -> memoryview:
    """The bytes of all payloads, one behind the other, without copying them."""
    _, offsets, data = payloads.buffers()
    if data is None or not len(payloads):
        return memoryview(b"")
    places = memoryview(offsets).cast("i")
    return memoryview(data)[places[payloads.offset] : places[payloads.offset + len(payloads)]]


def stamps_of(payloads: pa.BinaryArray) -> Sequence[int]:
    """The number at the beginning of each payload, all being long enough; a range if they are consecutive."""
    count = len(payloads)
    if not count:
        return range(0)
    heads = pa.py_buffer(payload_bytes(pc.binary_slice(payloads, 0, STAMP_BYTES)))
    stamps = pa.Array.from_buffers(pa.uint64(), count, [None, heads])
    first: int = stamps[0].as_py()
    # Differences wrap around instead of overflowing: a stamp below the first gives a huge one.
    steps = pc.subtract(stamps, stamps[0]).buffers()[1]
    size = count * STAMP_BYTES
    if first + count <= 1 << 64 and steps.slice(0, size).equals(_ASCENDING.slice(0, size)):
        return range(first, first + count)
    found: list[int] = stamps.to_pylist()
    return found
