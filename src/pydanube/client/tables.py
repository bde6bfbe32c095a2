"""Tables as messages: columns of an application's table become the columns of batches, without a loop over rows.

Needs Arrow, and is therefore imported by the first `send_table`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.client.encoding import CODECS, Codec, Common, Sender, encode_head
from pydanube.client.outgoing import MESSAGE_OVERHEAD_BYTES, Publish
from pydanube.client.routing import partition_of_key
from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import ALL_COLUMNS, BATCH_MESSAGES_MAX

AnyTable = Any
"""An Arrow table, record batch or reader; a pandas or polars frame; anything with the Arrow C stream interface."""

_SCHEMA: Final = arrow.schema_of(ALL_COLUMNS)


def message_columns(table: AnyTable, **names: str | None) -> pa.Table:
    """The table's columns that make messages, in the order and with the types of a batch.

    `names` maps columns of a batch to those of the table; a column not named is taken if the table has one of the
    batch's own name.
    """
    source = _as_arrow(table)
    columns: dict[str, pa.ChunkedArray] = {}
    for field in _SCHEMA:
        wanted = names.get(field.name)
        name = wanted or field.name
        if name in source.column_names:
            columns[field.name] = _cast(source.column(name), field, name)
        elif wanted is not None:
            raise Rejected(f"the table has no column {name!r}: it has {', '.join(source.column_names)}")
    return pa.table(columns)


def by_partition(table: pa.Table, partitions: int) -> Iterator[tuple[pa.Table, int | None]]:
    """The rows of each partition, in order; None for rows without a key, whose partition does not matter."""
    if partitions == 1 or "routing_key" not in table.column_names:
        yield table, None if partitions > 1 else 0
        return
    keys = table.column("routing_key").combine_chunks().dictionary_encode()
    places = pa.array([partition_of_key(key, partitions) for key in keys.dictionary.to_pylist()], pa.int32())
    numbers = places.take(keys.indices) if len(places) else pa.nulls(len(keys), pa.int32())
    for number in range(partitions):
        rows = table.filter(pc.equal(numbers, number))
        if rows.num_rows:
            yield rows, number
    keyless = table.filter(pc.is_null(numbers))
    if keyless.num_rows:
        yield keyless, None


def pieces(table: pa.Table, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The table cut into record batches that fit into a batch each."""
    for batch in table.to_batches(max_chunksize=BATCH_MESSAGES_MAX):
        waiting = [batch]
        while waiting:
            batch = waiting.pop()
            if batch.num_rows > 1 and batch.nbytes > bytes_max:
                middle = batch.num_rows // 2
                waiting += (batch.slice(middle), batch.slice(0, middle))
            elif batch.num_rows:
                yield batch


class TableRun(Publish):
    """Part of a `send_table`."""

    __slots__ = ("_batch", "_common")

    def __init__(
        self, batch: pa.RecordBatch, common: Common, on_unseen: Callable[[DanubeError], None]
    ) -> None:
        super().__init__(batch.num_rows, batch.nbytes + MESSAGE_OVERHEAD_BYTES * batch.num_rows, on_unseen)
        self._batch = batch
        self._common = common

    def encode(self, sender: Sender, codec: Codec) -> list[bytes]:
        head = encode_head(sender, self._common)
        return [arrow.encode_record_batch(self._batch, head, codec=CODECS[codec])]


def _as_arrow(table: AnyTable) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, pa.RecordBatchReader):
        return table.read_all()
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.table(table)
        if hasattr(table, "to_arrow"):
            return table.to_arrow()
        return pa.Table.from_pandas(table, preserve_index=False)
    except (pa.ArrowException, TypeError, AttributeError) as error:
        raise Rejected(
            f"a {type(table).__name__} is no table: pass an Arrow table or record batch, a pandas or a polars frame"
        ) from error


def _cast(column: pa.ChunkedArray, field: pa.Field, name: str) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_large_unicode(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.utf8())
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise Rejected(
            f"column {name!r} of type {column.type} cannot be sent as {field.name}, which is {field.type}: {error}"
        ) from error
