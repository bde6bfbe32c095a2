"""Small segments written with Arrow itself, and a store that tells what was read of it."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.segment import (
    FORMAT_VERSION,
    KEY_CHECKSUM,
    KEY_END_OFFSET,
    KEY_EPOCH,
    KEY_FORMAT,
    KEY_START_OFFSET,
    KEY_TOPIC,
    KEY_TOPIC_ID,
    SegmentDescriptor,
    segment_id,
    segment_key,
)
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.stores.store import StoredObject

TOPIC = TopicName("default", "orders")
START_MS = 1_700_000_000_000

Messages = list[dict[str, Any]]


class WatchedStore:
    """Objects in memory; remembers every read, and holds reads back while `gate` is closed."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: list[tuple[int, int]] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, key: str, position: int, size: int) -> memoryview:
        self.reads.append((position, size))
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        data = memoryview(self.objects[key])[position : position + size]
        if len(data) < size:
            raise Corrupt(
                f"{self.place(key)} is shorter than {position + size} bytes", ErrorCode.SEGMENT_CORRUPT
            )
        return data

    async def put_file(self, key: str, file: Path) -> str:
        return await self.put_bytes(key, file.read_bytes())

    async def put_bytes(self, key: str, data: bytes) -> str:
        self.objects[key] = data
        return ""

    async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
        return self.objects.get(key)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        for key, data in self.objects.items():
            if key.startswith(prefix):
                yield StoredObject(key, len(data), 0)

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def place(self, key: str) -> str:
        return f"memory:{key}"

    async def close(self) -> None:
        """Nothing is open."""


class Segment:
    """A segment in the store, and the messages it was made of."""

    def __init__(self, store: WatchedStore, messages: Messages, data: bytes, facts: dict[str, Any]) -> None:
        first, last = messages[0], messages[-1]
        append_times = [message["append_time"] for message in messages]
        fields: dict[str, Any] = {
            "segment_id": segment_id(7, first["offset"], last["offset"], 1),
            "topic_id": 7,
            "epoch": 3,
            "start_offset": first["offset"],
            "end_offset": last["offset"],
            "size": len(data),
            "checksum": f"{crc32c(data):08x}",
            "created_at": 1,
            "min_append_ms": min(append_times),
            "max_append_ms": max(append_times),
            "min_publish_ms": START_MS,
            "max_publish_ms": START_MS,
            "payload_bytes": sum(len(message["payload"]) for message in messages),
        }
        self.messages = messages
        self.descriptor = SegmentDescriptor(**fields | facts)
        self.key = segment_key(TOPIC, self.descriptor.segment_id)
        self._store = store
        store.objects[self.key] = data

    @property
    def data(self) -> bytes:
        return self._store.objects[self.key]

    @data.setter
    def data(self, value: bytes) -> None:
        self._store.objects[self.key] = value


def segment_batch(messages: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [pa.array([message[field.name] for message in messages], field.type) for field in SEGMENT_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def make_message() -> Callable[..., dict[str, Any]]:
    """A message as a segment has it, out of a batch unless it is given a request id."""

    def make(offset: int, **fields: Any) -> dict[str, Any]:
        message: dict[str, Any] = dict.fromkeys(SEGMENT_SCHEMA.names)
        message |= {
            "offset": offset,
            "publish_time": START_MS,
            "append_time": START_MS + offset,
            "producer_name": "p",
            "payload": b"payload %d" % offset,
            "producer_id": 5,
        }
        return message | fields

    return make


@pytest.fixture
def make_batch() -> Callable[[Sequence[dict[str, Any]]], pa.RecordBatch]:
    return segment_batch


@pytest.fixture
def make_segment(store: WatchedStore, make_message: Callable[..., dict[str, Any]]) -> Callable[..., Segment]:
    """A segment in the store: `groups` row groups of `rows` messages each, one millisecond apart."""

    def make(
        *,
        groups: int = 3,
        rows: int = 10,
        start: int = 100,
        metadata: dict[str, str] | None = None,
        messages: Messages | None = None,
        writing: dict[str, Any] | None = None,
        **facts: Any,
    ) -> Segment:
        if messages is None:
            messages = [make_message(offset, request_id=1) for offset in range(start, start + groups * rows)]
        origin = {
            KEY_FORMAT: str(FORMAT_VERSION),
            KEY_TOPIC: str(TOPIC),
            KEY_TOPIC_ID: "7",
            KEY_EPOCH: "3",
            KEY_START_OFFSET: str(messages[0]["offset"]),
            KEY_END_OFFSET: str(messages[-1]["offset"]),
        }
        options: dict[str, Any] = {
            "write_page_checksum": True,
            "use_dictionary": ["producer_name", "broker_addr", "subscription_name"],
            "compression": "NONE",
        }
        file = io.BytesIO()
        with pq.ParquetWriter(file, SEGMENT_SCHEMA, **options | (writing or {})) as writer:
            for first in range(0, len(messages), rows):
                writer.write_batch(segment_batch(messages[first : first + rows]), row_group_size=rows)
            origin[KEY_CHECKSUM] = f"{crc32c(file.getvalue()):08x}"
            writer.add_key_value_metadata(origin | (metadata or {}))
        return Segment(store, messages, file.getvalue(), facts)

    return make
