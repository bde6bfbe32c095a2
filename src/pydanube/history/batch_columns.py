"""Batches of native producers as columns of a segment: all that have the same columns of their own at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pydanube.history.attribute_maps import map_column
from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.field_scan import IntArray
from pydanube.history.run_entries import Entries
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected
from pydanube.protocol.native.batch import (
    ATTRIBUTES,
    COMPACTION_KEY,
    PUBLISH_TIME,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    read_layout,
)
from pydanube.protocol.native.columns import ATTRIBUTE_MAP, decode_record_batch
from pydanube.protocol.native.head import decode_head, shared_attributes
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE
from pydanube.protocol.native_pb2 import BatchHead

_ONLY_OF_ROWS: Final = ("request_id", "broker_addr", "subscription_name")


@dataclass(frozen=True, slots=True)
class _Batch:
    base: int
    append_ms: int
    head: BatchHead
    attributes: dict[str, str]
    """Of the head, so of every message."""
    columns: pa.RecordBatch


def batch_columns(entries: Entries, numbers: IntArray) -> list[pa.RecordBatch]:
    """The messages of these entries, all of them batches: in the order of offsets within each record batch only.

    Raises:
        Corrupt: a body is no batch, or another one than its entry says; the offset is named.
    """
    groups: dict[int, list[_Batch]] = {}
    for start, end, base, messages, append_ms in zip(
        entries.starts[numbers].tolist(),
        entries.ends[numbers].tolist(),
        entries.bases[numbers].tolist(),
        entries.messages[numbers].tolist(),
        entries.append_ms[numbers].tolist(),
        strict=True,
    ):
        try:
            mask, batch = _decode(entries.data.buffer[start:end], base, messages, append_ms)
        except Rejected as error:
            raise Corrupt(
                f"the batch at offset {base} cannot be read: {error.text}: restore the run from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            ) from error
        groups.setdefault(mask, []).append(batch)
    return [_joined(mask, batches) for mask, batches in groups.items()]


def _decode(body: bytes, base: int, messages: int, append_ms: int) -> tuple[int, _Batch]:
    layout = read_layout(body)
    if layout.count != messages:
        raise Rejected(f"it holds {layout.count} messages, its entry says {messages}")
    head = decode_head(layout)
    columns = decode_record_batch(body, layout)
    return layout.columns, _Batch(base, append_ms, head, shared_attributes(head), columns)


def _joined(mask: int, batches: Sequence[_Batch]) -> pa.RecordBatch:
    """Batches whose columns are those of the mask; what they lack is in their heads."""
    heads = [batch.head for batch in batches]
    counts = np.array([batch.columns.num_rows for batch in batches])
    batch_of = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    offsets = np.arange(len(batch_of)) + np.repeat(
        np.array([batch.base for batch in batches]) - firsts, counts
    )
    own = pa.concat_batches([batch.columns for batch in batches])
    shared = partial(_of_its_batch, batch_of)

    def own_or_shared(column: int, name: str, of_head: Callable[[BatchHead], Any]) -> pa.Array:
        if mask & column:
            return _as_signed(own.column(name))
        return shared(name, [of_head(head) for head in heads])

    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets),
            own_or_shared(PUBLISH_TIME, "publish_time", lambda head: head.publish_time),
            shared("append_time", [batch.append_ms for batch in batches]),
            shared("producer_name", [head.producer_name for head in heads]),
            own_or_shared(
                ROUTING_KEY,
                "routing_key",
                lambda head: head.routing_key if head.HasField("routing_key") else None,
            ),
            _attributes(mask, own, [batch.attributes for batch in batches], batch_of),
            own_or_shared(
                SCHEMA_ID,
                "schema_id",
                lambda head: _signed(head.schema_id) if head.HasField("schema_id") else None,
            ),
            own_or_shared(
                SCHEMA_VERSION,
                "schema_version",
                lambda head: head.schema_version if head.HasField("schema_version") else None,
            ),
            own.column("payload"),
            shared("producer_id", [_signed(head.producer_id) for head in heads]),
            *[pa.nulls(len(batch_of), SEGMENT_SCHEMA.field(name).type) for name in _ONLY_OF_ROWS],
        ],
        schema=SEGMENT_SCHEMA,
    )


def _of_its_batch(batch_of: IntArray, name: str, values: Sequence[Any]) -> pa.Array:
    """For each message the value of its batch."""
    return pa.array(values, SEGMENT_SCHEMA.field(name).type).take(pa.array(batch_of))


def _as_signed(column: pa.Array) -> pa.Array:
    if column.type == pa.uint64():
        return column.view(pa.int64())
    return column.cast(pa.int64()) if column.type == pa.uint32() else column


def _signed(number: int) -> int:
    """The signed number of the same 64 bits."""
    return number - (1 << 64) if number >> 63 else number


def _attributes(
    mask: int, own: pa.RecordBatch, shared: Sequence[dict[str, str]], batch_of: IntArray
) -> pa.Array:
    """Attributes of each message as its `StreamMessage` would have them: those of the head, its own, its key."""
    count = len(batch_of)
    has_shared = any(shared)
    if not has_shared and not mask & (ATTRIBUTES | COMPACTION_KEY):
        return pa.nulls(count, ATTRIBUTE_MAP)
    if not has_shared and not mask & COMPACTION_KEY:
        return own.column("attributes")
    of_batches = pa.array([list(attributes.items()) or None for attributes in shared], ATTRIBUTE_MAP)
    parts = [_flat(of_batches.take(pa.array(batch_of)))]
    if mask & ATTRIBUTES:
        parts.append(_flat(own.column("attributes")))
    if mask & COMPACTION_KEY:
        compaction_keys = own.column("compaction_key")
        messages = np.flatnonzero(compaction_keys.is_valid().to_numpy(zero_copy_only=False))
        name = pa.repeat(pa.scalar(COMPACTION_KEY_ATTRIBUTE), len(messages))
        parts.append((messages, name, compaction_keys.drop_null().cast(pa.utf8())))
    messages = np.concatenate([part[0] for part in parts])
    # What comes later in a part that comes later counts.
    order = np.argsort(messages, kind="stable")
    taken = pa.array(order)
    keys = pa.concat_arrays([part[1] for part in parts]).take(taken)
    values = pa.concat_arrays([part[2] for part in parts]).take(taken)
    return map_column(messages[order], keys, values, count)


def _flat(maps: pa.MapArray) -> tuple[IntArray, pa.Array, pa.Array]:
    """Keys and values of all maps, each with the number of its map."""
    numbers = np.flatnonzero(maps.is_valid().to_numpy(zero_copy_only=False))
    # A null may have a length too, and something under it.
    maps = maps.drop_null()
    edges = maps.offsets.to_numpy()
    first, count = int(edges[0]), int(edges[-1] - edges[0])
    messages = np.repeat(numbers, np.diff(edges))
    return messages, maps.keys.slice(first, count), maps.items.slice(first, count)
