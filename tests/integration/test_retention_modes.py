"""What is kept for how long: by topic, by time, by size, until consumed, for ever; here and in the durable store."""

import os
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from broker_harness.native_wire import EARLIEST, LATEST
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import eventually

from pydanube.broker.broker import Broker
from pydanube.broker.housekeeping import Housekeeping
from pydanube.kernel.errors import Conflict
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.server.config import Settings
from pydanube.server.standalone import Standalone

WAL: dict[str, Any] = {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}
HOUR_MS = 60 * 60_000
PART = 20
"""Messages of one segment in these tests, of 30 KB each."""


@pytest.fixture(autouse=True)
def checks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(server: Standalone, broker: Broker, settings: Settings) -> None:
        housekeeping = Housekeeping(broker, server._clock, retention_check_ms=20)
        housekeeping.start()
        server._closing.push_async_callback(housekeeping.stop)

    monkeypatch.setattr(Standalone, "_start_housekeeping", start)


def shared(root: Path, **storage: Any) -> dict[str, Any]:
    return {"mode": "shared_fs", "durable": {"backend": "fs", "root": str(root)}, "wal": WAL, **storage}


async def ask(broker: RunningBroker, method: str, request: Any, answer: Any) -> Any:
    async with grpc.aio.insecure_channel(broker.admin_address) as channel:
        call = channel.unary_unary(f"/pydanube.storage.v1.StorageAdmin/{method}")
        return answer.FromString(await call(request.SerializeToString()))


async def describe(broker: RunningBroker, topic: str) -> pb.DescribeStorageResponse:
    request = pb.DescribeStorageRequest(topic=topic)
    found: pb.DescribeStorageResponse = await ask(
        broker, "DescribeStorage", request, pb.DescribeStorageResponse
    )
    return found


async def publish_and_seal(broker: RunningBroker, topic: str, parts: int = 1) -> None:
    producer = await (await broker.native()).open_producer(topic)
    for _ in range(parts):
        await producer.send(producer.batch([os.urandom(30_000) for _ in range(PART)]))
        await ask(broker, "Seal", pb.SealRequest(topic=topic), pb.SealResponse)


async def offsets(broker: RunningBroker, topic: str) -> list[int]:
    reader = await (await broker.native()).open_reader(topic, EARLIEST, LATEST)
    return [received.offset for received in await reader.rest()]


def objects(root: Path, topic: str) -> int:
    # Directories may go while this looks.
    return sum(len(files) for _, _, files in os.walk(root / "storage" / "topics" / topic.strip("/")))


async def stores(root: Path, topic: str, count: int) -> bool:
    """Objects go after the journal's word that the topic begins behind them."""
    return objects(root, topic) == count


async def test_by_time_by_size_and_for_ever_each_topic_as_its_pattern_says(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / "shared"
    rules = {"/default/short-*": {"time_minutes": 60}, "/default/sized": {"size_mb": 1}}
    broker = await start_broker(
        storage=shared(root, topic_retention=rules, local_retention={"time_minutes": 30, "size_mb": None})
    )
    short, sized, kept = "/default/short-one", "/default/sized", "/default/kept"
    for topic in (short, kept):
        await publish_and_seal(broker, topic, parts=2)
    await publish_and_seal(broker, sized, parts=4)

    async def has_shrunk() -> bool:
        return (await describe(broker, sized)).start_offset == 3 * PART

    await eventually(has_shrunk)
    await eventually(lambda: stores(root, sized, 1))
    assert await offsets(broker, sized) == list(range(3 * PART, 4 * PART))
    assert [(await describe(broker, topic)).run_count for topic in (short, kept)] == [2, 2]

    broker.clock.advance(HOUR_MS // 2 + 60_000)

    async def has_no_copies() -> bool:
        return [(await describe(broker, topic)).run_count for topic in (short, kept)] == [0, 0]

    await eventually(has_no_copies)
    for topic in (short, kept):
        assert objects(root, topic) == 2
        assert await offsets(broker, topic) == list(range(2 * PART))

    broker.clock.advance(HOUR_MS)

    async def is_empty() -> bool:
        return (await describe(broker, short)).start_offset == 2 * PART

    await eventually(is_empty)
    await eventually(lambda: stores(root, short, 0))
    assert objects(root, kept) == 2
    await broker.restart()
    assert await offsets(broker, short) == []
    assert await offsets(broker, kept) == list(range(2 * PART))
    await publish_and_seal(broker, short)
    assert await offsets(broker, short) == list(range(2 * PART, 3 * PART))


async def test_until_consumed_waits_for_the_slowest(start_broker: StartBroker, tmp_path: Path) -> None:
    root = tmp_path / "shared"
    broker = await start_broker(storage=shared(root, retention={"until_consumed": True}))
    topic = "/default/queue"
    native = await broker.native()
    await native.open_producer(topic)
    quick, slow = [
        await (await broker.native()).subscribe(topic, name, credit=(1_000, 10 << 20), unacked_max=1_000)
        for name in ("quick", "slow")
    ]
    await publish_and_seal(broker, topic, parts=2)
    assert await quick.offsets(2 * PART) == list(range(2 * PART))
    assert await slow.offsets(2 * PART) == list(range(2 * PART))
    await quick.ack(0, 2 * PART - 1)
    await slow.ack(0, PART - 1)

    async def begins_at(offset: int) -> bool:
        return (await describe(broker, topic)).start_offset == offset

    await eventually(lambda: begins_at(PART))
    await eventually(lambda: stores(root, topic, 1))
    assert await offsets(broker, topic) == list(range(PART, 2 * PART))
    await slow.ack(PART, 2 * PART - 1)
    await eventually(lambda: begins_at(2 * PART))
    await eventually(lambda: stores(root, topic, 0))


async def test_in_local_mode_one_policy_is_for_everything(start_broker: StartBroker) -> None:
    broker = await start_broker(
        storage={"wal": WAL, "local_retention": {"time_minutes": 60, "size_mb": None}}
    )
    topic = "/default/t"
    await publish_and_seal(broker, topic)
    assert (await describe(broker, topic)).run_count == 0
    broker.clock.advance(HOUR_MS - 60_000)
    await publish_and_seal(broker, topic)
    broker.clock.advance(2 * 60_000)

    async def first_is_gone() -> bool:
        return (await describe(broker, topic)).start_offset == PART

    await eventually(first_is_gone)
    assert await offsets(broker, topic) == list(range(PART, 2 * PART))


async def test_a_second_cluster_on_the_same_store_is_refused(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    root = tmp_path / "shared"
    first = await start_broker(storage=shared(root), cluster_name="east")
    await publish_and_seal(first, "/default/t")
    with pytest.raises(Conflict) as refused:
        await start_broker(storage=shared(root), cluster_name="west")
    assert str(root / "storage" / "owner.json") in refused.value.text
    assert "belongs to cluster 'east'" in refused.value.text
    assert "storage.durable.root" in refused.value.text
    await first.restart()
    assert await offsets(first, "/default/t") == list(range(PART))
