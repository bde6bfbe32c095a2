"""Messages as Spark gets them: record batches with the columns asked for."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.protocol.native.removed import REMOVED_ATTRIBUTE
from pydanube.spark.columns import MESSAGE_SCHEMA, TIME
from pydanube.spark.topics import TopicPart

TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""Spark's timestamps reach no further."""
BATCH_ROWS: Final = 4096
BATCH_BYTES: Final = 8 << 20
"""Small batches are joined until they have so much: each costs a hand-over to the JVM."""


class RowMaker:
    """Makes the rows of one part."""

    def __init__(self, part: TopicPart, columns: Sequence[str], *, may_have_removed: bool = True) -> None:
        self.schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in columns])
        self.stored_columns = [name for name in columns if name not in ("topic", "partition")]
        """To be read, with `attributes` if these have to say which messages are removed."""
        self._may_have_removed = may_have_removed
        if may_have_removed and "attributes" not in self.stored_columns:
            self.stored_columns.append("attributes")
        if not self.stored_columns:
            # Something has to say how many there are.
            self.stored_columns.append("offset")
        self._constants = {
            "topic": pa.scalar(part.topic, MESSAGE_SCHEMA.field("topic").type),
            "partition": pa.scalar(part.partition, MESSAGE_SCHEMA.field("partition").type),
        }

    def rows(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Of stored or delivered messages, those that were not removed."""
        if self._may_have_removed:
            stored = without_removed(stored)
        count = stored.num_rows
        arrays = [
            pa.repeat(self._constants[field.name], count)
            if field.name in self._constants
            else _cast(stored.column(field.name), field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def without_removed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without those rows that only keep the offset of a message that was erased or compacted away."""
    attributes = batch.column("attributes")
    if attributes.null_count == len(attributes):
        return batch
    marks = pc.map_lookup(attributes, REMOVED_ATTRIBUTE, "first")
    return batch if marks.null_count == len(marks) else batch.filter(pc.is_null(marks))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield pa.concat_batches(waiting)
            waiting.clear()
            rows = size = 0
    if rows:
        yield pa.concat_batches(waiting)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if kind == TIME:
        return _microseconds(column)
    # Ids are unsigned on the wire and keep their bits.
    return column.cast(kind, safe=not pa.types.is_integer(kind))


def _microseconds(times: pa.Array) -> pa.Array:
    try:
        return times.cast(TIME)
    except pa.ArrowInvalid:
        # A producer may claim any time; one that Spark cannot express becomes the last it can.
        return pc.min_element_wise(times.view(pa.int64()), TIME_MS_MAX).view(times.type).cast(TIME)
