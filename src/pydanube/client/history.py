"""Where the stored messages of topics are, for programs that read them in bulk."""

import re
from dataclasses import dataclass
from typing import Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.unary_channel import CallFailed, UnaryChannel
from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Rejected, Status, Unavailable
from pydanube.protocol import storage_admin_pb2 as pb

SERVICE: Final = "pydanube.storage.v1.History"
PART_BYTES: Final = 1 << 20
"""Of a segment in one answer: the most a broker gives."""

_CODE: Final = re.compile(r"\(code (\d+)\)$")
_CODES: Final = {code.number: code for code in ErrorCode}

Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class TopicStorage:
    """How far the messages of a topic, or of one partition, reach."""

    topic: str
    start_offset: int
    """Of the oldest message kept."""
    next_offset: int
    """Of the next message to be published."""
    sealed_end: int
    """Everything before it is in segments."""
    mode: str
    """Where segments are: local, shared_fs or object_store."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """One Parquet file of a topic; docs/segment-format.md says what is in it."""

    segment_id: str
    start_offset: int
    end_offset: int
    """The last one in it."""
    size: int
    checksum: str
    """CRC-32C of the whole file, in hexadecimal."""
    min_append_ms: int
    max_append_ms: int
    min_publish_ms: int
    max_publish_ms: int
    payload_bytes: int
    place: str
    """Where the file is: a path, or the address of an object."""
    removed_messages: int | None = None
    """Messages of which only the offset is left; None if that is not known."""


class History:
    """Needs the permission to consume the topics asked for."""

    def __init__(self, channel: UnaryChannel) -> None:
        self._channel = channel

    async def topics(self, namespace: str) -> list[str]:
        """The topics of a namespace that store messages, partitions each by its own name, in order."""
        found: list[str] = []
        while True:
            request = pb.ListTopicsRequest(namespace=namespace, after=found[-1] if found else "")
            answer = await self._call("ListTopics", request, pb.ListTopicsResponse)
            found += answer.topics
            if not answer.has_more:
                return found

    async def storage(self, topic: str) -> TopicStorage:
        """How far the messages of a topic reach; of a partitioned one, ask for each partition."""
        request = pb.DescribeStorageRequest(topic=topic)
        answer = await self._call("DescribeStorage", request, pb.DescribeStorageResponse)
        return TopicStorage(
            answer.topic, answer.start_offset, answer.next_offset, answer.sealed_end, answer.mode
        )

    async def segments(self, topic: str, from_offset: int = 0) -> list[StoredSegment]:
        """All segments that hold this offset or later ones, oldest first."""
        found: list[StoredSegment] = []
        while True:
            request = pb.ListSegmentsRequest(topic=topic, from_offset=from_offset)
            answer = await self._call("ListSegments", request, pb.ListSegmentsResponse)
            found += map(_segment, answer.segments)
            if not answer.has_more or not answer.segments:
                return found
            from_offset = found[-1].end_offset + 1

    async def read(self, topic: str, segment_id: str, position: int, size: int) -> bytes:
        """Bytes of a segment's file, for who cannot reach it; fewer at its end, and never more than PART_BYTES."""
        request = pb.ReadSegmentRequest(topic=topic, segment_id=segment_id, position=position, size=size)
        return (await self._call("ReadSegment", request, pb.ReadSegmentResponse)).data

    async def _call(self, method: str, request: Message, response: type[Response]) -> Response:
        try:
            return await self._channel.call(SERVICE, method, request, response)
        except CallFailed as error:
            raise error_of(error) from error


def _segment(message: pb.Segment) -> StoredSegment:
    return StoredSegment(
        message.segment_id,
        message.start_offset,
        message.end_offset,
        message.size,
        message.checksum,
        message.min_append_ms,
        message.max_append_ms,
        message.min_publish_ms,
        message.max_publish_ms,
        message.payload_bytes,
        message.place,
        message.removed_messages if message.HasField("removed_messages") else None,
    )


def error_of(failed: CallFailed) -> DanubeError:
    """What a failed call of the storage services means to whoever made it."""
    text = str(failed)
    stated = _CODE.search(text)
    code = None if stated is None else _CODES.get(int(stated[1]))
    match failed.status:
        case Status.UNAVAILABLE | Status.DEADLINE_EXCEEDED | Status.RESOURCE_EXHAUSTED:
            return Unavailable(text, code or ErrorCode.OVERLOADED)
        case Status.DATA_LOSS:
            return Corrupt(text, code)
        case Status.PERMISSION_DENIED:
            return Rejected(text, ErrorCode.PERMISSION_DENIED)
        case Status.UNAUTHENTICATED:
            return Rejected(text, ErrorCode.TOKEN_INVALID)
        case Status.UNIMPLEMENTED:
            return Rejected(
                f"{text}: the broker is of a version that does not tell where messages are stored",
                ErrorCode.METHOD_UNKNOWN,
            )
        case _:
            return Rejected(text, code) if code is not None else DanubeError(text)
