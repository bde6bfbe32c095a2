"""The Arrow part of a batch: every column and codec there and back, and everything hostile refused."""

import struct
from collections.abc import Callable
from typing import Any

import numpy
import pyarrow as pa
import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native.arrow import (
    decode_record_batch,
    delivered_batch,
    encode_payloads,
    encode_record_batch,
    rows,
    schema_of,
)
from pydanube.protocol.native.batch import (
    ATTRIBUTES,
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    COMPACTION_KEY,
    LZ4,
    NONE,
    PAYLOAD,
    PUBLISH_TIME,
    ROUTING_KEY,
    ZSTD,
    encode_batch,
    read_layout,
)
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native_pb2 import BatchHead

HEAD = BatchHead(producer_id=7, producer_name="p")
PAYLOADS = [b"first", b"", bytes(range(256)) * 4]
COLUMNS: dict[str, list[Any]] = {
    "publish_times": [1_700_000_000_000, 0, 5],
    "routing_keys": ["k", None, ""],
    "attributes": [{"a": "own"}, None, {"ü": "ö", "b": ""}],
    "schema_ids": [2**64 - 1, None, 0],
    "schema_versions": [None, 2**32 - 1, 0],
    "compaction_keys": [b"key", None, "ß".encode()],
}


def forged(message: pa.Buffer | bytes, *, count: int = 1, columns: int = PAYLOAD, head: bytes = b"") -> bytes:
    """A batch around any Arrow message, without the encoder's checks."""
    return encode_batch(
        head, bytes(message), codec=NONE, count=count, raw_bytes=len(message), columns=columns
    )


def serialized(columns: int, *arrays: pa.Array, **options: Any) -> pa.Buffer:
    fields = [field.with_nullable(True) for field in schema_of(columns)]
    batch = pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))
    if not options:
        return batch.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    return messages[-1].serialize()


def refusal_of(call: Callable[[], object]) -> Rejected:
    with pytest.raises(Rejected) as refusal:
        call()
    return refusal.value


def assert_refused(body: bytes, *words: str) -> None:
    for read in (decode_record_batch, check_batch):
        refused = refusal_of(lambda read=read: read(body))  # type: ignore[misc]
        assert refused.code is ErrorCode.BATCH_INVALID
        for word in words:
            assert word in refused.text


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
@pytest.mark.parametrize("chosen", [(), *[(name,) for name in COLUMNS], tuple(COLUMNS)])
def test_every_column_and_codec_comes_back(chosen: tuple[str, ...], codec: int) -> None:
    given = {name: COLUMNS[name] for name in chosen}
    body = encode_payloads(PAYLOADS, HEAD, codec=codec, **given)
    assert read_layout(body).codec == codec
    batch = decode_record_batch(body)
    assert batch.schema == schema_of(read_layout(body).columns)
    assert batch.column("payload").to_pylist() == PAYLOADS
    for name, values in given.items():
        column = batch.column(name.removesuffix("s") if name != "attributes" else name)
        if name == "publish_times":
            column = column.view(pa.int64())
        if name == "attributes":
            assert [None if own is None else dict(own) for own in column.to_pylist()] == values
        else:
            assert column.to_pylist() == values
    assert encode_record_batch(batch, HEAD, codec=codec) == body


def test_check_says_what_the_broker_needs() -> None:
    checked = check_batch(encode_payloads(PAYLOADS, HEAD, codec=LZ4))
    assert (checked.count, checked.payload_bytes, checked.payload_bytes_max) == (3, 1029, 1024)
    assert checked.head.producer_id == HEAD.producer_id
    assert not checked.is_timed


@pytest.mark.parametrize("name", ["deliver_at", "deliver_after", "ttl"])
def test_a_batch_with_a_time_is_timed(name: str) -> None:
    assert check_batch(encode_payloads([b""], BatchHead(**{name: 1}))).is_timed
    assert not check_batch(encode_payloads([b""], BatchHead(**{name: 0}))).is_timed


@pytest.mark.parametrize("head_bytes", range(8))
def test_the_length_of_the_head_does_not_matter(head_bytes: int) -> None:
    head = BatchHead(producer_name="n" * head_bytes)
    body = encode_payloads(PAYLOADS, head, **COLUMNS)
    batch = decode_record_batch(body)
    assert batch.column("payload").to_pylist() == PAYLOADS
    # Numbers must lie on their natural boundaries wherever the Arrow part begins.
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
    assert all(buffer.address % 8 == 0 for buffer in buffers)


def test_an_uncompressed_batch_is_not_copied() -> None:
    head = BatchHead(producer_name="n" * 6)
    body = encode_payloads([bytes(1_000_000)], head)
    assert read_layout(body).arrow_at % 8 == 0
    before = pa.total_allocated_bytes()
    batch = decode_record_batch(body)
    assert pa.total_allocated_bytes() - before < 1000
    del body
    assert batch.column("payload")[0].as_py() == bytes(1_000_000)


