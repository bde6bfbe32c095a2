"""Real segment files, and storage that lists and reads them as a broker's would."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_file import read_facts, verify_segment
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName

TOPIC = TopicName("default", "orders")
TOPIC_ID = 7
CREATED_MS = 1_700_000_000_000


def payload_of(offset: int) -> bytes:
    """Text, but every fifth is none."""
    return b"\xff\x00binary" if offset % 5 == 4 else f"order {offset} für dich".encode()


def write_segment(
    folder: Path,
    first: int,
    last: int,
    *,
    topic: TopicName = TOPIC,
    topic_id: int = TOPIC_ID,
    payload: bytes | None = None,
) -> Path:
    """A segment of these offsets, in row groups of a few messages."""
    with SegmentWriter(
        folder, topic=str(topic), topic_id=topic_id, epoch=1, created_ms=CREATED_MS, row_group_bytes=1
    ) as writer:
        for start in range(first, last + 1, 4):
            writer.add(_messages(range(start, min(start + 4, last + 1)), payload))
        return Path(writer.finish().path)


def _messages(offsets: range, payload: bytes | None) -> pa.Table:
    rows = [
        {
            "offset": offset,
            "publish_time": CREATED_MS + offset,
            "append_time": CREATED_MS + offset + 1,
            "producer_name": "shop",
            "routing_key": "eu" if offset % 2 else None,
            "attributes": [("kind", "order"), ("n", str(offset))] if offset % 3 == 0 else None,
            "schema_id": 3 if offset % 2 else None,
            "schema_version": 1 if offset % 2 else None,
            "payload": payload_of(offset) if payload is None else payload,
            "producer_id": 11,
            "request_id": offset,
            "broker_addr": "127.0.0.1:6650",
            "subscription_name": None,
        }
        for offset in offsets
    ]
    return pa.Table.from_pylist(rows, schema=SEGMENT_SCHEMA)


@dataclass
class StoredHistory:
    """What the admin services ask of a broker, answered from segment files in a folder."""

    folder: Path
    descriptors: list[SegmentDescriptor] = field(default_factory=list)
    unsealed: int = 0
    """Messages that a seal makes a segment of."""
    next_offset: int = 12345
    sealed_end: int = 12000
    deleted_when_read: set[str] = field(default_factory=set)
    """Segments that retention takes in that moment."""
    trouble: Exception | None = None
    imports: dict[int, dict[int, bytes]] = field(default_factory=dict)
    imported: list[SegmentDescriptor] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)

    def add(self, first: int, last: int, payload: bytes | None = None) -> Path:
        file = write_segment(self.folder, first, last, payload=payload)
        self.descriptors.append(read_facts(file))
        return file

    def segments(self, topic: TopicName) -> list[SegmentDescriptor]:
        if topic != TOPIC:
            raise Rejected(f"topic {topic} not found on this broker", ErrorCode.TOPIC_UNKNOWN)
        return self.descriptors

    def place(self, topic: TopicName, name: str) -> str:
        return f"store://{name}"

    async def seal(self, topic: TopicName) -> SimpleNamespace:
        known = len(self.segments(topic))
        if self.trouble is not None:
            raise self.trouble
        start = self.descriptors[-1].next_offset if self.descriptors else 0
        if self.unsealed:
            self.add(start, start + self.unsealed - 1)
            start, self.unsealed = start + self.unsealed, 0
        return SimpleNamespace(segments=self.descriptors[known:], next_offset=start)

    def facts(self, topic: TopicName) -> SimpleNamespace:
        self.segments(topic)
        return SimpleNamespace(
            mode="object_store",
            fsync="always",
            start_offset=0,
            next_offset=self.next_offset,
            sealed_end=self.sealed_end,
            segment_count=2,
            segment_bytes=3 << 20,
            run_count=1,
            run_bytes=4096,
            waiting_bytes=4096,
            lag_seconds=12.5,
            failures=3,
            last_error="[red]the store denied the upload",
        )

    async def read_segment(self, topic: TopicName, name: str, position: int, size: int) -> bytes:
        if self.trouble is not None:
            raise self.trouble
        if name in self.deleted_when_read:
            self.descriptors = [each for each in self.descriptors if each.segment_id != name]
        if name not in {each.segment_id for each in self.segments(topic)}:
            raise Rejected(f"topic {topic} has no segment {name}: list its segments")
        file = self.folder / name
        if not file.exists():
            raise Corrupt(f"{file} is missing: restore it from a copy", ErrorCode.SEGMENT_CORRUPT)
        return file.read_bytes()[position : position + size]

    async def begin_import(self, topic: TopicName) -> int:
        if topic == TOPIC:
            raise Conflict(
                f"topic {topic} exists: import under another name or delete it", ErrorCode.TOPIC_CONFLICT
            )
        self.imports[99] = {}
        return 99

    async def import_part(self, topic_id: int, number: int, position: int, data: bytes) -> None:
        if self.trouble is not None:
            raise self.trouble
        files = self.imports[topic_id]
        assert position == len(files.get(number, b""))
        files[number] = files.get(number, b"") + data

    async def finish_import(self, topic_id: int) -> SimpleNamespace:
        for number, data in sorted(self.imports.pop(topic_id).items()):
            findings = verify_segment(data)
            assert findings.is_good, (number, findings.problems)
            assert findings.descriptor is not None
            self.imported.append(findings.descriptor)
        first, last = self.imported[0], self.imported[-1]
        return SimpleNamespace(
            start_offset=first.start_offset, next_offset=last.next_offset, segments=len(self.imported)
        )

    async def abandon_import(self, topic_id: int) -> None:
        del self.imports[topic_id]
        self.abandoned.append(topic_id)


def store_down() -> Unavailable:
    return Unavailable("the store does not answer: it is tried again", ErrorCode.STORAGE_FAILED)
