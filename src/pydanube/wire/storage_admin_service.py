"""pydanube.storage.v1.StorageAdmin: sealing, looking at, reading, importing and replacing the stored history of topics."""

from bisect import bisect_left
from typing import Final

from google.protobuf.message import Message

from pydanube.broker.storage_control import StorageControl
from pydanube.history.listed_segment import listed_segment
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.names import TopicName
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.wire.admin_calls import Answer, Method, methods
from pydanube.wire.calls import parse
from pydanube.wire.storage_service import topic_of

SEGMENTS_LISTED_MAX: Final = 1000
"""In one answer, about half a megabyte; a caller asks again from behind the last one."""

SERVICE: Final = "pydanube.storage.v1.StorageAdmin"


class StorageAdminService:
    def __init__(self, storage: StorageControl) -> None:
        self._storage = storage

    def methods(self) -> dict[str, Method]:
        """Every method by its path."""
        answers: dict[str, Answer] = {
            "Seal": self.seal,
            "ListSegments": self.list_segments,
            "DescribeStorage": self.describe_storage,
            "ReadSegment": self.read_segment,
            "BeginImport": self.begin_import,
            "ImportPart": self.import_part,
            "FinishImport": self.finish_import,
            "AbandonImport": self.abandon_import,
            "BeginReplacement": self.begin_replacement,
            "ReplacementPart": self.replacement_part,
            "FinishReplacement": self.finish_replacement,
            "AbandonReplacement": self.abandon_replacement,
            "DropCopies": self.drop_copies,
        }
        return methods(SERVICE, answers)

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
            failures=facts.failures,
            last_error=facts.last_error,
            fsync=facts.fsync,
        )

    async def read_segment(self, body: bytes) -> Message:
        request = parse(pb.ReadSegmentRequest, body)
        data = await self._storage.read_segment(
            topic_of(request.topic), request.segment_id, request.position, request.size
        )
        return pb.ReadSegmentResponse(position=request.position, data=bytes(data))

    async def begin_import(self, body: bytes) -> Message:
        topic = topic_of(parse(pb.BeginImportRequest, body).topic)
        return pb.BeginImportResponse(topic_id=await self._storage.begin_import(topic))

    async def import_part(self, body: bytes) -> Message:
        request = parse(pb.ImportPartRequest, body)
        await self._storage.import_part(request.topic_id, request.file_number, request.position, request.data)
        return pb.ImportPartResponse()

    async def finish_import(self, body: bytes) -> Message:
        outcome = await self._storage.finish_import(parse(pb.FinishImportRequest, body).topic_id)
        return pb.FinishImportResponse(
            start_offset=outcome.start_offset, next_offset=outcome.next_offset, segments=outcome.segments
        )

    async def abandon_import(self, body: bytes) -> Message:
        await self._storage.abandon_import(parse(pb.AbandonImportRequest, body).topic_id)
        return pb.AbandonImportResponse()

    async def begin_replacement(self, body: bytes) -> Message:
        request = parse(pb.BeginReplacementRequest, body)
        number = await self._storage.begin_replacement(
            topic_of(request.topic), list(request.segment_ids), request.reason
        )
        return pb.BeginReplacementResponse(replacement_id=number)

    async def replacement_part(self, body: bytes) -> Message:
        request = parse(pb.ReplacementPartRequest, body)
        await self._storage.replacement.take_part(
            request.replacement_id,
            topic_of(request.topic),
            request.file_number,
            request.position,
            request.data,
        )
        return pb.ReplacementPartResponse()

    async def finish_replacement(self, body: bytes) -> Message:
        request = parse(pb.FinishReplacementRequest, body)
        topic = topic_of(request.topic)
        new = await self._storage.replacement.finish(request.replacement_id, topic)
        return pb.FinishReplacementResponse(segments=[self._segment(topic, each) for each in new])

    async def abandon_replacement(self, body: bytes) -> Message:
        request = parse(pb.AbandonReplacementRequest, body)
        await self._storage.replacement.abandon(request.replacement_id, topic_of(request.topic))
        return pb.AbandonReplacementResponse()

    async def drop_copies(self, body: bytes) -> Message:
        dropped = await self._storage.drop_copies(topic_of(parse(pb.DropCopiesRequest, body).topic))
        return pb.DropCopiesResponse(runs=dropped.runs, replaced_files=dropped.replaced_files)

    def _segment(self, topic: TopicName, descriptor: SegmentDescriptor) -> pb.Segment:
        return listed_segment(descriptor, self._storage.place(topic, descriptor.segment_id))
