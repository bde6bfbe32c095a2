"""The columns of a batch: encoding, decoding, checking."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native.batch import (
    APPEND_TIME,
    ATTRIBUTES,
    COMPACTION_KEY,
    LZ4,
    NONE,
    PAYLOAD,
    PUBLISH_TIME,
    PUBLISHER,
    REQUEST_ID,
    ROUTING_KEY,
    SCHEMA_ID,
    SCHEMA_VERSION,
    ZSTD,
    BatchLayout,
    encode_batch,
    exceeded_limit,
    invalid_batch,
    read_layout,
)
from pydanube.protocol.native.ipc_message import check_ipc_message
from pydanube.protocol.native_pb2 import BatchHead

TIME: Final = pa.timestamp("ms", "UTC")
ATTRIBUTE_MAP: Final = pa.map_(pa.utf8(), pa.utf8())

FIELDS: Final[tuple[tuple[int, pa.Field], ...]] = (
    (PAYLOAD, pa.field("payload", pa.binary(), nullable=False)),
    (PUBLISH_TIME, pa.field("publish_time", TIME, nullable=False)),
    (ROUTING_KEY, pa.field("routing_key", pa.utf8())),
    (ATTRIBUTES, pa.field("attributes", ATTRIBUTE_MAP)),
    (SCHEMA_ID, pa.field("schema_id", pa.uint64())),
    (SCHEMA_VERSION, pa.field("schema_version", pa.uint32())),
    (COMPACTION_KEY, pa.field("compaction_key", pa.binary())),
    (APPEND_TIME, pa.field("append_time", TIME, nullable=False)),
    (PUBLISHER, pa.field("publisher", pa.uint16(), nullable=False)),
    (REQUEST_ID, pa.field("request_id", pa.uint64())),
)
_COLUMN_OF_NAME: Final[dict[str, int]] = {field.name: column for column, field in FIELDS}
_CODEC_NAMES: Final[dict[int, str]] = {LZ4: "lz4", ZSTD: "zstd"}


@lru_cache(maxsize=128)
def schema_of(columns: int) -> pa.Schema:
    """The Arrow schema of a batch with these columns."""
    return pa.schema([field for column, field in FIELDS if columns & column])


def encode_payloads(
    payloads: Sequence[bytes],
    head: BatchHead,
    *,
    codec: int = NONE,
    publish_times: Sequence[int] | None = None,
    routing_keys: Sequence[str | None] | None = None,
    attributes: Sequence[Mapping[str, str] | None] | None = None,
    schema_ids: Sequence[int | None] | None = None,
    schema_versions: Sequence[int | None] | None = None,
    compaction_keys: Sequence[bytes | None] | None = None,
) -> bytes:
    """A batch of these messages; a column that is None is absent.

    Raises:
        Rejected: MESSAGE_TOO_LARGE if it exceeds a limit of batches, so that the caller may split it.
    """
    columns = PAYLOAD
    values: list[Sequence[Any]] = [payloads]
    for column, given in (
        (PUBLISH_TIME, publish_times),
        (ROUTING_KEY, routing_keys),
        (ATTRIBUTES, attributes),
        (SCHEMA_ID, schema_ids),
        (SCHEMA_VERSION, schema_versions),
        (COMPACTION_KEY, compaction_keys),
    ):
        if given is not None:
            columns |= column
            values.append(given)
    schema = schema_of(columns)
    try:
        arrays = [_array(value, field.type) for value, field in zip(values, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise invalid_batch(f"the messages do not fit their columns ({error})") from error
    return _encode(batch, head, codec=codec, columns=columns)


def encode_record_batch(batch: pa.RecordBatch, head: BatchHead, *, codec: int = NONE) -> bytes:
    """A batch of these columns, which must be those of `schema_of` for some mask, in that order."""
    columns = 0
    for name in batch.schema.names:
        columns |= _COLUMN_OF_NAME.get(name, 0)
    schema = schema_of(columns)
    if batch.schema.names != schema.names or batch.schema.types != schema.types or not columns & PAYLOAD:
        raise invalid_batch(
            f"its columns are {_described(batch.schema)}, not {_described(schema_of(columns | PAYLOAD))}"
        )
    return _encode(batch, head, codec=codec, columns=columns)


def decode_record_batch(body: bytes, layout: BatchLayout | None = None) -> pa.RecordBatch:
    """The columns of a batch, checked; they refer to `body` where it is not compressed."""
    layout = layout or read_layout(body)
    try:
        message = _arrow_part(body, layout)
        check_ipc_message(memoryview(message), layout.count)
        batch = pa.ipc.read_record_batch(message, schema_of(layout.columns))
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise invalid_batch(f"its Arrow part cannot be read ({error})") from error
    _check_values(batch)
    return batch


def publisher_numbers(batch: pa.RecordBatch, publishers: int) -> pa.Array | None:
    """For each message which of so many publishers it came from; None if there is no such column."""
    if "publisher" not in batch.schema.names:
        return None
    numbers = batch.column("publisher")
    if pc.max(numbers).as_py() >= publishers:
        raise invalid_batch("a message came from a publisher that its head does not name")
    return numbers


def attribute_names(batch: pa.RecordBatch) -> list[str]:
    """Every name an attribute of some row has."""
    names: list[str] = pc.unique(batch.column("attributes").keys).to_pylist()
    return names


def longest(payload: pa.BinaryArray) -> int:
    """Bytes of the largest payload."""
    largest: int = pc.max(pc.binary_length(payload)).as_py()
    return largest


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == ATTRIBUTE_MAP:
        values = [None if value is None else list(value.items()) for value in values]
    array = pa.array(values, kind)
    if not isinstance(array, pa.Array):
        # More than Arrow's 32-bit offsets reach, so it came in chunks.
        raise Rejected("batch too large: send smaller ones", ErrorCode.MESSAGE_TOO_LARGE)
    return array


def _described(schema: pa.Schema) -> str:
    return ", ".join([f"{field.name} {field.type}" for field in schema])


def _encode(batch: pa.RecordBatch, head: BatchHead, *, codec: int, columns: int) -> bytes:
    if batch.num_rows == 0:
        raise invalid_batch("it holds no messages")
    _check_values(batch)
    message = batch.serialize()
    raw_bytes = message.size
    head_bytes = head.SerializeToString()
    if codec != NONE and not exceeded_limit(batch.num_rows, raw_bytes, len(head_bytes)):
        compressed = pa.compress(message, codec=_CODEC_NAMES[codec])
        if compressed.size < raw_bytes:
            message = compressed
        else:
            codec = NONE
    return encode_batch(
        head_bytes,
        memoryview(message),
        codec=codec,
        count=batch.num_rows,
        raw_bytes=raw_bytes,
        columns=columns,
    )


def _arrow_part(body: bytes, layout: BatchLayout) -> pa.Buffer:
    """The Arrow message, decompressed."""
    if layout.codec == NONE:
        if layout.arrow_at % 8:
            # Numbers must lie on their natural boundaries; a copy does, and costs little beside a refusal.
            return pa.py_buffer(body[layout.arrow_at :])
        return pa.py_buffer(body).slice(layout.arrow_at)
    compressed = pa.py_buffer(body).slice(layout.arrow_at)
    if layout.codec == ZSTD:
        # In one go, so that no window is set aside; anything but exactly this size is an error.
        return pa.decompress(compressed, layout.raw_bytes, codec="zstd")
    # In one go, too little LZ4 would leave the rest of the memory as it was found, for consumers to read.
    message = pa.CompressedInputStream(pa.BufferReader(compressed), "lz4").read_buffer(layout.raw_bytes + 1)
    if message.size != layout.raw_bytes:
        raise invalid_batch(f"its Arrow part is not the {layout.raw_bytes} bytes stated")
    return message


def _check_values(batch: pa.RecordBatch) -> None:
    """Refuse what the types alone would allow."""
    names = batch.schema.names
    if batch.column("payload").null_count:
        raise invalid_batch("a payload is null")
    if "publish_time" in names:
        times = batch.column("publish_time")
        if times.null_count or pc.min(times.view(pa.int64())).as_py() < 0:
            raise invalid_batch("a publish time is null or lies before 1970")
    for name in ("append_time", "publisher"):
        if name in names and batch.column(name).null_count:
            raise invalid_batch(f"a value of column {name} is null")
    if "attributes" in names and batch.column("attributes").items.null_count:
        raise invalid_batch("the value of an attribute is null")
    if "compaction_key" in names:
        # Binary, but rows have it as text.
        try:
            batch.column("compaction_key").view(pa.utf8()).validate(full=True)
        except pa.ArrowException as error:
            raise invalid_batch(f"a compaction key is not UTF-8 ({error})") from error
