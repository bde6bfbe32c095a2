"""Frames of the native protocol: a 16-byte header and a body, cut out of a stream of bytes in any chunking."""

import struct
from typing import Final

from pydanube.kernel.errors import ErrorCode, Rejected

PREFACE: Final = b"DANUBE\r\n"
"""The first bytes of every connection: no other protocol of the port begins so."""
ALPN: Final = "danube/1"
VERSION: Final = 1

HEADER_BYTES: Final = 16
SEQUENCE_BYTES: Final = 8
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024 + 64 * 1024
"""Largest body of a frame."""
PING_BYTES_MAX: Final = 64
SMALL_PART_BYTES: Final = 4096
"""Parts of a body smaller than this are collected, larger ones are kept as they came."""
HELLO_BYTES_MAX: Final = 64 * 1024
"""Largest frame of a peer that has not been welcomed yet."""

# Types of frames. A number is never given to something else.
HELLO: Final = 1
WELCOME: Final = 2
ERROR: Final = 3
PING: Final = 4
PONG: Final = 5
LOOKUP: Final = 6
LOOKED_UP: Final = 7
OPEN_PRODUCER: Final = 8
PRODUCER_OPENED: Final = 9
PUBLISH: Final = 10
PUBLISHED: Final = 11
SUBSCRIBE: Final = 12
SUBSCRIBED: Final = 13
OPEN_READER: Final = 14
READER_OPENED: Final = 15
CREDIT: Final = 16
DELIVER: Final = 17
ACK: Final = 18
ACKED: Final = 19
NACK: Final = 20
SEEK: Final = 21
SEEKED: Final = 22
CLOSE: Final = 23
CLOSED: Final = 24
_LAST_TYPE: Final = CLOSED

_HEADER = struct.Struct("<IBBHII")
_SEQUENCE = struct.Struct("<Q")
_pack = _HEADER.pack
_pack_sequence = _SEQUENCE.pack
_unpack_sequence = _SEQUENCE.unpack_from
_unpack_from = _HEADER.unpack_from


class Frame:
    """One frame, whole."""

    __slots__ = ("body", "channel", "kind", "request", "sequence")

    def __init__(self, kind: int, channel: int, request: int, body: bytes, sequence: int = 0) -> None:
        self.kind: Final = kind
        self.channel: Final = channel
        self.request: Final = request
        self.body: Final = body
        """Of a PUBLISH, the entry body: its sequence is cut off, so that nobody need copy the rest to do so."""
        self.sequence: Final = sequence


def frame_header(kind: int, channel: int, request: int, length: int) -> bytes:
    """The 16 bytes before a body of that length."""
    return _pack(length, kind, 0, 0, channel, request)


def publish_header(channel: int, request: int, sequence: int, length: int) -> bytes:
    """What goes before an entry body of that length: frame header and sequence."""
    return _pack(SEQUENCE_BYTES + length, PUBLISH, 0, 0, channel, request) + _pack_sequence(sequence)


def encode_frame(kind: int, channel: int = 0, request: int = 0, body: bytes = b"") -> bytes:
    return _pack(len(body), kind, 0, 0, channel, request) + body


class FrameReader:
    """Cuts frames out of received bytes, copying a body once.

    Holds at most one unfinished frame. `body_bytes_max` may be raised once the peer is known; a frame that claims
    more is refused as soon as its header is read, before its body is held.
    """

    def __init__(self, body_bytes_max: int, *, preface: bytes = b"") -> None:
        self.body_bytes_max = body_bytes_max
        self._preface = preface
        self._held = b""
        """Bytes that are not yet a header."""
        self._parts: list[memoryview | bytearray] = []
        """What has come of the body of an unfinished frame."""
        self._missing = 0
        """Bytes of it that have not."""
        self._kind = 0
        self._channel = 0
        self._request = 0

    def receive(self, data: bytes) -> list[Frame]:
        """The frames completed by these bytes, in order.

        Raises:
            Rejected: the peer violates the protocol; nothing more can be read from it.
        """
        frames: list[Frame] = []
        position = 0
        if self._missing:
            if len(data) < self._missing:
                self._keep(data)
                return frames
            position = self._missing
            self._parts.append(memoryview(data)[:position])
            frames.append(self._finished())
        elif self._held:
            data = self._held + data
            self._held = b""
        if self._preface:
            if not data.startswith(self._preface[: len(data)]):
                raise _violation("the connection does not begin as the native protocol does")
            if len(data) < len(self._preface):
                self._held = data
                return frames
            position = len(self._preface)
            self._preface = b""
        end = len(data)
        while end - position >= HEADER_BYTES:
            length, kind, flags, reserved, channel, request = _unpack_from(data, position)
            if kind == 0 or kind > _LAST_TYPE or flags != 0 or reserved != 0:
                raise _violation(f"frame type {kind} with flags {flags} and reserved {reserved} is not known")
            if length > self.body_bytes_max:
                raise _violation(
                    f"a frame of {length} bytes exceeds the {self.body_bytes_max} bytes allowed here"
                )
            if kind == PUBLISH and length <= SEQUENCE_BYTES:
                raise _violation(f"a PUBLISH of {length} bytes holds no message")
            body_at = position + HEADER_BYTES
            position = body_at + length
            if position > end:
                self._kind, self._channel, self._request = kind, channel, request
                self._parts.append(memoryview(data)[body_at:])
                self._missing = position - end
                return frames
            if kind == PUBLISH:
                sequence = _unpack_sequence(data, body_at)[0]
                body = data[body_at + SEQUENCE_BYTES : position]
                frames.append(Frame(kind, channel, request, body, sequence))
            else:
                frames.append(Frame(kind, channel, request, data[body_at:position]))
        if position < end:
            self._held = data[position:]
        return frames

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._held) + sum(map(len, self._parts))

    def _keep(self, data: bytes) -> None:
        """Put more of an unfinished body aside."""
        self._missing -= len(data)
        if len(data) >= SMALL_PART_BYTES:
            self._parts.append(memoryview(data))
            return
        # An object for each of many small parts would cost far more than the parts.
        last = self._parts[-1]
        if not isinstance(last, bytearray):
            last = bytearray()
            self._parts.append(last)
        last += data

    def _finished(self) -> Frame:
        """The frame whose last part has come."""
        parts = self._parts
        self._parts = []
        self._missing = 0
        sequence = 0
        if self._kind == PUBLISH:
            if len(parts[0]) < SEQUENCE_BYTES:
                parts = [memoryview(b"".join(parts))]
            sequence = _unpack_sequence(parts[0])[0]
            parts[0] = memoryview(parts[0])[SEQUENCE_BYTES:]
        return Frame(self._kind, self._channel, self._request, b"".join(parts), sequence)


def _violation(text: str) -> Rejected:
    return Rejected(f"{text}: see docs/protocol.md", ErrorCode.PROTOCOL_VIOLATION)
