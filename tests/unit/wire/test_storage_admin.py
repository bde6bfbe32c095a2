"""The storage services over a real gRPC connection, in front of storage that remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from pydanube.history.segment import SegmentDescriptor, segment_id
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol import danube_pb2, storage_admin_pb2
from pydanube.wire.grpc_connection import GrpcServer, asynchronous
from pydanube.wire.storage_admin_service import StorageAdminService
from pydanube.wire.storage_service import StorageService

TOPIC = TopicName("default", "orders")
MIB = 1 << 20


def descriptor(start: int, end: int) -> SegmentDescriptor:
    return SegmentDescriptor(
        segment_id=segment_id(7, start, end, 1000 + start),
        topic_id=7,
        epoch=3,
        start_offset=start,
        end_offset=end,
        size=4096 + start,
        checksum="00c0ffee",
        created_at=1000 + start,
        min_append_ms=11,
        max_append_ms=12,
        min_publish_ms=9,
        max_publish_ms=10,
        payload_bytes=99,
        removed_messages=2,
        etag='"tag"',
    )


@dataclass
class Storage:
    """One topic with ten messages in each of its segments; imports only remember their parts."""

    listed: list[SegmentDescriptor] = field(default_factory=list)
    sealed: list[SegmentDescriptor] = field(default_factory=list)
    parts: list[tuple[int, int, int, bytes]] = field(default_factory=list)
    is_down: bool = False

    def segments(self, topic: TopicName) -> list[SegmentDescriptor]:
        if topic.topic == "live":
            raise Rejected(f"topic {topic} is non-reliable", ErrorCode.DISPATCH_MISMATCH)
        if topic != TOPIC:
            raise Rejected(f"topic {topic} not found", ErrorCode.TOPIC_UNKNOWN)
        return self.listed

    def place(self, topic: TopicName, segment_id: str) -> str:
        return f"s3://bucket{topic}/{segment_id}"

    async def seal(self, topic: TopicName) -> SimpleNamespace:
        if self.is_down:
            raise Unavailable(
                "the store does not answer: its data waits on this disk", ErrorCode.STORAGE_FAILED
            )
        self.segments(topic)
        return SimpleNamespace(segments=self.sealed, next_offset=20)

    def facts(self, topic: TopicName) -> SimpleNamespace:
        self.segments(topic)
        numbers = {
            "start_offset": 1,
            "next_offset": 2,
            "sealed_end": 3,
            "segment_count": 4,
            "segment_bytes": 5,
            "run_count": 6,
            "run_bytes": 7,
            "waiting_bytes": 8,
            "failures": 9,
        }
        return SimpleNamespace(mode="local", lag_seconds=1.5, last_error="denied", fsync="always", **numbers)

    async def read_segment(self, topic: TopicName, segment_id: str, position: int, size: int) -> bytes:
        assert (topic, segment_id) == (TOPIC, "a.parquet")
        return bytes([position % 256]) * size

    async def begin_import(self, topic: TopicName) -> int:
        if topic == TOPIC:
            raise Conflict(f"topic {topic} exists: import under another name", ErrorCode.TOPIC_CONFLICT)
        return 1 << 62

    async def import_part(self, topic_id: int, file_number: int, position: int, data: bytes) -> None:
        self.parts.append((topic_id, file_number, position, data))

    async def finish_import(self, topic_id: int) -> SimpleNamespace:
        return SimpleNamespace(start_offset=5, next_offset=25, segments=len(self.parts))

    async def abandon_import(self, topic_id: int) -> None:
        self.parts = [part for part in self.parts if part[0] != topic_id]


class Admin:
    def __init__(self, storage: Storage, channel: grpc.aio.Channel) -> None:
        self.storage = storage
        self._channel = channel

    async def call(self, name: str, **fields: object) -> Message:
        request = getattr(storage_admin_pb2, f"{name}Request")(**fields)
        method = f"/pydanube.storage.v1.StorageAdmin/{name}"
        answer = await self._channel.unary_unary(method)(request.SerializeToString())
        return getattr(storage_admin_pb2, f"{name}Response").FromString(answer)

    async def list_descriptors(self, topic: str, after_offset: int = 0) -> list[Message]:
        request = danube_pb2.ListSegmentDescriptorsRequest(topic=topic, after_offset=after_offset)
        method = "/danube.StorageService/ListSegmentDescriptors"
        answer = await self._channel.unary_unary(method)(request.SerializeToString())
        return list(danube_pb2.ListSegmentDescriptorsResponse.FromString(answer).segments)

    async def refused(self, name: str, **fields: object) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(name, **fields)
        return caught.value


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    storage = Storage()
    routes = {path: asynchronous(answer) for path, answer in StorageAdminService(storage).methods().items()}
    data_plane = StorageService(storage)
    routes["/danube.StorageService/ListSegmentDescriptors"] = data_plane.list_segment_descriptors
    server = GrpcServer(routes)
    acceptor = await asyncio.get_running_loop().create_server(server.new_connection, "127.0.0.1", 0)
    port = acceptor.sockets[0].getsockname()[1]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Admin(storage, channel)
    acceptor.close()
    await server.connections.drain(1.0)


# StorageAdmin


async def test_a_listed_segment_has_every_field_of_its_descriptor_and_its_place(admin: Admin) -> None:
    admin.storage.listed = [descriptor(0, 9)]
    [segment] = (await admin.call("ListSegments", topic="/default/orders")).segments
    fields = {each.name: getattr(segment, each.name) for each in segment.DESCRIPTOR.fields}
    expected = descriptor(0, 9)
    assert fields.pop("place") == f"s3://bucket/default/orders/{expected.segment_id}"
    assert fields == {name: getattr(expected, name) for name in expected.__struct_fields__}


async def test_segments_are_listed_in_pages_from_the_one_that_holds_an_offset(admin: Admin) -> None:
    admin.storage.listed = [descriptor(start, start + 9) for start in range(0, 25_000, 10)]
    found: list[int] = []
    from_offset, has_more, calls = 15, True, 0
    while has_more:
        answer = await admin.call("ListSegments", topic="default/orders", from_offset=from_offset)
        found += [each.start_offset for each in answer.segments]
        from_offset, has_more, calls = found[-1] + 10, answer.has_more, calls + 1
    assert found == list(range(10, 25_000, 10))
    assert calls == 3


@pytest.mark.parametrize(("from_offset", "limit", "starts"), [(9, 1, [0]), (10, 1, [10]), (20, 5, [])])
async def test_a_page_holds_no_more_than_asked_for(
    admin: Admin, from_offset: int, limit: int, starts: list[int]
) -> None:
    admin.storage.listed = [descriptor(0, 9), descriptor(10, 19)]
    answer = await admin.call("ListSegments", topic="/default/orders", from_offset=from_offset, limit=limit)
    assert [each.start_offset for each in answer.segments] == starts
    assert answer.has_more == (from_offset == 9)


async def test_sealing_tells_the_new_segments_and_how_far_they_reach(admin: Admin) -> None:
    admin.storage.sealed = [descriptor(10, 19)]
    answer = await admin.call("Seal", topic="/default/orders")
    assert [each.end_offset for each in answer.segments] == [19]
    assert answer.next_offset == 20


async def test_a_description_has_every_fact(admin: Admin) -> None:
    answer = await admin.call("DescribeStorage", topic="default/orders")
    assert answer.topic == "/default/orders"
    expected = vars(admin.storage.facts(TOPIC))
    assert {name: getattr(answer, name) for name in expected} == expected


async def test_a_segment_is_read_from_a_position(admin: Admin) -> None:
    answer = await admin.call(
        "ReadSegment", topic="/default/orders", segment_id="a.parquet", position=3, size=MIB
    )
    assert (answer.position, answer.data) == (3, b"\x03" * MIB)


async def test_an_import_is_begun_filled_and_finished(admin: Admin) -> None:
    topic_id = (await admin.call("BeginImport", topic="default/copy")).topic_id
    await admin.call("ImportPart", topic_id=topic_id, file_number=0, position=0, data=b"a" * MIB)
    await admin.call("ImportPart", topic_id=topic_id, file_number=1, position=4, data=b"b")
    assert admin.storage.parts == [
        (1 << 62, 0, 0, b"a" * MIB),
        (1 << 62, 1, 4, b"b"),
    ]
    answer = await admin.call("FinishImport", topic_id=topic_id)
    assert (answer.start_offset, answer.next_offset, answer.segments) == (5, 25, 2)


async def test_an_abandoned_import_is_forgotten(admin: Admin) -> None:
    await admin.call("ImportPart", topic_id=5, data=b"a")
    await admin.call("AbandonImport", topic_id=5)
    assert admin.storage.parts == []


@pytest.mark.parametrize(
    ("name", "fields", "status", "text"),
    [
        ("Seal", {"topic": "/default/nobody"}, "NOT_FOUND", "topic /default/nobody not found (code 200)"),
        ("ListSegments", {"topic": "/a/b/c"}, "INVALID_ARGUMENT", "invalid topic name '/a/b/c'"),
        ("DescribeStorage", {"topic": ""}, "INVALID_ARGUMENT", "(code 101)"),
        (
            "BeginImport",
            {"topic": "/default/orders"},
            "ALREADY_EXISTS",
            "import under another name (code 300)",
        ),
    ],
)
async def test_a_refusal_has_the_status_and_the_code_of_its_error(
    admin: Admin, name: str, fields: dict[str, object], status: str, text: str
) -> None:
    error = await admin.refused(name, **fields)
    assert error.code().name == status
    assert text in error.details()


async def test_trouble_of_the_store_is_told_with_its_code(admin: Admin) -> None:
    admin.storage.is_down = True
    error = await admin.refused("Seal", topic="/default/orders")
    assert error.code().value[0] == ErrorCode.STORAGE_FAILED.status
    assert error.details() == "the store does not answer: its data waits on this disk (code 506)"


# danube.StorageService


async def test_the_data_plane_lists_the_same_segments_as_danube_clients_know_them(admin: Admin) -> None:
    admin.storage.listed = [descriptor(0, 9), descriptor(10, 19)]
    first, second = await admin.list_descriptors("/default/orders")
    assert first == danube_pb2.SegmentDescriptorProto(
        segment_id=descriptor(0, 9).segment_id,
        start_offset=0,
        end_offset=9,
        size=4096,
        etag='"tag"',
        created_at=1000,
    )
    assert second.start_offset == 10
    assert await admin.list_descriptors("default/orders") == [first, second]


@pytest.mark.parametrize(
    ("after", "starts"), [(0, [0, 10, 20]), (1, [10, 20]), (9, [10, 20]), (10, [20]), (20, [])]
)
async def test_segments_that_begin_behind_an_offset_are_listed_and_0_means_all(
    admin: Admin, after: int, starts: list[int]
) -> None:
    admin.storage.listed = [descriptor(start, start + 9) for start in (0, 10, 20)]
    found = await admin.list_descriptors("/default/orders", after)
    assert [each.start_offset for each in found] == starts


async def test_a_topic_that_is_unknown_or_stores_nothing_has_no_segments(admin: Admin) -> None:
    assert await admin.list_descriptors("/default/nobody") == []
    assert await admin.list_descriptors("/default/live") == []


async def test_a_long_list_comes_in_parts_that_the_last_offset_continues(admin: Admin) -> None:
    admin.storage.listed = [descriptor(start, start + 9) for start in range(0, 100_500, 10)]
    first = await admin.list_descriptors("/default/orders")
    assert len(first) == 10_000
    rest = await admin.list_descriptors("/default/orders", first[-1].end_offset)
    assert [each.start_offset for each in rest] == list(range(100_000, 100_500, 10))
