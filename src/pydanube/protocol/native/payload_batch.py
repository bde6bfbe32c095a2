"""A batch of nothing but payloads, as most are: put together and read without Arrow.

Arrow would copy every payload three times on the way out, into memory that is new to the processor's caches each time:
here a batch is made in parts that need not be joined to be sent. On the way in, a client that reads messages one by one
need not load Arrow, and small batches cost it a third.
"""

from typing import Any, Final, NamedTuple

from pydanube.protocol.native.batch import NONE, PAYLOAD, BatchLayout, batch_front, invalid_batch
from pydanube.protocol.native.ipc_message import binary_column, encode_binary_front

WHOLE_BYTES: Final = 512
"""Payloads that are as large on average are parts of their own: a copy costs more than a place to visit does."""
PIECE_BYTES: Final = 64 * 1024
"""Smaller ones are joined into pieces of about this size, which a cache holds until they are sent."""


class Measured(NamedTuple):
    """Bytes of some payloads."""

    all: int
    largest: int


def measure_payloads(payloads: list[Any]) -> Measured | None:
    """How large payloads are; None if not all of them are `bytes`."""
    total = largest = 0
    for payload in payloads:
        if type(payload) is not bytes:
            return None
        size = len(payload)
        total += size
        if size > largest:  # noqa: PLR1730  (once per message: a call costs more)
            largest = size
    return Measured(total, largest)


def encode_payload_batch(payloads: list[bytes], head: bytes) -> list[bytes]:
    """The parts of a batch of these payloads behind a serialized head; joined they are what Arrow would make of it.

    Raises:
        Rejected: MESSAGE_TOO_LARGE if it exceeds a limit of batches.
    """
    if not payloads:
        raise invalid_batch("it holds no messages")
    message_front, payload_bytes = encode_binary_front(payloads)
    padding = bytes(-payload_bytes % 8)
    raw_bytes = len(message_front) + payload_bytes + len(padding)
    front = batch_front(head, NONE, len(payloads), raw_bytes, PAYLOAD)
    return [front + message_front, *_pieces(payloads, payload_bytes), padding]


def is_payload_batch(layout: BatchLayout) -> bool:
    return layout.columns == PAYLOAD and layout.codec == NONE


def decode_payload_batch(body: bytes, layout: BatchLayout) -> list[bytes]:
    """The payloads of such a batch.

    Raises:
        Rejected: BATCH_INVALID, the batch is none Arrow would write.
    """
    column = binary_column(body, layout.arrow_at, layout.count)
    offsets_end = column.offsets_at + 4 * (layout.count + 1)
    offsets: list[int] = memoryview(body)[column.offsets_at : offsets_end].cast("i").tolist()
    data_at = column.data_at
    end = offsets[0]
    if end < 0 or offsets[-1] > column.data_bytes:
        raise invalid_batch("the offsets of the payloads lie outside of their buffer")
    payloads: list[bytes] = []
    for number in range(1, layout.count + 1):
        start = end
        end = offsets[number]
        if end < start:
            raise invalid_batch("the offsets of the payloads do not ascend")
        payloads.append(body[data_at + start : data_at + end])
    return payloads


def _pieces(payloads: list[bytes], payload_bytes: int) -> list[bytes]:
    count = len(payloads)
    if payload_bytes >= WHOLE_BYTES * count:
        return payloads
    each = max(1, count * PIECE_BYTES // max(payload_bytes, 1))
    return [b"".join(payloads[first : first + each]) for first in range(0, count, each)]
