"""How much memory a Protobuf payload takes once parsed, told before it is parsed.

An empty message inside another takes two bytes of payload, and in memory a place for every field its type
declares: with a type of 1,000 fields, 10 MB of payload unfold to 40 GB. Most payloads are so small that their
worst case is harmless, which one multiplication tells; the others are walked and counted until they pass.
"""

from typing import Final

from google.protobuf.descriptor import Descriptor

UNFOLDED_BYTES_MAX: Final = 64 * 1024 * 1024

# Of the parser's layout, rounded up: a string takes the most.
_MESSAGE_BYTES: Final = 32
_FIELD_BYTES: Final = 16

_DEPTH_MAX: Final = 100
"""The parser's own: what is nested deeper it refuses."""

VARINT, FIXED64, LENGTH_DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)


class Shape:
    """What one message costs, and which of its fields are messages again."""

    __slots__ = ("inner", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.inner: dict[int, Shape] = {}


_UNKNOWN: Final = Shape(0)


class Unfolding:
    """The shapes of a message type and of all it is made of."""

    def __init__(self, message: Descriptor) -> None:
        shapes: dict[str, Shape] = {}
        self._root = _shape(message, shapes)
        # No message but the outermost takes fewer than two bytes.
        self._bytes_per_byte = max(shape.size for shape in shapes.values()) // 2 + 1

    def is_harmless(self, payload: bytes) -> bool:
        """Whether parsing the payload stays within `UNFOLDED_BYTES_MAX`."""
        if not self._root.inner or len(payload) * self._bytes_per_byte <= UNFOLDED_BYTES_MAX:
            return True
        return self._size(payload) <= UNFOLDED_BYTES_MAX

    def _size(self, payload: bytes) -> int:
        """Bytes of all messages in it, counted no further than the bound or the first byte that is malformed."""
        size, position, end, shape = self._root.size, 0, len(payload), self._root
        outer: list[tuple[int, Shape]] = []
        try:
            while size <= UNFOLDED_BYTES_MAX:
                while position >= end and outer:
                    end, shape = outer.pop()
                if position >= end:
                    break
                tag, position = _varint(payload, position)
                wire_type = tag & 7
                if wire_type == VARINT:
                    _, position = _varint(payload, position)
                elif wire_type == FIXED64:
                    position += 8
                elif wire_type == FIXED32:
                    position += 4
                elif wire_type == LENGTH_DELIMITED:
                    length, position = _varint(payload, position)
                    inner = shape.inner.get(tag >> 3)
                    if inner is None:
                        position += length
                        continue
                    size += inner.size
                    if not inner.inner:
                        position += length  # no further message can hide in it
                    elif len(outer) < _DEPTH_MAX:
                        outer.append((end, shape))
                        end, shape = min(end, position + length), inner
                    else:
                        break
                elif wire_type == START_GROUP and len(outer) < _DEPTH_MAX:
                    outer.append((end, shape))
                    shape = shape.inner.get(tag >> 3, _UNKNOWN)
                    size += shape.size
                elif wire_type == END_GROUP and outer:
                    end, shape = outer.pop()
                else:
                    break
        except IndexError:
            pass  # it ends within a number: the parser will refuse it there
        return size


def _shape(message: Descriptor, shapes: dict[str, Shape]) -> Shape:
    """The shape of a message; types that contain themselves are why the known ones are passed along."""
    root = shapes[message.full_name] = Shape(_own_size(message))
    waiting = [message]
    while waiting:
        outer = waiting.pop()
        for field in outer.fields:
            inner = field.message_type
            if inner is None:
                continue
            if inner.full_name not in shapes:
                shapes[inner.full_name] = Shape(_own_size(inner))
                waiting.append(inner)
            shapes[outer.full_name].inner[field.number] = shapes[inner.full_name]
    return root


def _own_size(message: Descriptor) -> int:
    size = _MESSAGE_BYTES + _FIELD_BYTES * len(message.fields)
    # An entry of a map makes its value even if the payload does not mention it.
    value = message.fields_by_name.get("value") if message.GetOptions().map_entry else None
    return size + (_own_size(value.message_type) if value is not None and value.message_type else 0)


def _varint(payload: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, position
        shift += 7
