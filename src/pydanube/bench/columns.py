"""Looks into an Arrow column of payloads without touching the messages one by one."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.bench.plan import STAMP_BYTES


def payload_bytes(payloads: pa.BinaryArray) -> memoryview:
    """The bytes of all payloads, one behind the other, without copying them."""
    _, offsets, data = payloads.buffers()
    if data is None:
        return memoryview(b"")
    places = memoryview(offsets).cast("i")
    return memoryview(data)[places[payloads.offset] : places[payloads.offset + len(payloads)]]


def stamps_of(payloads: pa.BinaryArray) -> Sequence[int]:
    """The number at the beginning of each payload; all payloads are long enough to have one."""
    heads = pc.binary_slice(payloads, 0, STAMP_BYTES)
    return payload_bytes(heads).cast("Q")
