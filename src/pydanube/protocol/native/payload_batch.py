"""A batch of nothing but payloads, as most are: put together without Arrow, in parts that need not be joined to be sent.

Arrow would copy every payload three times on the way, into memory that is new to the processor's caches each time.
"""

from typing import Any, Final, NamedTuple

from pydanube.protocol.native.batch import NONE, PAYLOAD, batch_front, invalid_batch
from pydanube.protocol.native.ipc_message import encode_binary_front

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


def _pieces(payloads: list[bytes], payload_bytes: int) -> list[bytes]:
    count = len(payloads)
    if payload_bytes >= WHOLE_BYTES * count:
        return payloads
    each = max(1, count * PIECE_BYTES // max(payload_bytes, 1))
    return [b"".join(payloads[first : first + each]) for first in range(0, count, each)]
