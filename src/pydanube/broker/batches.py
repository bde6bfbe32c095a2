"""Batches as the broker meets them: checked once when they come in, taken apart only where somebody needs rows.

The Arrow library is loaded with the first batch: a broker that serves rows only does without its memory.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.protocol.native.arrow import CheckedBatch


def check_batch(body: bytes) -> "CheckedBatch":
    """Read a batch as a consumer will, and say what is in it; Rejected if it cannot be read."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    return arrow.check_batch(body)


def batch_rows(body: bytes, topic: str, skip: int, count: int) -> list[bytes]:
    """The StreamMessages of a part of a batch, without offsets."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    return arrow.rows(body, topic, skip, count)