def test_what_compression_would_enlarge_is_left_as_it_is() -> None:
    body = encode_payloads([b"x"], HEAD, codec=LZ4)
    assert read_layout(encode_payloads([b"x" * 10_000], HEAD, codec=LZ4)).codec == LZ4
    assert read_layout(body).raw_bytes >= len(body) - read_layout(body).arrow_at


def test_a_slice_takes_only_its_part() -> None:
    whole = decode_record_batch(encode_payloads([bytes(100_000), b"x", bytes(100_000)], HEAD))
    body = encode_record_batch(whole.slice(1, 1), HEAD)
    assert len(body) < 1000
    assert decode_record_batch(body).column("payload").to_pylist() == [b"x"]


@pytest.mark.parametrize(
    "payloads", [[b""] * (BATCH_MESSAGES_MAX + 1), [bytes(BATCH_BYTES_MAX)], [bytes(2**16)] * 64]
)
@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_too_large_a_batch_may_be_split_by_the_caller(payloads: list[bytes], codec: int) -> None:
    refused = refusal_of(lambda: encode_payloads(payloads, HEAD, codec=codec))
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "columns",
    [
        {"publish_times": [1, None, 3]},
        {"publish_times": [-1, 2, 3]},
        {"publish_times": [1, 2]},
        {"schema_ids": [-1, 0, 0]},
        {"schema_versions": [2**32, 0, 0]},
        {"attributes": [{"a": None}, None, None]},
        {"compaction_keys": [b"\xff", None, None]},
        {"routing_keys": [5, None, None]},
    ],
)
def test_values_that_fit_no_column_are_refused_at_the_sender(columns: dict[str, Any]) -> None:
    assert refusal_of(lambda: encode_payloads(PAYLOADS, HEAD, **columns)).code is ErrorCode.BATCH_INVALID


def test_nothing_is_no_batch() -> None:
    assert refusal_of(lambda: encode_payloads([], HEAD)).code is ErrorCode.BATCH_INVALID


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"payload": pa.array(["text"])}),
        pa.record_batch({"payload": pa.array([b"x"], pa.large_binary())}),
        pa.record_batch({"routing_key": pa.array(["k"])}),
        pa.record_batch({"payload": pa.array([b"x"]), "more": pa.array([1])}),
        pa.record_batch({"routing_key": pa.array(["k"]), "payload": pa.array([b"x"])}),
        pa.record_batch({"payload": pa.array([None], pa.binary())}),
    ],
)
def test_only_the_columns_of_a_batch_are_encoded(batch: pa.RecordBatch) -> None:
    assert refusal_of(lambda: encode_record_batch(batch, HEAD)).code is ErrorCode.BATCH_INVALID


@pytest.mark.parametrize("codec", [LZ4, ZSTD])
@pytest.mark.parametrize("lie", [-8, -1, 1, 8, 100_000])
def test_a_lying_raw_size_is_refused(codec: int, lie: int) -> None:
    body = bytearray(encode_payloads([bytes(1000)], HEAD, codec=codec))
    struct.pack_into("<I", body, 8, read_layout(bytes(body)).raw_bytes + lie)
    assert_refused(bytes(body))


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
def test_a_batch_cut_or_continued_anywhere_is_refused(codec: int) -> None:
    body = encode_payloads([bytes(100)], HEAD, codec=codec)
    for length in range(len(body)):
        assert_refused(body[:length])
    assert_refused(body + b"\x00")
    assert_refused(body + bytes(8))


def test_a_bomb_is_refused_within_its_stated_size() -> None:
    bomb = pa.compress(bytes(200_000_000), codec="zstd", asbytes=True)
    for raw_bytes in (1000, BATCH_BYTES_MAX):
        before = pa.default_memory_pool().max_memory()
        assert_refused(encode_batch(b"", bomb, codec=ZSTD, count=1, raw_bytes=raw_bytes, columns=PAYLOAD))
        assert pa.default_memory_pool().max_memory() <= max(before, 2 * BATCH_BYTES_MAX)


def test_buffers_compressed_inside_the_message_are_refused() -> None:
    for compression in ("lz4", "zstd"):
        message = serialized(PAYLOAD, pa.array([bytes(1000)]), compression=compression)
        assert_refused(forged(message), "compressed one by one")


def test_only_a_record_batch_is_taken() -> None:
    assert_refused(forged(schema_of(PAYLOAD).serialize()), "not a record batch")
    tensor = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(numpy.zeros(3)), tensor)
    assert_refused(forged(tensor.getvalue()), "not a record batch")
    sink = pa.BufferOutputStream()
    dictionary = pa.record_batch({"payload": pa.array([b"x"]).dictionary_encode()})
    with pa.ipc.new_stream(sink, dictionary.schema) as writer:
        writer.write_batch(dictionary)
    for message in list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[:2]:
        assert_refused(forged(message.serialize()), "not a record batch")


