"""The calls of pydanube.storage.v1.StorageAdmin: segments listed, read and brought in."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from google.protobuf.message import Message

from pydanube.cli.admin_connection import CALL_SECONDS_MAX, AdminConnection
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol import storage_admin_pb2 as pb

PART_BYTES: Final = 1 << 20
"""Of a segment in one call: the most the broker takes and gives."""
PARTS_IN_FLIGHT_MAX: Final = 4
LONG_CALL_SECONDS_MAX: Final = 3600.0
"""For calls that move a whole topic: sealing one, finishing an import."""

Response = TypeVar("Response", bound=Message)


class StorageAdmin:
    def __init__(self, admin: AdminConnection) -> None:
        self._admin = admin

    async def seal(self, topic: str) -> pb.SealResponse:
        return await self._call(
            "Seal", pb.SealRequest(topic=topic), pb.SealResponse, seconds=LONG_CALL_SECONDS_MAX
        )

    async def describe(self, topic: str) -> pb.DescribeStorageResponse:
        request = pb.DescribeStorageRequest(topic=topic)
        return await self._call("DescribeStorage", request, pb.DescribeStorageResponse)

    async def segments(self, topic: str, from_offset: int = 0) -> list[pb.Segment]:
        """All segments that hold this offset or later ones, oldest first."""
        found: list[pb.Segment] = []
        while True:
            request = pb.ListSegmentsRequest(topic=topic, from_offset=from_offset)
            answer = await self._call("ListSegments", request, pb.ListSegmentsResponse)
            found += answer.segments
            if not answer.has_more or not answer.segments:
                return found
            from_offset = found[-1].end_offset + 1

    async def download(
        self, topic: str, segment_id: str, size: int, file: Path, done: Callable[[int], None]
    ) -> None:
        """Copy a segment into a file; `done` is told the bytes of each step."""
        with file.open("xb") as target:
            step = PART_BYTES * PARTS_IN_FLIGHT_MAX
            for start in range(0, size, step):
                positions = range(start, min(start + step, size), PART_BYTES)
                reads = (
                    self._read(topic, segment_id, position, min(PART_BYTES, size - position))
                    for position in positions
                )
                for data in await asyncio.gather(*reads):
                    target.write(data)
                    done(len(data))

    async def begin_import(self, topic: str) -> int:
        """The id the topic will have, which names the import."""
        request = pb.BeginImportRequest(topic=topic)
        answer = await self._call("BeginImport", request, pb.BeginImportResponse)
        return answer.topic_id

    async def upload(self, topic_id: int, file_number: int, file: Path, done: Callable[[int], None]) -> None:
        """Send a whole segment file, part by part: each must lie behind the one before."""
        position = 0
        with file.open("rb") as source:
            while data := source.read(PART_BYTES):
                request = pb.ImportPartRequest(
                    topic_id=topic_id, file_number=file_number, position=position, data=data
                )
                await self._call("ImportPart", request, pb.ImportPartResponse)
                position += len(data)
                done(len(data))

    async def finish_import(self, topic_id: int) -> pb.FinishImportResponse:
        request = pb.FinishImportRequest(topic_id=topic_id)
        return await self._call(
            "FinishImport", request, pb.FinishImportResponse, seconds=LONG_CALL_SECONDS_MAX
        )

    async def abandon_import(self, topic_id: int) -> None:
        request = pb.AbandonImportRequest(topic_id=topic_id)
        await self._call("AbandonImport", request, pb.AbandonImportResponse)

    async def _read(self, topic: str, segment_id: str, position: int, size: int) -> bytes:
        request = pb.ReadSegmentRequest(topic=topic, segment_id=segment_id, position=position, size=size)
        answer = await self._call("ReadSegment", request, pb.ReadSegmentResponse)
        if len(answer.data) != size:
            raise Corrupt(
                f"segment {segment_id} ends at byte {position + len(answer.data)}, before its {size} bytes from "
                f"{position} on: restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            )
        return answer.data

    async def _call(
        self, method: str, request: Message, response: type[Response], seconds: float = CALL_SECONDS_MAX
    ) -> Response:
        return await self._admin.call(
            f"pydanube.storage.v1.StorageAdmin/{method}", request, response, seconds
        )
