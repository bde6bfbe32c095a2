"""A deleted topic leaves nothing in the durable store, also if the store is away at that moment."""

from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from broker_harness.native_wire import EARLIEST, LATEST
from broker_harness.running_broker import RunningBroker, StartBroker

from pydanube.history import tiering
from pydanube.protocol import danube_admin_pb2 as admin_pb
from pydanube.protocol import storage_admin_pb2 as pb

TOPIC, OTHER = "/default/t", "/default/other"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
async def broker(start_broker: StartBroker, root: Path, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    monkeypatch.setattr(tiering, "CHORES_SECONDS", 0.02)
    durable = {"backend": "fs", "root": str(root)}
    started = await start_broker(
        storage={
            "mode": "shared_fs",
            "durable": durable,
            "wal": {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0},
        }
    )
    for topic in (TOPIC, OTHER):
        await publish(started, topic, 10)
        await ask(started, "/pydanube.storage.v1.StorageAdmin/Seal", pb.SealRequest(topic=topic))
        await publish(started, topic, 10)
    return started


async def publish(broker: RunningBroker, topic: str, count: int) -> None:
    producer = await broker.client().create_producer(topic)
    for number in range(count):
        await producer.send(f"{topic} {number}")


async def ask(broker: RunningBroker, path: str, request: Any) -> bytes:
    async with grpc.aio.insecure_channel(broker.admin_address) as channel:
        answer: bytes = await channel.unary_unary(path)(request.SerializeToString())
        return answer


async def delete(broker: RunningBroker, topic: str) -> None:
    await ask(broker, "/danube_admin.TopicAdmin/DeleteTopic", admin_pb.TopicRequest(name=topic))


async def count(broker: RunningBroker, topic: str) -> int:
    reader = await (await broker.native()).open_reader(topic, EARLIEST, LATEST)
    return len(await reader.rest())


def left(broker: RunningBroker, root: Path, topic: str) -> list[str]:
    """Files of the topic, here and in the store."""
    places = (root / "storage" / "topics", broker._folder / "data" / "wal" / "runs")
    return [path.name for place in places for path in (place / topic.strip("/")).rglob("*") if path.is_file()]


async def test_everything_of_the_topic_goes_and_nothing_else(broker: RunningBroker, root: Path) -> None:
    assert len(left(broker, root, TOPIC)) >= 2, "a segment and its copy"
    await delete(broker, TOPIC)
    assert left(broker, root, TOPIC) == []
    assert await count(broker, OTHER) == 20
    await broker.restart()
    assert left(broker, root, TOPIC) == []
    assert await count(broker, OTHER) == 20
    # A new topic of that name has nothing of the old one.
    await publish(broker, TOPIC, 3)
    assert await count(broker, TOPIC) == 3
