"""pydanube.storage.v1.StorageAdmin: sealing, looking at, reading and importing the stored history of topics."""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from google.protobuf.message import Message

from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.kernel.names import TopicName
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.calls import parse
from pydanube.wire.storage_service import topic_of

PART_BYTES_MAX: Final = 1 << 20
"""Of a segment in one message, either way: a quarter of what the wire takes."""
SEGMENTS_LISTED_MAX: Final = 1000
"""In one answer, about half a megabyte; a caller asks again from behind the last one."""

SERVICE: Final = "/pydanube.storage.v1.StorageAdmin/"


class SealOutcome(Protocol):
    @property
    def segments(self) -> Sequence[SegmentDescriptor]: ...
    @property
    def next_offset(self) -> int: ...


class StorageFacts(Protocol):
    """How a topic's history is stored; DescribeStorageResponse says what each number means."""

    @property
    def mode(self) -> str: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def sealed_end(self) -> int: ...
    @property
    def segment_count(self) -> int: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def run_count(self) -> int: ...
    @property
    def run_bytes(self) -> int: ...
    @property
    def waiting_bytes(self) -> int: ...
    @property
    def lag_seconds(self) -> float: ...
    @property
    def uploads(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def last_error(self) -> str: ...
    @property
    def fsync(self) -> str: ...


class ImportOutcome(Protocol):
    @property
    def start_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def segments(self) -> int: ...


class Storage(Protocol):
    """What the broker offers for the administration of its storage."""

    async def seal(self, topic: TopicName) -> SealOutcome: ...
    def segments(self, topic: TopicName) -> list[SegmentDescriptor]: ...
    def place(self, topic: TopicName, segment_id: str) -> str: ...
    def facts(self, topic: TopicName) -> StorageFacts: ...
    async def read_segment(self, topic: TopicName, segment_id: str, position: int, size: int) -> bytes: ...
    async def begin_import(self, topic: TopicName) -> str: ...
    async def import_part(self, import_id: str, file_number: int, position: int, data: bytes) -> None: ...
    async def finish_import(self, import_id: str) -> ImportOutcome: ...
    async def abandon_import(self, import_id: str) -> None: ...


class StorageAdminService:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def methods(self) -> dict[str, Callable[[bytes, Headers], Awaitable[bytes]]]:
        """Every method by its path."""
        answers = {
            "Seal": self.seal,
            "ListSegments": self.list_segments,
            "DescribeStorage": self.describe_storage,
            "ReadSegment": self.read_segment,
            "BeginImport": self.begin_import,
            "ImportPart": self.import_part,
            "FinishImport": self.finish_import,
            "AbandonImport": self.abandon_import,
        }
        return {SERVICE + name: _with_code(answer) for name, answer in answers.items()}

    async def seal(self, body: bytes) -> Message:
        topic = topic_of(parse(pb.SealRequest, body).topic)
        outcome = await self._storage.seal(topic)
        return pb.SealResponse(
            segments=[self._segment(topic, each) for each in outcome.segments],
            next_offset=outcome.next_offset,
        )

    async def list_segments(self, body: bytes) -> Message:
        request = parse(pb.ListSegmentsRequest, body)
        topic = topic_of(request.topic)
        segments = self._storage.segments(topic)
        first = bisect_left(segments, request.from_offset, key=lambda each: each.end_offset)
        last = first + min(request.limit or SEGMENTS_LISTED_MAX, SEGMENTS_LISTED_MAX)
        return pb.ListSegmentsResponse(
            segments=[self._segment(topic, each) for each in segments[first:last]],
            has_more=last < len(segments),
        )

    async def describe_storage(self, body: bytes) -> Message:
        topic = topic_of(parse(pb.DescribeStorageRequest, body).topic)
        facts = self._storage.facts(topic)
        return pb.DescribeStorageResponse(
            topic=str(topic),
            mode=facts.mode,
            start_offset=facts.start_offset,
            next_offset=facts.next_offset,
            sealed_end=facts.sealed_end,
            segment_count=facts.segment_count,
            segment_bytes=facts.segment_bytes,
            run_count=facts.run_count,
            run_bytes=facts.run_bytes,
            waiting_bytes=facts.waiting_bytes,
            lag_seconds=facts.lag_seconds,
            uploads=facts.uploads,
            failures=facts.failures,
            last_error=facts.last_error,
            fsync=facts.fsync,
        )

    async def read_segment(self, body: bytes) -> Message:
        request = parse(pb.ReadSegmentRequest, body)
        if not 0 < request.size <= PART_BYTES_MAX:
            raise Rejected(f"size {request.size} is not in 1 … {PART_BYTES_MAX} bytes: read in smaller parts")
        data = await self._storage.read_segment(
            topic_of(request.topic), request.segment_id, request.position, request.size
        )
        return pb.ReadSegmentResponse(position=request.position, data=data)

    async def begin_import(self, body: bytes) -> Message:
        topic = topic_of(parse(pb.BeginImportRequest, body).topic)
        return pb.BeginImportResponse(import_id=await self._storage.begin_import(topic))

    async def import_part(self, body: bytes) -> Message:
        request = parse(pb.ImportPartRequest, body)
        if not 0 < len(request.data) <= PART_BYTES_MAX:
            raise Rejected(f"a part of {len(request.data)} bytes: send 1 … {PART_BYTES_MAX} bytes at a time")
        await self._storage.import_part(
            request.import_id, request.file_number, request.position, request.data
        )
        return pb.ImportPartResponse()

    async def finish_import(self, body: bytes) -> Message:
        outcome = await self._storage.finish_import(parse(pb.FinishImportRequest, body).import_id)
        return pb.FinishImportResponse(
            start_offset=outcome.start_offset, next_offset=outcome.next_offset, segments=outcome.segments
        )

    async def abandon_import(self, body: bytes) -> Message:
        await self._storage.abandon_import(parse(pb.AbandonImportRequest, body).import_id)
        return pb.AbandonImportResponse()

    def _segment(self, topic: TopicName, descriptor: SegmentDescriptor) -> pb.Segment:
        return pb.Segment(
            segment_id=descriptor.segment_id,
            topic_id=descriptor.topic_id,
            epoch=descriptor.epoch,
            start_offset=descriptor.start_offset,
            end_offset=descriptor.end_offset,
            size=descriptor.size,
            checksum=descriptor.checksum,
            created_at=descriptor.created_at,
            min_append_ms=descriptor.min_append_ms,
            max_append_ms=descriptor.max_append_ms,
            min_publish_ms=descriptor.min_publish_ms,
            max_publish_ms=descriptor.max_publish_ms,
            payload_bytes=descriptor.payload_bytes,
            etag=descriptor.etag,
            place=self._storage.place(topic, descriptor.segment_id),
        )


def _with_code(answer: Callable[[bytes], Awaitable[Message]]) -> Callable[[bytes, Headers], Awaitable[bytes]]:
    """Encode the answer; end the text of an error with its code, for gRPC has no other place for it."""

    async def run(body: bytes, headers: Headers) -> bytes:
        try:
            return (await answer(body)).SerializeToString()
        except DanubeError as error:
            raise DanubeError(f"{error.text} (code {error.code.number})", error.code) from error

    return run
