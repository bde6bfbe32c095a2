"""The bodies of the hot frames, which are not protobuf: publishes, their answers, deliveries, ranges, credit."""

import struct
from typing import Final, NamedTuple

from pydanube.kernel.errors import ErrorCode, Rejected

NO_OFFSET: Final = (1 << 64) - 1
"""Stands for an offset where there is none: non-reliable topics, retries too old to be remembered."""
ITEM_HEADER_BYTES: Final = 32
RANGES_MAX: Final = 10_000
"""Ranges in one ACK or NACK."""

_PUBLISHED = struct.Struct("<IIQ")
_ITEM = struct.Struct("<QqIIII")
_RANGE = struct.Struct("<QQ")
_CREDIT = struct.Struct("<IQ")


class Published(NamedTuple):
    """A PUBLISH was taken: `messages` of them from `offset` on."""

    request: int
    messages: int
    offset: int


class Item(NamedTuple):
    """Part of a DELIVER: offsets base+skip … base+skip+messages-1, which `body` holds from `base` on."""

    base: int
    append_ms: int
    skip: int
    messages: int
    attempt: int
    body: bytes


def encode_published(request: int, messages: int, offset: int) -> bytes:
    """One item of a PUBLISHED body; bodies are items one after the other."""
    return _PUBLISHED.pack(request, messages, offset)


def decode_published(body: bytes) -> list[Published]:
    if len(body) % _PUBLISHED.size:
        raise _malformed("PUBLISHED", f"{len(body)} bytes are not a number of items")
    return [Published._make(fields) for fields in _PUBLISHED.iter_unpack(body)]


def encode_item_header(base: int, append_ms: int, skip: int, count: int, attempt: int, length: int) -> bytes:  # noqa: PLR0917
    """What goes before each entry body of a DELIVER. Positional arguments: this runs once per entry."""
    return _ITEM.pack(base, append_ms, skip, count, attempt, length)


def decode_items(body: bytes) -> list[Item]:
    """The items of a DELIVER body."""
    items: list[Item] = []
    position = 0
    end = len(body)
    while position < end:
        if end - position < ITEM_HEADER_BYTES:
            raise _malformed("DELIVER", "an item is cut short")
        base, append_ms, skip, count, attempt, length = _ITEM.unpack_from(body, position)
        position += ITEM_HEADER_BYTES
        if length > end - position:
            raise _malformed("DELIVER", f"an item claims {length} bytes, {end - position} are left")
        items.append(Item(base, append_ms, skip, count, attempt, body[position : position + length]))
        position += length
    return items


def encode_ranges(ranges: list[tuple[int, int]]) -> bytes:
    """The body of an ACK: first and last offset of each range."""
    return b"".join([_RANGE.pack(first, last) for first, last in ranges])


def decode_ranges(body: bytes) -> list[tuple[int, int]]:
    if len(body) % _RANGE.size or len(body) > RANGES_MAX * _RANGE.size:
        raise _malformed("ACK", f"{len(body)} bytes are not up to {RANGES_MAX} ranges")
    ranges = list(_RANGE.iter_unpack(body))
    for first, last in ranges:
        check_range(first, last)
    return ranges


def check_range(first: int, last: int) -> None:
    if first > last:
        raise _malformed("range", f"{first} to {last} runs backwards")


def encode_credit(messages: int, size: int) -> bytes:
    return _CREDIT.pack(messages, size)


def decode_credit(body: bytes) -> tuple[int, int]:
    if len(body) != _CREDIT.size:
        raise _malformed("CREDIT", f"{len(body)} bytes instead of {_CREDIT.size}")
    messages, size = _CREDIT.unpack(body)
    return messages, size


def _malformed(what: str, why: str) -> Rejected:
    return Rejected(f"malformed {what}: {why}", ErrorCode.PROTOCOL_VIOLATION)
