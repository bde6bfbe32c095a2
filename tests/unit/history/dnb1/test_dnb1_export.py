"""Segments become files of a Danube broker: what was imported comes out byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.dnb1_export import dnb1_frames
from pydanube.history.dnb1_import import import_dnb1
from pydanube.kernel.names import TopicName
from pydanube.protocol.dnb1 import FrameDecoder, Message, decode_message, encode_frame, encode_message


def test_what_was_imported_is_exported_byte_for_byte(
    source: Path, spool: Path, make_message: Callable[..., Message]
) -> None:
    messages = [
        make_message(0),
        make_message(1)._replace(
            request_id=2**64 - 1,
            producer_id=2**64 - 1,
            broker_addr="",
            publish_time=2**63 - 1,
            subscription_name=None,
            attributes=(("b", "1"), ("a", "")),
            schema_id=2**64 - 1,
            schema_version=2**32 - 1,
            routing_key="k",
        ),
        make_message(2, b"")._replace(schema_id=0, schema_version=0, routing_key=""),
    ]
    data = b"".join([encode_frame(m.topic_offset, encode_message(m)) for m in messages])
    (source / "wal.log").write_bytes(data)
    report = import_dnb1(source, spool, topic=TopicName("default", "orders"), topic_id=9, created_ms=1)
    (segment,) = report.segments

    with pq.ParquetFile(spool / segment.segment_id) as file:
        frames = b"".join([dnb1_frames(batch, "/default/orders") for batch in file.iter_batches(2)])

    assert frames == data


def test_messages_that_came_in_a_batch_have_no_request_and_no_broker() -> None:
    row = {
        "offset": 5,
        "publish_time": 1000,
        "append_time": 2000,
        "producer_name": "p",
        "payload": b"x",
        "producer_id": 3,
    }
    batch = pa.RecordBatch.from_pylist([row], schema=SEGMENT_SCHEMA)
    decoder = FrameDecoder()
    decoder.receive(dnb1_frames(batch, "/default/t"))
    frame = decoder.next_frame()

    assert frame is not None
    assert frame.offset == 5
    assert decode_message(frame.body) == Message(
        0, 3, "/default/t", "", 5, b"x", 1000, "p", None, (), None, None, None
    )
