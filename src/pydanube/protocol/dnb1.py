"""Frames and messages of a Danube broker's log files and `.dnb1` segments: bytes in, messages out, and back.

A file is frames one after another, without magic, header or footer. A frame, little-endian:

    offset u64, body length u32, CRC-32 of the body u32, body

The checksum does not cover the header: a wrong length shows only as a wrong checksum or a frame that never ends.
The body is one message, its fields in a fixed order as `bincode.py` describes them.
"""

import re
import struct
from typing import Final, NamedTuple
from zlib import crc32

from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol.bincode import (
    Fields,
    Misfit,
    encode_bytes,
    encode_number,
    encode_optional_number,
    encode_optional_text,
)

HEADER_BYTES: Final = 16
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest body accepted: far above what a broker takes, far below what a flipped bit may claim."""
CHECKPOINT_BYTES_MAX: Final = 16 * 1024 * 1024
_BODY_BYTES_MIN: Final = 13
"""A message whose fields all take one byte."""

_HEADER: Final = struct.Struct("<QII")
_U32_MAX: Final = (1 << 32) - 1

_HEADER_LIKE: Final = re.compile(rb"\0\0\0(?!\0{4})(?=...[\0-\4])", re.DOTALL)
"""The top of an offset below 2**40 and a length a body can have: what frames are looked for by behind damage."""
_HEADER_LIKE_AT: Final = 5
_TOPIC_BYTES_MAX: Final = 1024
_PREFIX_BYTES: Final = 9 + 9 + 3 + 1
"""Request id, producer id, length of the topic name and its first byte, at their longest."""


class DamagedFrame(Corrupt):
    """The bytes at `position` are no frame, or no message."""

    default_code = ErrorCode.SEGMENT_CORRUPT

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"the frame at byte {position} is damaged: {why}; restore the file from a copy")
        self.position = position
        self.why = why


class Frame(NamedTuple):
    """One whole frame whose checksum is right."""

    position: int
    """Bytes before it in its file."""
    offset: int
    body: bytes


class Message(NamedTuple):
    """A message as such a broker keeps it, its fields in their stored order."""

    request_id: int
    producer_id: int
    topic_name: str
    broker_addr: str
    topic_offset: int
    payload: bytes
    publish_time: int
    """Unix milliseconds."""
    producer_name: str
    subscription_name: str | None
    attributes: tuple[tuple[str, str], ...]
    schema_id: int | None
    schema_version: int | None
    routing_key: str | None


class RotatedFile(NamedTuple):
    sequence: int
    path: str
    first_offset: int


class Checkpoint(NamedTuple):
    """What `wal.ckpt` says of a log directory. A broker often leaves it wrong: nothing but a hint."""

    start_offset: int
    last_offset: int
    file_sequence: int
    file_path: str
    rotated_files: tuple[RotatedFile, ...]
    active_file_name: str | None
    last_rotation_at: int | None
    active_file_first_offset: int | None


class FrameDecoder:
    """Cuts frames out of a file's bytes, in any chunking.

    Holds what came since the last whole frame: one frame of the largest size and one piece at most.
    """

    def __init__(self, *, position: int = 0, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self.position = position
        """Where in the file the next frame begins."""
        self._body_bytes_max = body_bytes_max
        self._data = b""
        self._at = 0
        self._more: list[bytes] = []
        """Pieces not yet joined to `_data`, so that a large frame in small pieces is copied once."""
        self._held = 0
        self._wanted = HEADER_BYTES
        """Bytes to hold before looking again is worthwhile."""

    @property
    def held_bytes(self) -> int:
        """Bytes received that were not given out as frames."""
        return self._held

    def receive(self, data: bytes) -> None:
        if data:
            self._more.append(data)
            self._held += len(data)

    def next_frame(self) -> Frame | None:
        """The next frame, or None while bytes of it are missing.

        Raises:
            DamagedFrame: the checksum is wrong, or the length cannot be. Stays so until `skip_damage`.
        """
        if self._held < self._wanted:
            return None
        self._join()
        data, at = self._data, self._at
        offset, length, checksum = _HEADER.unpack_from(data, at)
        if not _BODY_BYTES_MIN <= length <= self._body_bytes_max:
            raise DamagedFrame(
                self.position,
                f"its body would have {length} bytes, not {_BODY_BYTES_MIN} to {self._body_bytes_max}",
            )
        size = HEADER_BYTES + length
        if self._held < size:
            self._wanted = size
            return None
        body = data[at + HEADER_BYTES : at + size]
        if crc32(body) != checksum:
            raise DamagedFrame(
                self.position,
                f"the checksum of its {length} bytes is {crc32(body):08x}, not {checksum:08x} as stated",
            )
        frame = Frame(self.position, offset, body)
        self._advance(size)
        return frame

    def skip_damage(self, *, at_end: bool) -> bool:
        """Go to the next whole frame behind the damage; False while none has come.

        A frame is taken for one if its checksum is right and its body is a message of that offset. With `at_end`,
        no more bytes are to come: a frame that lacks some is none.
        """
        self._join()
        data, end = self._data, len(self._data)
        while True:
            match = _HEADER_LIKE.search(data, self._at + _HEADER_LIKE_AT)
            if match is None:
                # Only a header that is not whole yet may still begin here.
                self._advance(max(end - HEADER_BYTES + 1 - self._at, 0))
                return False
            self._advance(match.start() - _HEADER_LIKE_AT - self._at)
            is_frame = self._is_frame()
            if is_frame:
                return True
            if is_frame is None and not at_end:
                return False
            self._advance(1)

    def _is_frame(self) -> bool | None:
        """Whether a frame begins here; None if that takes more bytes to tell."""
        data, at = self._data, self._at
        if self._held < HEADER_BYTES + _PREFIX_BYTES:
            if self._held < HEADER_BYTES:
                return None
        elif not _begins_like_message(data, at + HEADER_BYTES):
            return False
        offset, length, checksum = _HEADER.unpack_from(data, at)
        if not _BODY_BYTES_MIN <= length <= self._body_bytes_max:
            return False
        if self._held < HEADER_BYTES + length:
            return None
        body = data[at + HEADER_BYTES : at + HEADER_BYTES + length]
        if crc32(body) != checksum:
            return False
        try:
            return _message(body).topic_offset == int(offset)
        except Misfit:
            return False

    def _join(self) -> None:
        if self._more:
            self._data = b"".join([self._data[self._at :], *self._more])
            self._more.clear()
            self._at = 0

    def _advance(self, size: int) -> None:
        self._at += size
        self._held -= size
        self.position += size
        self._wanted = HEADER_BYTES


def encode_frame(offset: int, body: bytes) -> bytes:
    return _HEADER.pack(offset, len(body), crc32(body)) + body


def encode_message(message: Message) -> bytes:
    """The body of a frame. The caller sees to it that numbers fit their 64 bits, the schema version its 32."""
    attributes = message.attributes
    parts = [
        encode_number(message.request_id),
        encode_number(message.producer_id),
        encode_bytes(message.topic_name.encode()),
        encode_bytes(message.broker_addr.encode()),
        encode_number(message.topic_offset),
        encode_bytes(message.payload),
        encode_number(message.publish_time),
        encode_bytes(message.producer_name.encode()),
        encode_optional_text(message.subscription_name),
        encode_number(len(attributes)),
    ]
    for name, value in attributes:
        parts += (encode_bytes(name.encode()), encode_bytes(value.encode()))
    parts += (
        encode_optional_number(message.schema_id),
        encode_optional_number(message.schema_version),
        encode_optional_text(message.routing_key),
    )
    return b"".join(parts)


def decode_message(body: bytes, position: int = 0) -> Message:
    """The message in the body of the frame at `position`.

    Raises:
        DamagedFrame: the body is not exactly one message.
    """
    try:
        return _message(body)
    except Misfit as error:
        raise DamagedFrame(position, str(error)) from error


def decode_checkpoint(data: bytes) -> Checkpoint:
    """What a `wal.ckpt` says.

    Raises:
        Corrupt: the bytes are not exactly one checkpoint.
    """
    try:
        return _checkpoint(data)
    except Misfit as error:
        raise Corrupt(f"the checkpoint is damaged: {error}", ErrorCode.SEGMENT_CORRUPT) from error


def _message(body: bytes) -> Message:
    fields = Fields(body)
    request_id = fields.number()
    producer_id = fields.number()
    topic_name = fields.text()
    broker_addr = fields.text()
    topic_offset = fields.number()
    payload = fields.sized()
    publish_time = fields.number()
    producer_name = fields.text()
    subscription_name = fields.text() if fields.is_present() else None
    attributes: tuple[tuple[str, str], ...] = ()
    # Two bytes is the least an attribute takes, so a lying count cannot make the list long.
    if count := fields.count(least_bytes=2):
        attributes = tuple([(fields.text(), fields.text()) for _ in range(count)])
    schema_id = fields.number() if fields.is_present() else None
    schema_version = fields.number(_U32_MAX) if fields.is_present() else None
    routing_key = fields.text() if fields.is_present() else None
    fields.finish()
    return Message(
        request_id,
        producer_id,
        topic_name,
        broker_addr,
        topic_offset,
        payload,
        publish_time,
        producer_name,
        subscription_name,
        attributes,
        schema_id,
        schema_version,
        routing_key,
    )


def _checkpoint(data: bytes) -> Checkpoint:
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise Misfit(f"it has {len(data)} bytes, more than {CHECKPOINT_BYTES_MAX}")
    fields = Fields(data)
    checkpoint = Checkpoint(
        start_offset=fields.number(),
        last_offset=fields.number(),
        file_sequence=fields.number(),
        file_path=fields.text(),
        rotated_files=tuple(
            [
                RotatedFile(fields.number(), fields.text(), fields.number())
                for _ in range(fields.count(least_bytes=3))
            ]
        ),
        active_file_name=fields.text() if fields.is_present() else None,
        last_rotation_at=fields.number() if fields.is_present() else None,
        active_file_first_offset=fields.number() if fields.is_present() else None,
    )
    fields.finish()
    return checkpoint


def _begins_like_message(data: bytes, at: int) -> bool:
    """Whether ids and a topic name are here: a cheap test before a checksum over many bytes."""
    fields = Fields(data[at : at + _PREFIX_BYTES])
    try:
        fields.number()
        fields.number()
        return 0 < fields.number() <= _TOPIC_BYTES_MAX and fields.number() == ord("/")
    except Misfit:
        return False
