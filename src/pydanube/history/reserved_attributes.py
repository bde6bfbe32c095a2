"""Attributes that a batch has in its head or in a column of its own, but a row, and so a segment, as attributes."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.history.damage import DamagedSegmentError
from pydanube.protocol.native.columns import ATTRIBUTE_MAP
from pydanube.protocol.native.head import RESERVED_ATTRIBUTES
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE, TIMING_ATTRIBUTES

_RESERVED: Final = pa.array(sorted(RESERVED_ATTRIBUTES), pa.utf8())
_MILLISECONDS: Final = "^[0-9]{1,19}$"


@dataclass(frozen=True, slots=True)
class ReservedAttributes:
    """What the attributes of some messages say, apart from those that mean nothing to a broker."""

    timing: npt.NDArray[np.int64]
    """One row for each of TIMING_ATTRIBUTES, one column per message; 0 where a message has none."""
    has_timing: npt.NDArray[np.bool_]
    """Whether a message has any of them, be it 0: only a row can say that."""
    compaction_keys: pa.BinaryArray
    others: pa.MapArray
    """The attributes that are not reserved; null where a message has no others."""


def find_reserved(attributes: pa.MapArray) -> ReservedAttributes | None:
    """Take reserved attributes from a column that is not a slice of another; None if it has none.

    Raises:
        DamagedSegmentError: a time is not a number of milliseconds, which no publish lets through.
    """
    if attributes.null_count == len(attributes):
        return None
    keys, items = attributes.keys, attributes.items
    is_reserved = pc.is_in(keys, _RESERVED)
    if not pc.any(is_reserved).as_py():
        return None
    offsets = attributes.offsets.to_numpy()
    message_of = np.repeat(np.arange(len(attributes)), np.diff(offsets))
    timing = np.zeros((len(TIMING_ATTRIBUTES), len(attributes)), np.int64)
    has_timing = np.zeros(len(attributes), np.bool_)
    for times, name in zip(timing, TIMING_ATTRIBUTES, strict=True):
        chosen = pc.equal(keys, name)
        messages = message_of[chosen.to_numpy(zero_copy_only=False)]
        times[messages] = _milliseconds(name, items.filter(chosen))
        has_timing[messages] = True
    return ReservedAttributes(
        timing,
        has_timing,
        _compaction_keys(keys, items, message_of, len(attributes)),
        _others(attributes, is_reserved),
    )


def _milliseconds(name: str, texts: pa.StringArray) -> npt.NDArray[np.int64]:
    try:
        if pc.all(pc.match_substring_regex(texts, _MILLISECONDS), min_count=0).as_py():
            numbers: npt.NDArray[np.int64] = texts.cast(pa.int64()).to_numpy()
            return numbers
    except pa.ArrowInvalid:
        pass  # more than 63 bits
    raise DamagedSegmentError(f"an attribute {name} is not a number of milliseconds")


def _compaction_keys(
    keys: pa.StringArray, items: pa.StringArray, message_of: npt.NDArray[np.int64], count: int
) -> pa.BinaryArray:
    entries = np.flatnonzero(pc.equal(keys, COMPACTION_KEY_ATTRIBUTE).to_numpy(zero_copy_only=False))
    places = np.full(count, -1, np.int64)
    places[message_of[entries]] = entries
    return items.cast(pa.binary()).take(pa.array(places, mask=places < 0))


def _others(attributes: pa.MapArray, is_reserved: pa.BooleanArray) -> pa.MapArray:
    kept = pc.invert(is_reserved)
    ends = np.zeros(len(is_reserved) + 1, np.int32)
    np.cumsum(kept.to_numpy(zero_copy_only=False), out=ends[1:])
    offsets = ends[attributes.offsets.to_numpy()]
    is_empty = np.append(np.diff(offsets) == 0, False)
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=is_empty),
        attributes.keys.filter(kept),
        attributes.items.filter(kept),
        type=ATTRIBUTE_MAP,
    )
