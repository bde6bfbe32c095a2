"""Protobuf messages by the thousand: the fields of all of them, found by array operations.

Every step reads one field of each message that has some left, so the number of steps is that of the fields in the
longest message, not that of the messages. What is accepted is what `protocol/messages.py` accepts of one message:
known fields with their own wire type, numbers of at most ten bytes and 64 bits, nothing cut off.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
NumberArray = npt.NDArray[np.uint64]

SPARE_BYTES: Final = 16
"""Bytes that must follow the last message: numbers are read eight bytes at once, wherever they end."""
STEPS_MAX: Final = 256
"""A message with more fields is left to a parser that takes one at a time: steps for a few are dear."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

_CONTINUED: Final = np.uint64(0x8080_8080_8080_8080)
_SEVENS: Final = np.uint64(0x7F7F_7F7F_7F7F_7F7F)


class MalformedFieldError(ValueError):
    """The bytes at `position` of the scanned data are not the field they should be."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position
        self.why = why


class Found(NamedTuple):
    """One field as one step found it: each message at most once."""

    messages: IntArray
    """Numbers of the messages that have it here."""
    starts: IntArray
    lengths: IntArray
    """Of its bytes; both empty for a number."""
    values: NumberArray
    """Of a number; empty for bytes."""


class FieldScan(NamedTuple):
    found: dict[int, list[Found]]
    """For each known tag what was found, in the order in which protobuf lets later ones win."""
    unfinished: IntArray
    """Messages with more than STEPS_MAX fields: what was found of them is not all."""


class ScannedBytes:
    """Bytes that messages lie in, to be read at many positions at once."""

    __slots__ = ("buffer", "octets", "words")

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.octets: npt.NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        # One number of eight bytes for each byte: neighbours overlap, nothing is copied.
        self.words: NumberArray = np.ndarray((max(len(buffer) - 7, 0),), "<u8", buffer, strides=(1,))


_NOTHING: Final = np.empty(0, np.int64)
_NO_VALUES: Final = np.empty(0, np.uint64)


def scan_fields(data: ScannedBytes, starts: IntArray, ends: IntArray, fields: Mapping[int, int]) -> FieldScan:
    """Find the fields of the messages that lie at data[starts:ends].

    `fields` has the wire type of each known field by its number; others are passed over.

    Raises:
        MalformedFieldError
    """
    found: dict[int, list[Found]] = {number << 3 | kind: [] for number, kind in fields.items()}
    messages = np.flatnonzero(starts < ends)
    at, end = starts[messages], ends[messages]
    for _ in range(STEPS_MAX):
        if not messages.size:
            break
        tags, at = _varints(data, at, end)
        distinct = _distinct(tags)
        if len(distinct) == 1:
            at = _read_field(data, distinct[0], messages, at, end, found, fields)
        else:
            for tag in distinct:
                chosen = np.flatnonzero(tags == tag)
                at[chosen] = _read_field(data, tag, messages[chosen], at[chosen], end[chosen], found, fields)
        going = at < end
        if not going.all():
            messages, at, end = messages[going], at[going], end[going]
    return FieldScan(found, messages)


def _read_field(  # noqa: PLR0917
    data: ScannedBytes,
    tag: int,
    messages: IntArray,
    at: IntArray,
    end: IntArray,
    found: dict[int, list[Found]],
    fields: Mapping[int, int],
) -> IntArray:
    """Note the field with that tag, whose content begins at `at`; the positions behind it."""
    known = found.get(tag)
    if tag < 8 or tag >> 32 or (known is None and tag >> 3 in fields):
        raise MalformedFieldError(int(at[0]) - 1, f"tag {tag} is not one of this message's")
    kind = tag & 7
    if kind == _VARINT:
        values, behind = _varints(data, at, end)
        if known is not None:
            known.append(Found(messages, _NOTHING, _NOTHING, values))
        return behind
    if kind == _BYTES:
        sizes, start = _varints(data, at, end)
        _refuse(sizes > (end - start).view(np.uint64), at, "a field is longer than its message")
        lengths = sizes.view(np.int64)
        if known is not None:
            known.append(Found(messages, start, lengths, _NO_VALUES))
        return start + lengths
    if kind not in (_FIXED64, _FIXED32):
        raise MalformedFieldError(int(at[0]) - 1, f"wire type {kind} is unknown")
    behind = at + (8 if kind == _FIXED64 else 4)
    _refuse(behind > end, at - 1, "a field is cut off")
    return behind


def _varints(data: ScannedBytes, at: IntArray, end: IntArray) -> tuple[NumberArray, IntArray]:
    """The number at each position, and the position behind it."""
    # A number follows something, and behind a message's end the next one begins.
    _refuse(at >= end, at - 1, "a number is cut off")
    first = data.octets[at]
    if first.max() < 0x80:
        return first.astype(np.uint64), at + 1
    words = data.words[at]
    # The lowest of these bits is the highest of the number's last byte.
    stops = ~words & _CONTINUED
    last = stops & (~stops + np.uint64(1))
    values = _joined_sevens(words & (last - np.uint64(1)))
    sizes = (np.bitwise_count(last - np.uint64(1)) >> 3).astype(np.int64) + 1
    longer = np.flatnonzero(stops == 0)
    if longer.size:
        _add_last_bytes(data, at, longer, values, sizes)
    behind = at + sizes
    _refuse(behind > end, at, "a number is cut off")
    return values, behind


def _joined_sevens(words: NumberArray) -> NumberArray:
    """Eight groups of seven bits moved together, in three steps of twice the width each."""
    words = words & _SEVENS
    words = (words & np.uint64(0x007F_007F_007F_007F)) | (
        (words & np.uint64(0x7F00_7F00_7F00_7F00)) >> np.uint64(1)
    )
    words = (words & np.uint64(0x0000_3FFF_0000_3FFF)) | (
        (words & np.uint64(0x3FFF_0000_3FFF_0000)) >> np.uint64(2)
    )
    return (words & np.uint64(0x0FFF_FFFF)) | (words >> np.uint64(32) << np.uint64(28))


def _add_last_bytes(
    data: ScannedBytes, at: IntArray, longer: IntArray, values: NumberArray, sizes: IntArray
) -> None:
    """Complete the numbers of nine and ten bytes."""
    ninth = data.octets[at[longer] + 8].astype(np.uint64)
    tenth = data.octets[at[longer] + 9].astype(np.uint64)
    has_tenth = ninth >= 0x80
    _refuse(has_tenth & (tenth > 1), at[longer], "a number exceeds 64 bits")
    values[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
    values[longer] |= np.where(has_tenth, tenth, np.uint64(0)) << np.uint64(63)
    sizes[longer] = np.where(has_tenth, 10, 9)


def _distinct(tags: NumberArray) -> list[int]:
    first = int(tags[0])
    if (tags == tags[0]).all():
        return [first]
    if tags.max() < 0x80:
        return np.flatnonzero(np.bincount(tags.view(np.int64))).tolist()
    return [int(tag) for tag in np.unique(tags)]


def _refuse(wrong: npt.NDArray[np.bool_], at: IntArray, why: str) -> None:
    if wrong.any():
        raise MalformedFieldError(int(at[wrong.argmax()]), why)
