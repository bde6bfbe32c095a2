"""danube.StorageService/ListSegmentDescriptors of a whole broker, asked as lakehouse tools ask."""

from collections.abc import AsyncIterator, Iterator

import grpc.aio
import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from broker_harness.wire_client import WireClient

from pydanube.protocol import danube_pb2 as pb
from pydanube.protocol import storage_admin_pb2 as admin_pb


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
async def lister(broker_process: AdminProcess) -> AsyncIterator[WireClient]:
    client = WireClient(broker_process.address)
    yield client
    await client.close()


async def seal(process: AdminProcess, topic: str) -> admin_pb.SealResponse:
    async with grpc.aio.insecure_channel(process.admin_addr) as channel:
        answer = await channel.unary_unary("/pydanube.storage.v1.StorageAdmin/Seal")(
            admin_pb.SealRequest(topic=topic).SerializeToString()
        )
    return admin_pb.SealResponse.FromString(answer)


async def listed(client: WireClient, topic: str, after_offset: int = 0) -> list[pb.SegmentDescriptorProto]:
    request = pb.ListSegmentDescriptorsRequest(topic=topic, after_offset=after_offset)
    answer = await client.call("/danube.StorageService/ListSegmentDescriptors", request)
    return list(answer.segments)


async def publish(client: WireClient, topic: str, count: int) -> None:
    producer = await client.create_producer(topic, reliable=True)
    for number in range(count):
        await producer.send(b"%d" % number)


async def test_only_what_is_sealed_is_listed(broker_process: AdminProcess, lister: WireClient) -> None:
    await publish(lister, "/default/lake", 3)
    assert await listed(lister, "/default/lake") == []
    [sealed] = (await seal(broker_process, "/default/lake")).segments
    [found] = await listed(lister, "/default/lake")
    assert found == pb.SegmentDescriptorProto(
        segment_id=sealed.segment_id,
        start_offset=0,
        end_offset=2,
        size=sealed.size,
        etag=sealed.etag,
        created_at=sealed.created_at,
    )
    assert sealed.place.endswith(f"storage/topics/default/lake/segments/{found.segment_id}")


async def test_a_caller_that_remembers_its_last_offset_gets_each_segment_once(
    broker_process: AdminProcess, lister: WireClient
) -> None:
    topic = "/default/polled"
    seen: list[tuple[int, int]] = []
    for count in (4, 2, 3):
        await publish(lister, topic, count)
        await seal(broker_process, topic)
        last = seen[-1][1] if seen else 0
        seen += [
            (each.start_offset, each.end_offset) for each in await listed(lister, "default/polled", last)
        ]
    assert seen == [(0, 3), (4, 5), (6, 8)]
    assert await listed(lister, topic, 8) == []


async def test_topics_without_segments_have_an_empty_list(lister: WireClient) -> None:
    await lister.create_producer("/default/unreliable", reliable=False)
    for topic in ("/default/unreliable", "/default/unknown", "nowhere/unknown"):
        assert await listed(lister, topic) == []
