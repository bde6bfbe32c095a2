"""pydanube.storage.v1.History: where the stored messages of topics are, for programs that read them in bulk."""

from bisect import bisect_right
from typing import Final

from google.protobuf.message import Message

from pydanube.broker.storage_control import StorageControl
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.wire.admin_calls import Method, methods
from pydanube.wire.calls import parse
from pydanube.wire.storage_admin_service import StorageAdminService

TOPICS_LISTED_MAX: Final = 10_000
"""In one answer, well below a megabyte for names of usual length."""

SERVICE: Final = "pydanube.storage.v1.History"


class HistoryService:
    """What it tells of one topic is what an operator is told."""

    def __init__(self, storage: StorageControl) -> None:
        self._storage = storage
        self._of_topic = StorageAdminService(storage)

    def methods(self) -> dict[str, Method]:
        """Every method by its path."""
        return methods(
            SERVICE,
            {
                "ListTopics": self.list_topics,
                "DescribeStorage": self._of_topic.describe_storage,
                "ListSegments": self._of_topic.list_segments,
                "ReadSegment": self._of_topic.read_segment,
            },
        )

    async def list_topics(self, body: bytes) -> Message:
        request = parse(pb.ListTopicsRequest, body)
        topics = self._storage.topics(request.namespace)
        first = bisect_right(topics, request.after)
        last = first + TOPICS_LISTED_MAX
        return pb.ListTopicsResponse(topics=topics[first:last], has_more=last < len(topics))
