"""Batches as the broker meets them: checked once when they come in, taken apart only where somebody needs rows.

The Arrow library is loaded when the first producer that may send batches is opened: a broker that serves rows only does
without its memory.
"""

import asyncio
import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from pydanube.protocol.native.batch import read_layout
from pydanube.protocol.native.checking import CheckedBatch
from pydanube.protocol.native_pb2 import BatchHead

_ARROW: Final = "pydanube.protocol.native.arrow"
_ROW_OVERHEAD_BYTES: Final = 256
"""What a row has beside what its batch has: the frame of its id, the head's times as attributes."""
_SMALL_BYTES: Final = 2 * 1024 * 1024


async def prepare_for_batches() -> None:
    """Load Arrow beside the loop, which would stand still for a fifth of a second otherwise."""
    if _ARROW not in sys.modules:
        await asyncio.to_thread(import_module, _ARROW)


def row_bytes_max(batch: CheckedBatch, topic: bytes) -> int:
    """No row of this batch is longer: the largest payload, and everything that is not payload."""
    layout = batch.layout
    others = layout.raw_bytes - batch.payload_bytes + len(layout.head) + len(topic) + _ROW_OVERHEAD_BYTES
    # All payloads together are as good a bound, and cheaper, while the batch is far from what one row may have.
    is_small = layout.raw_bytes < _SMALL_BYTES
    return others + (batch.payload_bytes if is_small else batch.payload_bytes_max)


def batch_rows(body: bytes, topic: str, skip: int, count: int) -> list[bytes]:
    """The StreamMessages of a part of a batch, without offsets."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    return arrow.rows(body, topic, skip, count)


def timed_rows(body: bytes, topic: str, skip: int, count: int, append_ms: int) -> list[tuple[bytes, int]]:
    """The same, each with its time of append: that of the entry, unless the batch was merged."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    rows = arrow.rows(body, topic, skip, count)
    times = arrow.append_times(body, skip, count)
    return list(zip(rows, [append_ms] * len(rows) if times is None else times, strict=True))


def batch_part(body: bytes, skip: int, count: int) -> bytes:
    """A batch of only these messages, for whoever is due a small part of a large one."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    layout = read_layout(body)
    part = _columns(body).slice(skip, count)
    return arrow.encode_record_batch(part, BatchHead.FromString(layout.head), codec=layout.codec)


@lru_cache(maxsize=1)
def _columns(body: bytes) -> Any:
    """Parts of one batch come one after the other: reading it once will do for all of them."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    return arrow.decode_record_batch(body)
