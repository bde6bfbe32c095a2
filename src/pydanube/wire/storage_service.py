"""danube.StorageService: the catalogue of sealed segments that lakehouse tools read from the durable store."""

from itertools import islice
from typing import Final

from pydanube.broker.storage_control import StorageControl
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.protocol.danube_pb2 import (
    ListSegmentDescriptorsRequest,
    ListSegmentDescriptorsResponse,
    SegmentDescriptorProto,
)
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.calls import parse
from pydanube.wire.grpc_connection import GrpcConnection

SEGMENTS_LISTED_MAX: Final = 10_000
"""In one answer, about 2 MB. Callers come again with the last offset they have, so they get the rest then."""


class StorageService:
    def __init__(self, storage: StorageControl) -> None:
        self._storage = storage

    def list_segment_descriptors(
        self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers
    ) -> None:
        request = parse(ListSegmentDescriptorsRequest, body)
        after = request.after_offset
        # 0 is a caller that has nothing yet: it must not miss the segment that begins at offset 0.
        wanted = (
            each
            for each in self._segments(topic_of(request.topic))
            if after == 0 or each.start_offset > after
        )
        segments = [
            SegmentDescriptorProto(
                segment_id=each.segment_id,
                start_offset=each.start_offset,
                end_offset=each.end_offset,
                size=each.size,
                etag=each.etag,
                created_at=each.created_at,
            )
            for each in islice(wanted, SEGMENTS_LISTED_MAX)
        ]
        connection.reply(stream_id, ListSegmentDescriptorsResponse(segments=segments).SerializeToString())

    def _segments(self, topic: TopicName) -> list[SegmentDescriptor]:
        """A topic nobody has made, or that stores nothing, has no segments: tools may ask before the first publish."""
        try:
            return self._storage.segments(topic)
        except Rejected as error:
            if error.code in (ErrorCode.TOPIC_UNKNOWN, ErrorCode.DISPATCH_MISMATCH):
                return []
            raise


def topic_of(text: str) -> TopicName:
    """A topic's name as storage tools write it: the leading slash may be missing."""
    return TopicName.parse("/" + text.removeprefix("/"))
