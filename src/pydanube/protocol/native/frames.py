"""Frames of the native protocol: a 16-byte header and a body, cut out of a stream of bytes in any chunking."""

import struct
from typing import Final

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.unfilled import SIZE_MIN, unfilled_bytes

PREFACE: Final = b"DANUBE\r\n"
"""The first bytes of every connection: no other protocol of the port begins so."""
ALPN: Final = "danube/1"
VERSION: Final = 1

HEADER_BYTES: Final = 16
SEQUENCE_BYTES: Final = 8
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024 + 64 * 1024
"""Largest body of a frame."""
PING_BYTES_MAX: Final = 64
LARGE_REST_BYTES: Final = 16 * 1024
"""From here on the rest of a body is received by itself: a system call more costs less than a copy."""
LOOK_AHEAD_BYTES: Final = 1024
"""Read where a large frame is expected: enough for its header."""
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
    """Cuts frames out of received bytes.

    Who can choose where to receive asks for `room` and says what came by `received`: then the body of a large frame comes to
    lie where it stays, and a small one is copied once. Who is given bytes hands them to `receive`.

    Holds at most one unfinished frame. `body_bytes_max` may be raised once the peer is known; a frame that claims
    more is refused as soon as its header is read, before its body is held.
    """

    def __init__(
        self, body_bytes_max: int, *, preface: bytes = b"", buffer: memoryview | None = None
    ) -> None:
        self.body_bytes_max = body_bytes_max
        self._preface = preface
        self._buffer: Final = memoryview(bytearray(HEADER_BYTES)) if buffer is None else buffer
        """For what is not the body of a large frame. Nothing is left in it, so readers may share one."""
        self._held = b""
        """Bytes that are not yet a header."""
        self._body = b""
        """Of the unfinished frame; where nothing has come yet, its content is arbitrary."""
        self._rest = self._buffer[:0]
        """The part of it that has not come; empty if there is no unfinished frame."""
        self._kind = 0
        self._channel = 0
        self._request = 0
        self._sequence = 0
        self._expects_large = False

    def room(self) -> memoryview:
        """Where to put what comes next; never empty, and to be used before anything else is asked of the reader."""
        if len(self._rest) >= LARGE_REST_BYTES:
            return self._rest
        # Behind a large frame there mostly is another one: what is read of its body now would have to be copied.
        return self._buffer[:LOOK_AHEAD_BYTES] if self._expects_large else self._buffer

    def received(self, size: int) -> list[Frame]:
        """So many bytes were put into the `room`; the frames they complete, in order.

        Raises:
            Rejected: the peer violates the protocol; nothing more can be read from it.
        """
        rest = self._rest
        if len(rest) < LARGE_REST_BYTES:
            self._expects_large = False
            return self.receive(bytes(self._buffer[:size]))
        self._rest = rest[size:]
        if len(self._rest):
            return []
        self._expects_large = True
        return [self._finished()]

    def receive(self, data: bytes) -> list[Frame]:
        """The frames completed by these bytes, in order.

        Raises:
            Rejected: the peer violates the protocol; nothing more can be read from it.
        """
        frames: list[Frame] = []
        position = 0
        missing = len(self._rest)
        if missing:
            if len(data) < missing:
                self._fill(data, 0)
                return frames
            position = missing
            self._rest[:] = memoryview(data)[:position]
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
            body_at = position + HEADER_BYTES
            body_end = body_at + length
            sequence = 0
            if kind == PUBLISH:
                if length <= SEQUENCE_BYTES:
                    raise _violation(f"a PUBLISH of {length} bytes holds no message")
                if end - body_at < SEQUENCE_BYTES:
                    break
                sequence = _unpack_sequence(data, body_at)[0]
                body_at += SEQUENCE_BYTES
            if body_end > end:
                if body_end - body_at < SIZE_MIN:
                    break
                self._kind, self._channel, self._request, self._sequence = kind, channel, request, sequence
                self._body, self._rest = unfilled_bytes(body_end - body_at)
                self._fill(data, body_at)
                return frames
            frames.append(Frame(kind, channel, request, data[body_at:body_end], sequence))
            position = body_end
        if position < end:
            self._held = data[position:]
        return frames

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished frame."""
        return len(self._held) + len(self._body) - len(self._rest)

    def _fill(self, data: bytes, position: int) -> None:
        """Put more of the unfinished body in its place; less than is missing."""
        count = len(data) - position
        self._rest[:count] = memoryview(data)[position:]
        self._rest = self._rest[count:]

    def _finished(self) -> Frame:
        """The frame whose last bytes have come."""
        frame = Frame(self._kind, self._channel, self._request, self._body, self._sequence)
        self._body = b""
        self._rest = self._buffer[:0]
        return frame


def _violation(text: str) -> Rejected:
    return Rejected(f"{text}: see docs/protocol.md", ErrorCode.PROTOCOL_VIOLATION)
