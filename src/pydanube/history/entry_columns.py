"""Entries, rows and batches mixed, as one table of a segment's columns."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pydanube.entries.entry import Kind
from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.field_scan import IntArray
from pydanube.history.row_scan import scan_rows
from pydanube.history.run_entries import Entries
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected
from pydanube.protocol.native.batch import PAYLOAD, BatchLayout, read_layout
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.columns import decode_record_batch
from pydanube.protocol.native.delivered import delivered_batch
from pydanube.protocol.native.head import decode_head, shared_attributes
from pydanube.protocol.native_pb2 import BatchHead

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


def columns_of(entries: Entries, topic: str) -> pa.Table:
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
        pieces += _batch_columns(entries, np.flatnonzero(entries.kinds == Kind.BATCH), topic)
    table = pa.Table.from_batches(pieces, SEGMENT_SCHEMA)
    if len(pieces) == 1:
        return table
    offsets = table.column("offset").to_numpy()
    if (offsets[1:] > offsets[:-1]).all():
        return table
    order = pa.array(np.argsort(offsets))
    return table.unify_dictionaries().combine_chunks().take(order)


def _batch_columns(entries: Entries, batches: IntArray, topic: str) -> list[pa.RecordBatch]:
    plain = _PlainBatches()
    pieces: list[pa.RecordBatch] = []
    for start, end, base, messages, append_ms in zip(
        entries.starts[batches].tolist(),
        entries.ends[batches].tolist(),
        entries.bases[batches].tolist(),
        entries.messages[batches].tolist(),
        entries.append_ms[batches].tolist(),
        strict=True,
    ):
        body = entries.data.buffer[start:end]
        try:
            layout = read_layout(body)
            if layout.count != messages:
                raise Rejected(f"it holds {layout.count} messages, its entry says {messages}")
            head = decode_head(layout)
            if layout.columns == PAYLOAD and not shared_attributes(head):
                plain.add(base, append_ms, head, body, layout)
            else:
                delivered = delivered_batch(Item(base, append_ms, 0, messages, 0, body), topic)
                pieces.append(_completed(delivered, head.producer_id))
        except Rejected as error:
            raise Corrupt(
                f"the batch at offset {base} cannot be read: {error.text}: restore the run from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            ) from error
    if plain.heads:
        pieces.append(plain.columns())
    return pieces


class _PlainBatches:
    """Batches of payloads and nothing else, which is most of them, put together as one."""

    def __init__(self) -> None:
        self.heads: list[BatchHead] = []
        self._bases: list[int] = []
        self._append_ms: list[int] = []
        self._payloads: list[pa.Array] = []

    def add(self, base: int, append_ms: int, head: BatchHead, body: bytes, layout: BatchLayout) -> None:
        self._payloads.append(decode_record_batch(body, layout).column(0))
        self.heads.append(head)
        self._bases.append(base)
        self._append_ms.append(append_ms)

    def columns(self) -> pa.RecordBatch:
        counts = np.array([len(payload) for payload in self._payloads])
        batch_of = np.repeat(np.arange(len(counts)), counts)
        total = len(batch_of)
        firsts = np.cumsum(counts) - counts
        offsets = np.arange(total) + np.repeat(np.array(self._bases) - firsts, counts)
        heads = self.heads

        def repeated(name: str) -> pa.Array:
            return _taken(
                [getattr(head, name) if head.HasField(name) else None for head in heads], name, batch_of
            )

        return pa.RecordBatch.from_arrays(
            [
                pa.array(offsets),
                _taken([head.publish_time for head in heads], "publish_time", batch_of),
                _taken(self._append_ms, "append_time", batch_of),
                _taken([head.producer_name for head in heads], "producer_name", batch_of),
                repeated("routing_key"),
                pa.nulls(total, SEGMENT_SCHEMA.field("attributes").type),
                _taken(
                    [_signed(head.schema_id) if head.HasField("schema_id") else None for head in heads],
                    "schema_id",
                    batch_of,
                ),
                repeated("schema_version"),
                pa.concat_arrays(self._payloads),
                _taken([_signed(head.producer_id) for head in heads], "producer_id", batch_of),
                *_nulls_of_batches(total),
            ],
            schema=SEGMENT_SCHEMA,
        )


def _taken(values: Sequence[Any], name: str, batch_of: IntArray) -> pa.Array:
    """The value of its batch for each message."""
    return pa.array(values, SEGMENT_SCHEMA.field(name).type).take(pa.array(batch_of))


def _completed(delivered: pa.RecordBatch, producer_id: int) -> pa.RecordBatch:
    """What consumers of a batch get, with the columns that segments have beside."""
    columns = delivered.columns
    names = delivered.schema.names
    at = names.index("schema_id")
    columns[at] = columns[at].view(pa.int64())
    columns[at + 1] = columns[at + 1].cast(pa.int64())
    producer_ids = pa.repeat(pa.scalar(_signed(producer_id), pa.int64()), delivered.num_rows)
    return pa.RecordBatch.from_arrays(
        [*columns, producer_ids, *_nulls_of_batches(delivered.num_rows)], schema=SEGMENT_SCHEMA
    )


def _nulls_of_batches(count: int) -> list[pa.Array]:
    """What only rows have."""
    return [
        pa.nulls(count, SEGMENT_SCHEMA.field(name).type)
        for name in ("request_id", "broker_addr", "subscription_name")
    ]


def _signed(number: int) -> int:
    """The signed number of the same 64 bits."""
    return number - (1 << 64) if number >> 63 else number
