"""What a broker sends, received into one buffer that is used again and again, and cut into frames."""

import struct
from typing import Final, NamedTuple

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import ITEM_HEADER_BYTES, Item, decode_items
from pydanube.protocol.native.frames import FRAME_BYTES_MAX, HEADER_BYTES, Frame

BUFFER_BYTES: Final = 256 * 1024
"""Of a new buffer; it grows by multiples of this for frames that are longer."""
KEPT_BYTES_MAX: Final = 2 * 1024 * 1024
"""A buffer beyond this is given up as soon as it is empty."""
ROOM_BYTES_MIN: Final = 4 * 1024
"""With less room than that, what lies in the buffer is moved to its beginning first."""
LARGE_ITEM_BYTES: Final = 4 * 1024
"""From here on it pays to cut an item out of the buffer itself; many small ones are copied together first."""

_HEADER = struct.Struct("<IBBHII")
_ITEM = struct.Struct("<QqIIII")


class Delivery(NamedTuple):
    """A DELIVER frame, its items cut apart."""

    channel: int
    items: list[Item]


class IncomingFrames:
    """Every body is copied once: out of the buffer, which stays in the processor's cache, into a place of its own.

    Holds at most one unfinished frame; one that claims more than a frame may have is refused before it is held.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        """What has come and is not cut yet lies from start to end."""
        self._needed = 0
        """Bytes from start that the unfinished frame has, as far as its header tells."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished frame."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where to put what comes next; never empty."""
        capacity = len(self._buffer)
        held = self._end - self._start
        if self._needed > capacity:
            self._replace_buffer(-(-self._needed // BUFFER_BYTES) * BUFFER_BYTES)
        elif not capacity or (capacity > KEPT_BYTES_MAX and not held):
            self._replace_buffer(BUFFER_BYTES)
        elif self._start and self._is_at_its_end(capacity):
            self._view[:held] = self._view[self._start : self._end]
            self._start, self._end = 0, held
        return self._view[self._end :]

    def received(self, size: int) -> list[Frame | Delivery]:
        """So many bytes were put there; the frames they complete, in order.

        Raises:
            Rejected: the broker violates the protocol; nothing more can be read from it.
        """
        found: list[Frame | Delivery] = []
        self._end += size
        while (held := self._end - self._start) >= HEADER_BYTES:
            length, kind, flags, reserved, channel, request = _HEADER.unpack_from(self._buffer, self._start)
            if not 0 < kind <= frames.CLOSED or flags or reserved:
                raise _violation(f"frame type {kind} with flags {flags} and reserved {reserved} is not known")
            if length > FRAME_BYTES_MAX:
                raise _violation(f"a frame of {length} bytes exceeds the {FRAME_BYTES_MAX} bytes allowed")
            self._needed = HEADER_BYTES + length
            if held < self._needed:
                return found
            body = self._view[self._start + HEADER_BYTES : self._start + self._needed]
            self._start += self._needed
            if kind == frames.DELIVER:
                found.append(Delivery(channel, _items(body)))
            else:
                found.append(Frame(kind, channel, request, bytes(body)))
        self._needed = 0
        if self._start == self._end:
            self._start = self._end = 0
        return found

    def _is_at_its_end(self, capacity: int) -> bool:
        """Whether the unfinished frame, or whatever comes next, does not fit behind what lies there."""
        if self._needed:
            return self._start + self._needed > capacity
        return capacity - self._end < ROOM_BYTES_MIN

    def _replace_buffer(self, size: int) -> None:
        held = self._end - self._start
        buffer = bytearray(size)
        view = memoryview(buffer)
        view[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, held


def _items(body: memoryview) -> list[Item]:
    """The items of a DELIVER body, each with a copy of its own entry body."""
    if len(body) < ITEM_HEADER_BYTES or _ITEM.unpack_from(body)[5] < LARGE_ITEM_BYTES:
        return decode_items(bytes(body))
    items: list[Item] = []
    position = 0
    end = len(body)
    while position < end:
        if end - position < ITEM_HEADER_BYTES:
            raise _violation("an item of a DELIVER is cut short")
        base, append_ms, skip, messages, attempt, length = _ITEM.unpack_from(body, position)
        position += ITEM_HEADER_BYTES
        if length > end - position:
            raise _violation(f"an item of a DELIVER claims {length} bytes, {end - position} are left")
        items.append(
            Item(base, append_ms, skip, messages, attempt, bytes(body[position : position + length]))
        )
        position += length
    return items


def _violation(text: str) -> Rejected:
    return Rejected(f"{text}: see docs/protocol.md", ErrorCode.PROTOCOL_VIOLATION)
