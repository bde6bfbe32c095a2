"""The head of a batch, read in place by who takes the batch: only what a broker asks of it.

Not only because it is cheaper: each object of the protobuf library brings its own block of memory, and after every 10,000 of
them the library has the C library give all free memory back to the system. With the memory a broker works in, that took up to
15 ms of the event loop, and as long again to get it back (ADR 0012).
"""

from typing import Final

from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import NAME_CHARACTERS_MAX
from pydanube.protocol.native.batch import invalid_batch
from pydanube.protocol.protobuf_scan import (
    check_attribute,
    check_text,
    malformed,
    read_length,
    read_varint,
    skip_field,
)

TIME_MS_MAX: Final = (1 << 63) - 1

_RESERVED: Final = (b"x-deliver-at", b"x-deliver-after", b"x-ttl", b"x-compaction-key")
_FIELDS: Final = 12
_U32: Final = 0xFFFF_FFFF


class HeadScan:
    """What a broker needs to know of a head; numbers are 0 where it has none."""

    __slots__ = (
        "deliver_after",
        "deliver_at",
        "has_publishers",
        "producer_id",
        "reserved",
        "schema_id",
        "schema_version",
        "ttl",
    )

    def __init__(self) -> None:
        self.producer_id: int = 0
        self.schema_id: int = 0
        self.schema_version: int = 0
        self.deliver_at: int = 0
        self.deliver_after: int = 0
        self.ttl: int = 0
        self.has_publishers: bool = False
        self.reserved: bytes = b""
        """An attribute, if there is one, that has a field of its own in heads or a column in batches."""


def scan_head(head: bytes) -> HeadScan:
    """Check a whole `BatchHead` and return what a broker asks of it.

    Raises:
        Rejected: with BATCH_INVALID, saying what is wrong and where.
    """
    try:
        return _scan(head)
    except Rejected as error:
        raise invalid_batch(f"its head cannot be decoded ({error.text})") from error


def _scan(head: bytes) -> HeadScan:
    scan = HeadScan()
    end = len(head)
    position = 0
    while position < end:
        tag, position = read_varint(head, position, end)
        if tag == 0x08:
            scan.producer_id, position = read_varint(head, position, end)
        elif tag == 0x12:  # producer_name
            size, position = read_length(head, position, end)
            _check_name(head, position, position + size)
            position += size
        elif tag == 0x18:
            _, position = _time("publish_time", head, position, end)
        elif tag == 0x20:
            scan.schema_id, position = read_varint(head, position, end)
        elif tag == 0x28:
            version, position = read_varint(head, position, end)
            scan.schema_version = version & _U32
        elif tag == 0x32:  # routing_key
            size, position = read_length(head, position, end)
            check_text(head, position, position + size)
            position += size
        elif tag == 0x3A:  # one attribute
            size, position = read_length(head, position, end)
            name = check_attribute(head, position, position + size)
            if name in _RESERVED:
                scan.reserved = name
            position += size
        elif tag == 0x40:
            scan.deliver_at, position = _time("deliver_at", head, position, end)
        elif tag == 0x48:
            scan.deliver_after, position = _time("deliver_after", head, position, end)
        elif tag == 0x50:
            scan.ttl, position = _time("ttl", head, position, end)
        elif tag in (0x5A, 0x62):  # a publisher, padding
            scan.has_publishers = scan.has_publishers or tag == 0x5A
            size, position = read_length(head, position, end)
            position += size
        elif tag >> 3 <= _FIELDS:
            raise malformed("BatchHead", position, f"tag {tag} is not one of this message's")
        else:
            position = skip_field(head, tag, position, end)
    return scan


def _time(name: str, head: bytes, position: int, end: int) -> tuple[int, int]:
    value, position = read_varint(head, position, end)
    if value > TIME_MS_MAX:
        raise malformed("BatchHead", position, f"{name} exceeds {TIME_MS_MAX} ms")
    return value, position


def _check_name(head: bytes, start: int, end: int) -> None:
    check_text(head, start, end)
    # Characters of several bytes are rare: most names are short enough without counting them.
    if end - start > NAME_CHARACTERS_MAX and len(head[start:end].decode()) > NAME_CHARACTERS_MAX:
        raise malformed(
            "BatchHead", start, f"a producer's name has more than {NAME_CHARACTERS_MAX} characters"
        )