def test_older_metadata_is_refused() -> None:
    message = serialized(PAYLOAD, pa.array([b"x"]), metadata_version=pa.ipc.MetadataVersion.V4)
    assert_refused(forged(message), "version 5")


def test_metadata_in_the_message_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"])], schema=schema_of(PAYLOAD))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"k": "v"})
    message = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))[-1]
    assert_refused(forged(message.serialize()), "metadata of its own")


def test_view_columns_are_refused() -> None:
    batch = pa.record_batch({"payload": pa.array([b"x" * 20], pa.binary_view())})
    assert_refused(forged(batch.serialize()), "view columns")


def test_a_wrong_count_is_refused() -> None:
    message = serialized(PAYLOAD, pa.array([b"x", b"y"]))
    assert_refused(forged(message, count=1))
    assert_refused(forged(message, count=3))


def test_bytes_behind_the_message_are_refused() -> None:
    assert_refused(forged(bytes(serialized(PAYLOAD, pa.array([b"x"]))) + bytes(8)), "states")


def test_other_columns_than_stated_are_refused() -> None:
    message = serialized(PAYLOAD, pa.array([b"x"]))
    assert_refused(forged(message, columns=PAYLOAD | ROUTING_KEY))
    assert_refused(forged(pa.record_batch({"payload": pa.array([1], pa.int8())}).serialize()))


def test_nulls_where_none_are_allowed_are_refused() -> None:
    assert_refused(forged(serialized(PAYLOAD, pa.array([None], pa.binary()))), "null")
    times = pa.array([None], pa.timestamp("ms", "UTC"))
    assert_refused(
        forged(serialized(PAYLOAD | PUBLISH_TIME, pa.array([b"x"]), times), columns=PAYLOAD | PUBLISH_TIME),
        "null",
    )
    attributes = pa.array([[("a", None)]], pa.map_(pa.utf8(), pa.utf8()))
    assert_refused(
        forged(serialized(PAYLOAD | ATTRIBUTES, pa.array([b"x"]), attributes), columns=PAYLOAD | ATTRIBUTES),
        "null",
    )


def test_text_that_is_not_utf_8_is_refused() -> None:
    broken = pa.array([b"\xff"])
    keys = broken.view(pa.utf8())
    assert_refused(
        forged(serialized(PAYLOAD | ROUTING_KEY, broken, keys), columns=PAYLOAD | ROUTING_KEY), "UTF"
    )
    attributes = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), keys, pa.array(["v"]))
    assert_refused(
        forged(serialized(PAYLOAD | ATTRIBUTES, broken, attributes), columns=PAYLOAD | ATTRIBUTES), "UTF"
    )
    mask = PAYLOAD | COMPACTION_KEY
    assert_refused(forged(serialized(mask, broken, broken), columns=mask), "UTF")


def test_offsets_out_of_range_are_refused() -> None:
    good = bytes(serialized(PAYLOAD, pa.array([b"abcd", b"efgh"])))
    at = good.index(struct.pack("<iii", 0, 4, 8))
    for offsets in ((0, 4, 9), (0, 4, 2**31 - 1), (0, -1, 8), (0, 9, 8), (-4, 4, 8)):
        message = bytearray(good)
        struct.pack_into("<iii", message, at, *offsets)
        assert_refused(forged(bytes(message), count=2))


@pytest.mark.parametrize("name", ["x-deliver-at", "x-deliver-after", "x-ttl", "x-compaction-key"])
def test_what_has_its_own_place_in_a_batch_is_no_attribute(name: str) -> None:
    for body in (
        encode_payloads([b""], BatchHead(attributes={name: "1"})),
        encode_payloads([b"", b""], HEAD, attributes=[None, {"a": "b", name: "1"}]),
    ):
        refused = refusal_of(lambda body=body: check_batch(body))  # type: ignore[misc]
        assert refused.code is ErrorCode.BATCH_INVALID
        assert name in refused.text


@pytest.mark.parametrize(
    "head",
    [
        b"\x00",
        b"\x12\x05p",
        b"\x12\x01\xff",
        BatchHead(producer_name="n" * 256).SerializeToString(),
        BatchHead(publish_time=2**63).SerializeToString(),
        BatchHead(deliver_at=2**63).SerializeToString(),
        BatchHead(ttl=2**64 - 1).SerializeToString(),
    ],
)
def test_a_broken_head_is_refused_by_every_reader(head: bytes) -> None:
    body = forged(serialized(PAYLOAD, pa.array([b"x"])), head=head)
    for read in (
        lambda: check_batch(body),
        lambda: rows(body, "/default/t"),
        lambda: delivered_batch(Item(0, 0, 0, 1, 1, body), "/default/t"),
    ):
        assert refusal_of(read).code is ErrorCode.BATCH_INVALID
