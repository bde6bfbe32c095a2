"""Removing messages from the columns of a segment: what they said goes, their offsets and times stay."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.protocol.native.removed import REMOVED_ATTRIBUTE, REMOVED_TTL_MS
from pydanube.protocol.native.timing import TTL_ATTRIBUTE

Chosen = npt.NDArray[np.bool_]
"""One value per message."""

_KEPT: Final = ("offset", "publish_time", "append_time")


def remove_messages(table: pa.Table, chosen: Chosen, why: str) -> pa.Table:
    """The same rows of SEGMENT_SCHEMA, with nothing left of what the chosen messages said, nor of who said it."""
    if not chosen.any():
        return table
    blank = pa.Table.from_pylist([_blank(why)], SEGMENT_SCHEMA)
    count = table.num_rows
    # The blank is behind the last row, and stands for every chosen one.
    rows = pa.array(np.where(chosen, count, np.arange(count)))
    wiped = pa.concat_tables([table, blank]).unify_dictionaries().combine_chunks().take(rows)
    return pa.Table.from_arrays(
        [
            table.column(field.name) if field.name in _KEPT else _only_used(wiped.column(field.name), field)
            for field in SEGMENT_SCHEMA
        ],
        schema=SEGMENT_SCHEMA,
    )


def _only_used(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Without what a dictionary still knows of messages that are gone: it would be written with the others."""
    if not pa.types.is_dictionary(field.type):
        return column
    return column.cast(field.type.value_type).dictionary_encode().cast(field.type)


def were_removed(table: pa.Table) -> Chosen:
    """Which messages were removed before."""
    marks = attribute_of(table, REMOVED_ATTRIBUTE)
    removed: Chosen = marks.is_valid().to_numpy(zero_copy_only=False)
    return removed


def attribute_of(table: pa.Table, name: str) -> pa.StringArray:
    """The attribute of each message; null if it has none of that name."""
    return pc.map_lookup(table.column("attributes").combine_chunks(), name, "first")


def _blank(why: str) -> dict[str, object]:
    return {
        "offset": 0,
        "publish_time": 0,
        "append_time": 0,
        "producer_name": "",
        # Over since a millisecond after it came, so that subscriptions pass over it as they do over every expired one.
        "attributes": [(REMOVED_ATTRIBUTE, why), (TTL_ATTRIBUTE, str(REMOVED_TTL_MS))],
        "payload": b"",
        "producer_id": 0,
    }
