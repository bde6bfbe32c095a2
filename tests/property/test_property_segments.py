"""Segments: any rows and batches come out of one as every kind of consumer would have got them."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.entries.entry import Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.history.columns import MESSAGE_COLUMNS
from pydanube.history.convert_job import ConvertJob, RunSource
from pydanube.history.field_scan import SPARE_BYTES, ScannedBytes
from pydanube.history.row_scan import scan_rows
from pydanube.history.segment_file import read_facts, verify_segment, write_segment
from pydanube.kernel.errors import Corrupt, Rejected
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.messages import encode_varint, scan_publish
from pydanube.protocol.native.arrow import delivered_batch, encode_payloads, rows
from pydanube.protocol.native.batch import LZ4, NONE, ZSTD, is_batch, message_count
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.head_scan import TIME_MS_MAX
from pydanube.protocol.native_pb2 import BatchHead

TOPIC = "/default/orders"
U32, U64, I63 = (st.integers(0, 2**bits - 1) for bits in (32, 64, 63))
TEXT = st.text(max_size=6)
NAMES = st.sampled_from(["a", "b", "c", ""]) | TEXT.filter(lambda name: not name.startswith("x-"))
ATTRIBUTES = st.dictionaries(NAMES, TEXT, max_size=3)
PAYLOADS = st.binary(max_size=40)


def number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def sized(field: int, value: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(value)) + value


ENCODED_TEXT = TEXT.map(str.encode)
MSG_ID_FIELDS = st.one_of(
    st.builds(number, st.sampled_from([1, 5]), U64),
    st.builds(sized, st.sampled_from([2, 3]), ENCODED_TEXT),
    st.builds(number, st.just(4), U64),
)
ATTRIBUTE_FIELDS = st.one_of(
    st.builds(sized, st.just(1), NAMES.map(str.encode)),
    st.builds(sized, st.just(2), ENCODED_TEXT),
)
"""None of a later release: the parser of this test then drops the attribute, those of most languages keep it."""
FIELDS = st.one_of(
    st.builds(number, st.sampled_from([1, 4, 8, 9]), U64),
    st.builds(sized, st.sampled_from([5, 6, 10]), ENCODED_TEXT),
    st.builds(sized, st.just(3), PAYLOADS),
    st.builds(sized, st.just(2), st.lists(MSG_ID_FIELDS, max_size=4).map(b"".join)),
    st.builds(sized, st.just(7), st.lists(ATTRIBUTE_FIELDS, max_size=3).map(b"".join)),
    # Fields of a later release.
    st.builds(number, st.integers(11, 2**29 - 1), U64),
    st.builds(sized, st.integers(11, 40), PAYLOADS),
    st.builds(
        lambda field, value: encode_varint(field << 3 | 1) + value,
        st.integers(11, 40),
        st.binary(min_size=8, max_size=8),
    ),
    st.builds(
        lambda field, value: encode_varint(field << 3 | 5) + value,
        st.integers(11, 40),
        st.binary(min_size=4, max_size=4),
    ),
)
SHUFFLED_MESSAGES = st.lists(FIELDS, max_size=12).map(b"".join)


def scan(bodies: list[bytes]) -> pa.RecordBatch:
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = ends - np.array([len(body) for body in bodies], np.int64)
    offsets = np.arange(len(bodies))
    return scan_rows(ScannedBytes(b"".join(bodies) + b"\x01" * SPARE_BYTES), starts, ends, offsets, offsets)


def columns_expected(body: bytes, *, is_row: bool) -> dict[str, object]:
    """What a segment must have of a message, by the parser of one message."""
    message = StreamMessage.FromString(body)

    def optional(name: str) -> object:
        return getattr(message, name) if message.HasField(name) else None

    return {
        "publish_time": min(message.publish_time, TIME_MS_MAX),
        "producer_name": message.producer_name,
        "routing_key": optional("routing_key"),
        "attributes": dict(message.attributes) or None,
        "schema_id": optional("schema_id"),
        "schema_version": optional("schema_version"),
        "payload": message.payload,
        "producer_id": message.msg_id.producer_id,
        "request_id": message.request_id if is_row else None,
        "broker_addr": message.msg_id.broker_addr or None,
        "subscription_name": message.subscription_name or None,
    }


def columns_delivered(body: bytes) -> list[dict[str, object]]:
    """What a consumer of the native protocol gets of an entry."""
    table = delivered_batch(Item(0, 0, 0, message_count(body), 0, body), TOPIC)
    table = table.set_column(1, "publish_time", table.column("publish_time").cast(pa.int64()))
    return [
        {**message, "attributes": dict(message["attributes"] or ()) or None} for message in table.to_pylist()
    ]


def columns_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, object]]:
    """The rows of a segment, with the numbers the wire has."""
    names = [name for name in table.schema.names if name not in ("offset", "append_time")]
    columns = {name: table.column(name) for name in names}
    columns["publish_time"] = columns["publish_time"].cast(pa.int64())
    found = []
    for values in zip(*[column.to_pylist() for column in columns.values()], strict=True):
        message = dict(zip(names, values, strict=True))
        attributes = message["attributes"] or []
        message["attributes"] = dict(attributes) or None
        assert len(dict(attributes)) == len(attributes)
        for name in ("schema_id", "producer_id", "request_id"):
            if message[name] is not None:
                message[name] %= 2**64
        found.append(message)
    return found


@given(st.lists(SHUFFLED_MESSAGES, min_size=1, max_size=12))
def test_a_scan_finds_what_the_parser_of_one_message_finds(bodies: list[bytes]) -> None:
    batch = scan(bodies)
    batch.validate(full=True)
    assert columns_of(batch) == [columns_expected(body, is_row=True) for body in bodies]


@given(st.lists(SHUFFLED_MESSAGES, max_size=3), st.data())
def test_damaged_messages_are_refused_exactly_where_a_publish_refuses_them(
    others: list[bytes], data: st.DataObject
) -> None:
    body = bytearray(data.draw(SHUFFLED_MESSAGES.filter(len)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(1, len(body))) :]
    bodies = [*others, bytes(body), b"\x1a\x01x"]
    try:
        scan_publish(bytes(body))
    except Rejected:
        with pytest.raises(Corrupt, match=f"offset {len(others)} "):
            scan(bodies)
    else:
        expected = [StreamMessage.FromString(body).payload for body in bodies]
        assert scan(bodies).column("payload").to_pylist() == expected


@st.composite
def rows_(draw: st.DrawFn) -> bytes:
    message = StreamMessage(
        request_id=draw(U64),
        msg_id=MsgID(producer_id=draw(U64), topic_name=TOPIC, broker_addr=draw(TEXT)),
        payload=draw(PAYLOADS),
        publish_time=draw(U64),
        producer_name=draw(TEXT),
        attributes=draw(ATTRIBUTES),
        routing_key=draw(st.none() | TEXT),
        schema_id=draw(st.none() | U64),
        schema_version=draw(st.none() | U32),
    )
    return message.SerializeToString()


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 5))

    def column(values: st.SearchStrategy[object]) -> list[object] | None:
        return draw(st.none() | st.lists(values, min_size=count, max_size=count))

    head = BatchHead(
        producer_id=draw(U64),
        producer_name=draw(TEXT),
        publish_time=draw(st.none() | I63),
        schema_id=draw(st.none() | U64),
        schema_version=draw(st.none() | U32),
        routing_key=draw(st.none() | TEXT),
        attributes=draw(st.just({}) | ATTRIBUTES),
        ttl=draw(st.none() | st.integers(1, 10_000)),
    )
    payloads = draw(st.lists(PAYLOADS, min_size=count, max_size=count))
    if draw(st.booleans()):
        return encode_payloads(payloads, head, codec=draw(st.sampled_from([NONE, LZ4, ZSTD])))
    return encode_payloads(
        payloads,
        head,
        codec=draw(st.sampled_from([NONE, LZ4, ZSTD])),
        publish_times=column(I63),
        routing_keys=column(st.none() | TEXT),
        attributes=column(st.none() | ATTRIBUTES),
        schema_ids=column(st.none() | U64),
        schema_versions=column(st.none() | U32),
        compaction_keys=column(st.none() | ENCODED_TEXT),
    )


def write_run(directory: Path, bodies: list[bytes], start: int) -> RunSource:
    heads = []
    for body in bodies:
        kind = Kind.BATCH if is_batch(body) else Kind.ROW
        heads.append(encode_header(kind, body, message_count(body), 7, start, 0, 0, 1000 + start, 1))
        start += message_count(body)
    buffers, descriptor = encode_run(heads, bodies, created_ms=1)
    path = directory / descriptor.run_id
    path.write_bytes(b"".join(buffers))
    return RunSource(path=str(path), descriptor=descriptor)


@given(
    st.lists(st.lists(rows_() | batches(), min_size=1, max_size=8), min_size=1, max_size=3),
    st.integers(0, 2**62),
    st.sampled_from([1, 200, 8 << 20]),
)
def test_any_rows_and_batches_come_out_of_a_segment_as_consumers_get_them(
    runs: list[list[bytes]], start: int, row_group_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        sources = []
        expected = []
        delivered = []
        for bodies in runs:
            sources.append(write_run(Path(directory), bodies, start + len(expected)))
            for body in bodies:
                singles = rows(body, TOPIC) if is_batch(body) else [body]
                delivered += columns_delivered(body)
                expected += [columns_expected(single, is_row=not is_batch(body)) for single in singles]
        job = ConvertJob(
            topic=TOPIC, runs=tuple(sources), spool=directory, created_ms=1, row_group_bytes=row_group_bytes
        )
        converted = write_segment(job)
        table = pq.read_table(converted.path)
        found = columns_of(table)
        assert found == expected
        names = set(MESSAGE_COLUMNS) - {"offset", "append_time"}
        assert [{name: one[name] for name in names} for one in found] == [
            {name: one[name] for name in names} for one in delivered
        ]
        assert table.column("offset").to_pylist() == list(range(start, start + len(expected)))
        assert read_facts(converted.path) == converted.descriptor
        assert verify_segment(converted.path).is_good
