"""Runs on disk, made the way the journal makes them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pydanube.entries.entry import Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.history.convert_job import ConvertJob, RunSource
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native.batch import is_batch, message_count

TOPIC = "/default/orders"
TOPIC_ID = 7

MakeRun = Callable[..., RunSource]
MakeJob = Callable[..., ConvertJob]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run of these bodies and returns where it is; append times count up from 1000."""

    def make(
        bodies: Sequence[bytes], *, start: int = 0, append_ms: int = 1000, topic_id: int = TOPIC_ID
    ) -> RunSource:
        heads = []
        offset = start
        for number, body in enumerate(bodies):
            kind = Kind.BATCH if is_batch(body) else Kind.ROW
            count = message_count(body)
            heads.append(encode_header(kind, body, count, topic_id, offset, 0, 0, append_ms + number, 3))
            offset += count
        buffers, descriptor = encode_run(heads, list(bodies), created_ms=5_000)
        path = tmp_path / descriptor.run_id
        path.write_bytes(b"".join(buffers))
        return RunSource(path=str(path), descriptor=descriptor)

    return make


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    spool = tmp_path / "spool"
    spool.mkdir()

    def make(*runs: RunSource, row_group_bytes: int = 8 << 20) -> ConvertJob:
        return ConvertJob(
            topic=TOPIC,
            runs=runs,
            spool=str(spool),
            created_ms=1_700_000_000_123,
            row_group_bytes=row_group_bytes,
        )

    return make


@pytest.fixture
def row() -> Callable[..., bytes]:
    """Bytes of a StreamMessage, as a gRPC producer sends it."""

    def make(payload: bytes = b"", **fields: object) -> bytes:
        message = StreamMessage(
            request_id=1,
            msg_id=MsgID(producer_id=5, topic_name=TOPIC, broker_addr="http://127.0.0.1:6650"),
            payload=payload,
            publish_time=900,
            producer_name="till",
        )
        message.MergeFrom(StreamMessage(**fields))
        return message.SerializeToString()

    return make
