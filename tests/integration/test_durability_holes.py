"""Ways in which a Danube broker loses stored messages, tried on ours from outside.

docs/durability.md lists them all under the numbers used here; those that other tests prove are not repeated.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from broker_harness.native_wire import EARLIEST, LATEST, NativeClient
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import WireClient

from pydanube.protocol import danube_pb2 as pb
from pydanube.protocol import storage_admin_pb2 as admin_pb

ROOT = Path(__file__).parents[2]
TOPIC = "/default/t"
SMALL_FILES: dict[str, Any] = {"wal": {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}}


async def read_all(native: NativeClient, topic: str = TOPIC) -> list[tuple[int, str]]:
    reader = await native.open_reader(topic, EARLIEST, LATEST)
    return [(received.offset, received.payload) for received in await reader.rest()]


async def test_a_broker_starts_again_after_more_than_a_thousand_metadata_changes(
    broker: RunningBroker,
) -> None:
    """H-01: a Danube broker's metadata log is cut without a snapshot; after 1,000 changes it cannot start."""
    topics = [f"/default/topic-{number}" for number in range(200)]
    client = broker.client()
    for topic in topics:
        producer = await client.create_producer(topic)
        for number in range(4):
            await client.subscribe(topic, f"subscription-{number}")
        await producer.send(topic)
    for _ in range(2):
        await broker.restart()
    client = broker.client()
    for topic in topics:
        stream = await client.consume(topic, "subscription-3")
        assert (await stream.next()).payload.decode() == topic


@pytest.mark.timeout(180)
async def test_files_written_before_and_after_restarts_are_all_read(start_broker: StartBroker) -> None:
    """H-03: a reloaded Danube writer forgets its rotated files and appends to them again."""
    broker = await start_broker(storage=SMALL_FILES)
    expected: list[tuple[int, str]] = []
    for _ in range(4):
        producer = await (await broker.native()).open_producer(TOPIC)
        for _ in range(30):
            payload = f"{len(expected)} ".ljust(2_000, ".")
            published = await producer.send(producer.batch([payload] * 40))
            assert published.messages == 40
            expected += [(len(expected) + n, payload) for n in range(40)]
        await broker.restart()
        assert await read_all(await broker.native()) == expected


async def test_a_burst_upon_a_new_subscription_arrives_whole(
    broker: RunningBroker, client: WireClient
) -> None:
    """H-14: a new Danube subscription reads a ring of 256 messages, and loses what does not fit."""
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    sending = asyncio.gather(*(producer.send(str(number)) for number in range(1_500)))
    received = await stream.take_acked(1_500)
    await sending
    assert sorted(received, key=int) == [str(number) for number in range(1_500)]
    await stream.assert_silent()


async def test_a_subscription_that_slept_through_more_than_memory_holds_goes_on(
    start_broker: StartBroker,
) -> None:
    """H-15: a Danube subscription whose reader fell behind the cache is dead until the topic is loaded again."""
    broker = await start_broker(storage=SMALL_FILES)
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC, credit=(10, 1 << 20), unacked_max=10_000)
    for number in range(40):
        await producer.send(producer.batch([f"{number} ".ljust(2_000, ".")] * 50))
    assert await consumer.offsets(10) == list(range(10))
    consumer.give(10_000, 100 << 20)
    assert await consumer.offsets(1_990) == list(range(10, 2_000))


@pytest.mark.timeout(180)
async def test_publishers_at_the_same_time_leave_an_order_that_files_keep(
    start_broker: StartBroker,
) -> None:
    """H-19, H-20: their frames lie out of order in a Danube broker's files, and replay stops at the first break."""
    broker = await start_broker(storage=SMALL_FILES)
    producers = [await (await broker.native()).open_producer(TOPIC, f"p{number}") for number in range(8)]

    async def publish(number: int) -> list[int]:
        producer = producers[number]
        requests = [producer.publish(producer.row(f"{number} {n} ".ljust(2_000, "."))) for n in range(200)]
        return [(await producer.published(request)).offset for request in requests]

    told = await asyncio.gather(*map(publish, range(8)))
    before = await read_all(await broker.native())
    await broker.restart()
    after = await read_all(await broker.native())

    assert after == before
    assert [offset for offset, _ in after] == list(range(1_600))
    payloads = [payload.rstrip(".").split() for _, payload in after]
    for number, offsets in enumerate(told):
        assert [payloads[offset] for offset in offsets] == [[str(number), str(n)] for n in range(200)]
        assert offsets == sorted(offsets)


