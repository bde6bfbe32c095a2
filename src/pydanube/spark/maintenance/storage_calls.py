"""The storage services of a broker's admin port, for programs without an event loop: drivers and executors."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.address import Address
from pydanube.client.history import error_of
from pydanube.client.loop_thread import LoopThread
from pydanube.client.tls import TLS
from pydanube.client.unary_channel import CallFailed, UnaryChannel
from pydanube.history.listed_segment import descriptor_of
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.placed_segment import PlacedSegment

SERVICE: Final = "pydanube.storage.v1.StorageAdmin"
PART_BYTES: Final = 1 << 20
"""Of a segment in one call: the most a broker takes and gives."""
CALL_SECONDS_MAX: Final = 3600.0
"""Sealing a topic and finishing a replacement move whole segments."""

Response = TypeVar("Response", bound=Message)


class StorageCalls:
    """Use it with `with`. `admin` is the address of the admin port, and what it takes to be let in."""

    def __init__(self, admin: Connection) -> None:
        tls = None
        if admin.ca_file or admin.cert_file:
            tls = TLS(ca=admin.ca_file, certificate=admin.cert_file, key=admin.key_file)
        self._channel = UnaryChannel(
            Address.parse(admin.url), token=admin.token, tls=tls, timeout=CALL_SECONDS_MAX
        )
        self._loop = LoopThread()

    def __enter__(self) -> "StorageCalls":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._channel.close())
        self._loop.stop()

    def seal(self, topic: str) -> int:
        """Everything before the offset that is returned is in segments."""
        return self._call("Seal", pb.SealRequest(topic=topic), pb.SealResponse).next_offset

    def describe(self, topic: str) -> pb.DescribeStorageResponse:
        return self._call(
            "DescribeStorage", pb.DescribeStorageRequest(topic=topic), pb.DescribeStorageResponse
        )

    def segments(self, topic: str) -> list[PlacedSegment]:
        """Oldest first."""
        found: list[PlacedSegment] = []
        while True:
            next_offset = found[-1].descriptor.next_offset if found else 0
            request = pb.ListSegmentsRequest(topic=topic, from_offset=next_offset)
            answer = self._call("ListSegments", request, pb.ListSegmentsResponse)
            found += [_placed(each) for each in answer.segments]
            if not answer.has_more or not answer.segments:
                return found

    def download(self, topic: str, segment: SegmentDescriptor, file: Path) -> None:
        """Copy a segment into a file."""
        with file.open("xb") as target:
            for position in range(0, segment.size, PART_BYTES):
                size = min(PART_BYTES, segment.size - position)
                request = pb.ReadSegmentRequest(
                    topic=topic, segment_id=segment.segment_id, position=position, size=size
                )
                data = self._call("ReadSegment", request, pb.ReadSegmentResponse).data
                if len(data) != size:
                    raise Corrupt(
                        f"segment {segment.segment_id} ends at byte {position + len(data)} instead of {segment.size}: "
                        "restore it from a copy",
                        ErrorCode.SEGMENT_CORRUPT,
                    )
                target.write(data)

    def replace(
        self, topic: str, old: Sequence[SegmentDescriptor], files: Sequence[Path], reason: str
    ) -> list[SegmentDescriptor]:
        """Let these files take the place of neighbouring segments; return the new ones.

        Raises:
            DanubeError: nothing has changed; or, `Unavailable`, whether it has is to be seen in the list of segments.
        """
        names = [segment.segment_id for segment in old]
        begin = pb.BeginReplacementRequest(topic=topic, segment_ids=names, reason=reason)
        number = self._call("BeginReplacement", begin, pb.BeginReplacementResponse).replacement_id
        for file_number, file in enumerate(files):
            position = 0
            with file.open("rb") as source:
                while data := source.read(PART_BYTES):
                    part = pb.ReplacementPartRequest(
                        replacement_id=number,
                        topic=topic,
                        file_number=file_number,
                        position=position,
                        data=data,
                    )
                    self._call("ReplacementPart", part, pb.ReplacementPartResponse)
                    position += len(data)
        finish = pb.FinishReplacementRequest(replacement_id=number, topic=topic)
        answer = self._call("FinishReplacement", finish, pb.FinishReplacementResponse)
        return [_placed(each).descriptor for each in answer.segments]

    def drop_copies(self, topic: str) -> pb.DropCopiesResponse:
        return self._call("DropCopies", pb.DropCopiesRequest(topic=topic), pb.DropCopiesResponse)

    def _call(self, method: str, request: Message, response: type[Response]) -> Response:
        try:
            return self._loop.run(self._channel.call(SERVICE, method, request, response))
        except CallFailed as error:
            raise error_of(error) from error


def _placed(message: pb.Segment) -> PlacedSegment:
    return PlacedSegment(descriptor_of(message), message.place)
