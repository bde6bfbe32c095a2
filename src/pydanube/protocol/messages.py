"""The three messages of the hot path, read in place instead of decoded into objects.

A published `StreamMessage` is stored and delivered as the bytes the client sent; only a few fields are
needed on the way. What is accepted here goes to every consumer, and one message that some client's
decoder refuses would be redelivered to it for ever. So the scan is as strict as the strictest decoder:
known fields must have their wire type, strings must be UTF-8, nothing may be cut off. Unknown fields
are passed through untouched.

To deliver with an offset, `offset_suffix` is appended: protobuf merges a repeated occurrence of a
sub-message, and the last scalar wins, so the suffix overwrites `msg_id.topic_offset` alone.
"""

from typing import Final

from pydanube.protocol.protobuf_scan import (
    check_attribute,
    check_text,
    malformed,
    read_length,
    read_varint,
    skip_field,
)

OFFSET_SUFFIX_BYTES_MAX: Final = 13
"""Longest `offset_suffix`: tag, length, inner tag, ten bytes of number."""

_TIMING_ATTRIBUTES: Final = (b"x-deliver-at", b"x-deliver-after", b"x-ttl")
"""`native/timing.py` reads them."""


class PublishScan:
    """What a publish needs to know of its StreamMessage."""

    __slots__ = (
        "has_msg_id",
        "is_timed",
        "payload_at",
        "payload_bytes",
        "producer_id",
        "request_id",
        "schema_id",
        "schema_version",
        "topic_name",
    )

    def __init__(self) -> None:
        self.request_id: int = 0
        self.has_msg_id: bool = False
        self.is_timed: bool = False
        """Whether an attribute may ask for a delivery time or a time to live."""
        self.producer_id: int = 0
        self.topic_name: bytes = b""
        self.payload_at: int = 0
        self.payload_bytes: int = 0
        self.schema_id: int = 0
        """0 if it names none, as `schema_version` is."""
        self.schema_version: int = 0


class AckScan:
    """What an ack needs to know of its AckRequest."""

    __slots__ = ("has_msg_id", "request_id", "subscription", "topic_name", "topic_offset")

    def __init__(self) -> None:
        self.request_id: int = 0
        self.has_msg_id: bool = False
        self.topic_name: bytes = b""
        self.topic_offset: int = 0
        self.subscription: bytes = b""


def scan_publish(body: bytes) -> PublishScan:
    """Check a whole StreamMessage and return the fields a publish needs."""
    scan = PublishScan()
    end = len(body)
    position = 0
    while position < end:
        tag = body[position]
        position += 1
        if tag >= 0x80:
            tag, position = read_varint(body, position - 1, end)
        if tag == 0x1A:  # payload, the long one
            size, position = read_length(body, position, end)
            scan.payload_at = position
            scan.payload_bytes = size
            position += size
        elif tag == 0x12:  # msg_id
            size, position = read_length(body, position, end)
            _scan_msg_id(body, position, position + size, scan)
            position += size
        elif tag == 0x08:  # request_id
            scan.request_id, position = read_varint(body, position, end)
        elif tag == 0x20:  # publish_time
            position = read_varint(body, position, end)[1]
        elif tag == 0x40:
            scan.schema_id, position = read_varint(body, position, end)
        elif tag == 0x48:
            scan.schema_version, position = read_varint(body, position, end)
        elif tag in (0x2A, 0x32, 0x52):  # producer_name, subscription_name, routing_key
            size, position = read_length(body, position, end)
            check_text(body, position, position + size)
            position += size
        elif tag == 0x3A:  # one attribute
            size, position = read_length(body, position, end)
            if check_attribute(body, position, position + size) in _TIMING_ATTRIBUTES:
                scan.is_timed = True
            position += size
        elif tag >> 3 <= 10:
            raise malformed("StreamMessage", position, f"tag {tag} is not one of this message's")
        else:
            position = skip_field(body, tag, position, end)
    return scan


def scan_ack(body: bytes) -> AckScan:
    """Return the fields an AckRequest or a NackRequest is addressed by."""
    scan = AckScan()
    end = len(body)
    position = 0
    while position < end:
        tag, position = read_varint(body, position, end)
        if tag == 0x12:
            size, position = read_length(body, position, end)
            _scan_ack_msg_id(body, position, position + size, scan)
            position += size
        elif tag == 0x08:
            scan.request_id, position = read_varint(body, position, end)
        elif tag == 0x1A:
            size, position = read_length(body, position, end)
            scan.subscription = body[position : position + size]
            position += size
        else:
            position = skip_field(body, tag, position, end)
    return scan


def routing_key(body: bytes) -> bytes:
    """The key a stored StreamMessage is routed by: its routing_key if present, else its producer's name."""
    producer_name = b""
    end = len(body)
    position = 0
    key: bytes | None = None
    while position < end:
        tag, position = read_varint(body, position, end)
        if tag in (0x52, 0x2A):
            size, position = read_length(body, position, end)
            value = body[position : position + size]
            position += size
            if tag == 0x52:
                key = value
            else:
                producer_name = value
        else:
            position = skip_field(body, tag, position, end)
    return producer_name if key is None else key


def offset_suffix(offset: int) -> bytes:
    """Bytes that, appended to a StreamMessage, set `msg_id.topic_offset`."""
    suffix = [0x12, 2, 0x28]
    while offset >= 0x80:
        suffix.append(offset & 0x7F | 0x80)
        suffix[1] += 1
        offset >>= 7
    suffix.append(offset)
    return bytes(suffix)


def encode_request_id(request_id: int) -> bytes:
    """A response whose only content is field 1, the echoed request id."""
    return b"\x08" + encode_varint(request_id) if request_id else b""


def encode_varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    digits: list[int] = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _scan_msg_id(body: bytes, position: int, end: int, scan: PublishScan) -> None:
    scan.has_msg_id = True
    while position < end:
        tag, position = read_varint(body, position, end)
        if tag == 0x08:
            scan.producer_id, position = read_varint(body, position, end)
        elif tag in (0x12, 0x1A):
            size, position = read_length(body, position, end)
            check_text(body, position, position + size)
            if tag == 0x12:
                scan.topic_name = body[position : position + size]
            position += size
        elif tag == 0x28:
            position = read_varint(body, position, end)[1]
        elif tag >> 3 <= 5 and tag >> 3 != 4:
            raise malformed("MsgID", position, f"tag {tag} is not one of this message's")
        else:
            position = skip_field(body, tag, position, end)


def _scan_ack_msg_id(body: bytes, position: int, end: int, scan: AckScan) -> None:
    scan.has_msg_id = True
    while position < end:
        tag, position = read_varint(body, position, end)
        if tag == 0x28:
            scan.topic_offset, position = read_varint(body, position, end)
        elif tag == 0x12:
            size, position = read_length(body, position, end)
            scan.topic_name = body[position : position + size]
            position += size
        else:
            position = skip_field(body, tag, position, end)
