"""From a run file through the converter's writer into a store and back: nothing changes on the way."""

from pathlib import Path
from typing import Any

from pydanube.entries.entry import FLAG_TIMED, Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.history.convert_job import ConvertJob, RunSource
from pydanube.history.segment import segment_key
from pydanube.history.segment_file import write_segment
from pydanube.history.segment_reader import SegmentReader
from pydanube.kernel.names import TopicName
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import is_batch, message_count
from pydanube.protocol.native.timing import timing
from pydanube.protocol.native_pb2 import BatchHead

TOPIC = TopicName("default", "orders")
NOW = 1_700_000_000_000
TOPIC_ID, EPOCH, FIRST = 7, 2, 1_000

Row = tuple[int, bytes, int, bool]


def _row(number: int, **fields: Any) -> bytes:
    return StreamMessage(
        request_id=number,
        msg_id=MsgID(producer_id=4, topic_name=str(TOPIC), broker_addr="http://127.0.0.1:6650"),
        payload=b"row %d" % number,
        publish_time=NOW + number,
        producer_name="rows",
        **fields,
    ).SerializeToString()


def _batch(number: int, count: int, *, codec: int = 0, **head: Any) -> bytes:
    payloads = [b"batch %d, message %d" % (number, message) for message in range(count)]
    keys = [f"key-{message % 3}" if message % 2 else None for message in range(count)]
    shared = BatchHead(producer_id=(1 << 64) - 1, producer_name="batches", publish_time=NOW, **head)
    return arrow.encode_payloads(payloads, shared, codec=codec, routing_keys=keys)


def _published() -> list[Row]:
    bodies = [
        *[_row(number) for number in range(50)],
        _batch(0, 300),
        _batch(1, 300, codec=2, attributes={"trace": "on"}, schema_id=9, schema_version=3),
        _row(50, attributes={"x-ttl": "60000", "k": "v"}, routing_key="", subscription_name="s"),
        _batch(2, 40, deliver_after=500),
        _batch(3, 40, deliver_at=NOW + 9, ttl=70),
        _batch(4, 2),
        *[_row(number, schema_id=number, schema_version=1) for number in range(60, 70)],
    ]
    rows: list[Row] = []
    base = FIRST
    for number, body in enumerate(bodies):
        rows.append((base, body, NOW + number // 4, any(timing(body))))
        base += message_count(body)
    return rows


def _messages(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [
        (base + number, StreamMessage.FromString(body), append_ms, timing(whole), is_timed)
        for base, whole, append_ms, is_timed in rows
        for number, body in enumerate(arrow.rows(whole, str(TOPIC)) if is_batch(whole) else [whole])
    ]


def _run(folder: Path, rows: list[Row]) -> RunSource:
    heads = [
        encode_header(
            Kind.BATCH if is_batch(body) else Kind.ROW,
            body,
            message_count(body),
            TOPIC_ID,
            base,
            0,
            0,
            append_ms,
            EPOCH,
            FLAG_TIMED if is_timed else 0,
        )
        for base, body, append_ms, is_timed in rows
    ]
    buffers, descriptor = encode_run(heads, [row[1] for row in rows], created_ms=NOW)
    path = folder / descriptor.run_id
    path.write_bytes(b"".join(buffers))
    return RunSource(path=str(path), descriptor=descriptor)


async def test_what_was_published_is_read(store: Any, tmp_path: Path) -> None:
    published = _published()
    runs = (_run(tmp_path, published[:40]), _run(tmp_path, published[40:]))
    job = ConvertJob(topic=str(TOPIC), runs=runs, spool=str(tmp_path), created_ms=NOW, row_group_bytes=8_000)
    converted = write_segment(job)
    descriptor = converted.descriptor
    store.objects[segment_key(TOPIC, descriptor.segment_id)] = Path(converted.path).read_bytes()
    reader = SegmentReader(store, cache_bytes_max=1 << 20)
    found: list[Row] = []
    offset = FIRST
    while offset < descriptor.next_offset:
        found += await reader.read(TOPIC, descriptor, offset, messages_max=100, bytes_max=1 << 20)
        offset = found[-1][0] + message_count(found[-1][1])
    await reader.close()
    assert _messages(found) == _messages(published)
    assert any(is_batch(row[1]) for row in found)
    assert len(store.reads) > 3, "one row group proves less than several"
