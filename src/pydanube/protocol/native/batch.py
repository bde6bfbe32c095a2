"""The layout of a batch: a fixed header, a protobuf head, an Arrow part. Reads positions, never columns.

What is inside the Arrow part is `arrow.py`'s matter. This module is cheap to import and to call: the broker asks it of
every entry.
"""

import struct
from typing import Final

from pydanube.kernel.errors import ErrorCode, Rejected

BATCH_VERSION: Final = 1
BATCH_HEADER_BYTES: Final = 16
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest Arrow part, before and after compression."""
BATCH_MESSAGES_MAX: Final = 65_536
HEAD_BYTES_MAX: Final = 32 * 1024
"""Largest head: with it the largest batch still fits in a frame."""
SHARED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest product of head and messages: what a head adds when each message becomes a row of its own."""

# Codecs of the Arrow part.
NONE: Final = 0
LZ4: Final = 1
ZSTD: Final = 2

# Columns, as bits of the mask.
PAYLOAD: Final = 1
PUBLISH_TIME: Final = 2
ROUTING_KEY: Final = 4
ATTRIBUTES: Final = 8
SCHEMA_ID: Final = 16
SCHEMA_VERSION: Final = 32
COMPACTION_KEY: Final = 64
APPEND_TIME: Final = 128
PUBLISHER: Final = 256
REQUEST_ID: Final = 512
MERGED_COLUMNS: Final = APPEND_TIME | PUBLISHER | REQUEST_ID
"""Of batches that a broker makes of messages that came one by one; no producer sends them."""
ALL_COLUMNS: Final = 1023

PADDED_HEAD_BYTES_MAX: Final = 512
"""Larger heads, which are rare, stay as they are: with padding they might exceed a limit."""

_HEADER = struct.Struct("<BBBBIIHH")
_PADDING_TAG: Final = 12 << 3 | 2
_PADDINGS: Final = [b""] + [
    bytes((_PADDING_TAG, size - 2)) + bytes(size - 2) for size in (9, 2, 3, 4, 5, 6, 7)
]
"""`BatchHead.padding` that brings a head to a multiple of 8, by how many bytes it lacks."""


class BatchLayout:
    """The checked header of a batch, and where its parts are."""

    __slots__ = ("arrow_at", "codec", "columns", "count", "head", "raw_bytes")

    def __init__(  # noqa: PLR0917  (built in one place, once per batch)
        self, codec: int, count: int, raw_bytes: int, columns: int, head: bytes, arrow_at: int
    ) -> None:
        self.codec: Final = codec
        self.count: Final = count
        self.raw_bytes: Final = raw_bytes
        self.columns: Final = columns
        self.head: Final = head
        self.arrow_at: Final = arrow_at


def is_batch(body: bytes) -> bool:
    """Whether an entry body is a batch; no protobuf message, so no row, begins with a zero byte."""
    return len(body) > 0 and body[0] == 0


def is_merged(body: bytes) -> bool:
    """Whether a batch that was accepted before has columns that not every client knows."""
    return int.from_bytes(body[12:14], "little") & MERGED_COLUMNS != 0


def message_count(body: bytes) -> int:
    """Messages in an entry body that was accepted before: nothing is checked here."""
    if len(body) > 0 and body[0] == 0:
        return int.from_bytes(body[4:8], "little")
    return 1


def read_layout(body: bytes) -> BatchLayout:
    """Check everything that can be said of a batch without decompressing it.

    Raises:
        Rejected: with BATCH_INVALID, saying which field is wrong.
    """
    if len(body) < BATCH_HEADER_BYTES:
        raise invalid_batch(f"{len(body)} bytes are less than its header")
    zero, version, codec, reserved, count, raw_bytes, columns, head_bytes = _HEADER.unpack_from(body)
    if zero != 0 or version != BATCH_VERSION or reserved != 0:
        raise invalid_batch(f"it begins with {body[:4].hex()}, which is not version {BATCH_VERSION}")
    if codec > ZSTD:
        raise invalid_batch(f"codec {codec} is unknown")
    if columns & PAYLOAD == 0 or columns > ALL_COLUMNS:
        raise invalid_batch(f"column mask {columns:#x} lacks the payload or has unknown columns")
    problem = exceeded_limit(count, raw_bytes, head_bytes)
    if problem:
        raise invalid_batch(problem)
    arrow_at = BATCH_HEADER_BYTES + head_bytes
    arrow_bytes = len(body) - arrow_at
    if count == 0 or arrow_bytes <= 0:
        raise invalid_batch("it holds no messages or is cut short")
    if arrow_bytes > BATCH_BYTES_MAX or (codec == NONE and arrow_bytes != raw_bytes):
        raise invalid_batch(f"its Arrow part of {arrow_bytes} bytes does not fit the {raw_bytes} it states")
    return BatchLayout(codec, count, raw_bytes, columns, body[BATCH_HEADER_BYTES:arrow_at], arrow_at)


def encode_batch(
    head: bytes,
    arrow: bytes | bytearray | memoryview,
    *,
    codec: int,
    count: int,
    raw_bytes: int,
    columns: int,
) -> bytes:
    """Put a batch together from its serialized head and its Arrow part.

    Raises:
        Rejected: with MESSAGE_TOO_LARGE, when it exceeds a limit: send it as several batches.
    """
    return b"".join((batch_front(head, codec, count, raw_bytes, columns), arrow))


def batch_front(head: bytes, codec: int, count: int, raw_bytes: int, columns: int) -> bytes:
    """What goes before the Arrow part of a batch.

    Raises:
        Rejected: with MESSAGE_TOO_LARGE, when it exceeds a limit: send it as several batches.
    """
    problem = exceeded_limit(count, raw_bytes, len(head))
    if problem:
        raise too_large_batch(problem)
    if len(head) <= PADDED_HEAD_BYTES_MAX:
        # Numbers must lie on their natural boundaries: else a reader has to copy the Arrow part first.
        head += _PADDINGS[-len(head) % 8]
    return _HEADER.pack(0, BATCH_VERSION, codec, 0, count, raw_bytes, columns, len(head)) + head


def exceeded_limit(count: int, raw_bytes: int, head_bytes: int) -> str:
    """What of a batch is beyond its limit; empty if nothing is."""
    if count > BATCH_MESSAGES_MAX:
        return f"{count} messages are more than {BATCH_MESSAGES_MAX}"
    if raw_bytes > BATCH_BYTES_MAX:
        return f"an Arrow part of {raw_bytes} bytes is more than {BATCH_BYTES_MAX}"
    if head_bytes > HEAD_BYTES_MAX:
        return f"a head of {head_bytes} bytes is more than {HEAD_BYTES_MAX}"
    if head_bytes * count > SHARED_BYTES_MAX:
        return (
            f"a head of {head_bytes} bytes for {count} messages is more than {SHARED_BYTES_MAX} bytes shared"
        )
    return ""


def too_large_batch(problem: str) -> Rejected:
    return Rejected(f"batch too large: {problem}; send smaller ones", ErrorCode.MESSAGE_TOO_LARGE)


def invalid_batch(why: str) -> Rejected:
    return Rejected(f"invalid batch: {why}", ErrorCode.BATCH_INVALID)