class Operator:
    """Somebody who publishes, seals and lists, at a broker of its own."""

    def __init__(self, process: AdminProcess, client: WireClient, native: NativeClient) -> None:
        self._process = process
        self.client = client
        self.native = native

    async def publish(self, *payloads: str) -> None:
        await (await self.client.create_producer(TOPIC)).send_all(*payloads)

    async def seal(self) -> admin_pb.SealResponse:
        async with grpc.aio.insecure_channel(self._process.admin_addr) as channel:
            answer = await channel.unary_unary("/pydanube.storage.v1.StorageAdmin/Seal")(
                admin_pb.SealRequest(topic=TOPIC).SerializeToString()
            )
        return admin_pb.SealResponse.FromString(answer)

    async def segments(self) -> list[tuple[int, int]]:
        request = pb.ListSegmentDescriptorsRequest(topic=TOPIC)
        answer = await self.client.call("/danube.StorageService/ListSegmentDescriptors", request)
        return [(segment.start_offset, segment.end_offset) for segment in answer.segments]


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Operator]:
    """A broker process on the data in the folder, stopped when the block ends."""
    with admin_process(folder) as process:
        client, native = WireClient(process.address), await NativeClient.connect(process.address)
        try:
            yield Operator(process, client, native)
        finally:
            await client.close()
            await native.close()


async def test_what_was_sealed_is_read_however_much_was_written_since(tmp_path: Path) -> None:
    """H-09: a Danube broker that removed local files cannot read their offsets any more after its next write."""
    async with running(tmp_path) as operator:
        await operator.publish(*(str(number) for number in range(20)))
        assert (await operator.seal()).next_offset == 20
        await operator.publish(*(str(number) for number in range(20, 30)))
        expected = [(number, str(number)) for number in range(30)]
        assert await read_all(operator.native) == expected
    async with running(tmp_path) as operator:
        await operator.publish("30")
        assert await read_all(operator.native) == [*expected, (30, "30")]


async def test_what_is_written_after_a_restart_is_sealed_too(tmp_path: Path) -> None:
    """H-13, H-24: Danube takes it for what is stored already, and never lists the segment that begins at 0."""
    async with running(tmp_path) as operator:
        await operator.publish("0", "1", "2")
        await operator.seal()
    async with running(tmp_path) as operator:
        await operator.publish("3", "4")
        await operator.seal()
        assert await operator.segments() == [(0, 2), (3, 4)]
        assert await read_all(operator.native) == [(number, str(number)) for number in range(5)]


async def test_sealing_an_empty_topic_uses_no_offset(tmp_path: Path) -> None:
    """H-25: it records 0 as used in a Danube broker, whose topic then never has a message 0."""
    async with running(tmp_path) as operator:
        await operator.client.create_producer(TOPIC)
        sealed = await operator.seal()
        assert (sealed.next_offset, list(sealed.segments)) == (0, [])
    async with running(tmp_path) as operator:
        await operator.publish("first")
        assert await read_all(operator.native) == [(0, "first")]


async def test_sealing_in_the_middle_of_publishing_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """H-18: what a Danube broker accepts around the moment of sealing may be lost, or its offsets given again."""
    async with running(tmp_path) as operator:
        await operator.publish("0")
        for first in range(1, 400, 57):
            numbers = range(first, min(first + 57, 400))
            publishing = asyncio.create_task(operator.publish(*map(str, numbers)))
            await operator.seal()
            await publishing
        await operator.seal()
        segments = await operator.segments()
        assert len(segments) > 1
        assert segments[0][0] == 0
        assert [start for start, _ in segments[1:]] == [end + 1 for _, end in segments[:-1]]
        assert segments[-1][1] == 399
        assert await read_all(operator.native) == [(number, str(number)) for number in range(400)]


def test_every_proof_the_document_names_exists() -> None:
    text = (ROOT / "docs" / "durability.md").read_text(encoding="utf-8")
    proofs = re.findall(r"(tests/\S+\.py)::(test_\w+)", text)
    missing = [
        f"{file}::{name}"
        for file, name in proofs
        if not re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert missing == []
    assert len(proofs) > 20
