"""Protobuf messages read in place: numbers, lengths and texts at a position, each with the position behind it."""

from typing import Final

from pydanube.kernel.errors import ErrorCode, Rejected

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5


def check_attribute(body: bytes, position: int, end: int) -> bytes:
    """Check one entry of a map of texts; its name if that begins with `x-`, as those do that mean something to a broker."""
    name = b""
    while position < end:
        tag, position = read_varint(body, position, end)
        if tag in (0x0A, 0x12):
            size, position = read_length(body, position, end)
            check_text(body, position, position + size)
            if tag == 0x0A:
                name = body[position : position + size] if body.startswith(b"x-", position) else b""
            position += size
        elif tag >> 3 <= 2:
            raise malformed("attributes", position, f"tag {tag} is not one of an attribute's")
        else:
            position = skip_field(body, tag, position, end)
    return name


def check_text(body: bytes, start: int, end: int) -> None:
    """Refuse what is not UTF-8."""
    text = body[start:end]
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise malformed("message", start, "a text field is not UTF-8") from error


def read_varint(body: bytes, position: int, end: int) -> tuple[int, int]:
    """Value and the position behind it."""
    if position < end:
        value = body[position]
        position += 1
        if value < 0x80:
            return value, position
        value &= 0x7F
        shift = 7
        while position < end and shift < 70:
            digit = body[position]
            position += 1
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                if value >> 64:
                    raise malformed("message", position, "a number exceeds 64 bits")
                return value, position
            shift += 7
    raise malformed("message", position, "a number is cut off or longer than ten bytes")


def read_length(body: bytes, position: int, end: int) -> tuple[int, int]:
    """Length of a field and the position of its first byte, both inside the message."""
    size, position = read_varint(body, position, end)
    if size > end - position:
        raise malformed("message", position, f"a field claims {size} bytes, {end - position} are left")
    return size, position


def skip_field(body: bytes, tag: int, position: int, end: int) -> int:
    """Pass over a field this release does not know."""
    kind = tag & 7
    if tag < 8 or tag >> 32:
        raise malformed("message", position, f"field number {tag >> 3} does not exist")
    if kind == _VARINT:
        return read_varint(body, position, end)[1]
    if kind == _BYTES:
        size, position = read_length(body, position, end)
        return position + size
    position += 8 if kind == _FIXED64 else 4
    if kind not in (_FIXED64, _FIXED32) or position > end:
        raise malformed("message", position, f"wire type {kind} is unknown or its field is cut off")
    return position


def malformed(what: str, position: int, why: str) -> Rejected:
    """Why a message was refused, with the place."""
    return Rejected(f"malformed {what} at byte {position}: {why}", ErrorCode.MALFORMED_REQUEST)
