"""Entries, rows and batches mixed, as one table of a segment's columns."""

from typing import Final

import numpy as np
import pyarrow as pa

from pydanube.entries.entry import Kind
from pydanube.history.batch_columns import batch_columns
from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.field_scan import IntArray
from pydanube.history.row_scan import scan_rows
from pydanube.history.run_entries import Entries

HEAD_BYTES_FREE: Final = 256
"""Of a batch's head: so much is names and numbers, which cost next to nothing as columns."""

_RAW_BYTES_AT: Final = 8
_HEAD_BYTES_AT: Final = 14


def memory_bytes(entries: Entries) -> IntArray:
    """About how large the columns of each entry become.

    A batch may be compressed, and what its head holds is then there for each of its messages.
    """
    sizes = entries.ends - entries.starts
    batches = np.flatnonzero((entries.kinds == Kind.BATCH) & (sizes > _HEAD_BYTES_AT + 2))
    if batches.size:
        starts = entries.starts[batches]
        words = entries.data.words
        raw_bytes = (words[starts + _RAW_BYTES_AT] & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        head_bytes = (words[starts + _HEAD_BYTES_AT] & np.uint64(0xFFFF)).astype(np.int64)
        shared = np.maximum(head_bytes - HEAD_BYTES_FREE, 0) * entries.messages[batches]
        sizes[batches] = raw_bytes + shared
    return sizes


def columns_of(entries: Entries) -> pa.Table:
    """The messages of these entries in the order of their offsets.

    Raises:
        Corrupt: a body is not what its entry says; the offset is named.
    """
    pieces: list[pa.RecordBatch] = []
    rows = np.flatnonzero(entries.kinds == Kind.ROW)
    if rows.size:
        pieces.append(
            scan_rows(
                entries.data,
                entries.starts[rows],
                entries.ends[rows],
                entries.bases[rows],
                entries.append_ms[rows],
            )
        )
    if rows.size < len(entries):
        pieces += batch_columns(entries, np.flatnonzero(entries.kinds == Kind.BATCH))
    table = pa.Table.from_batches(pieces, SEGMENT_SCHEMA)
    if len(pieces) == 1:
        return table
    offsets = table.column("offset").to_numpy()
    if (offsets[1:] > offsets[:-1]).all():
        return table
    order = pa.array(np.argsort(offsets))
    return table.unify_dictionaries().combine_chunks().take(order)
