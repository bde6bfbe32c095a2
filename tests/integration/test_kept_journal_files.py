"""Large batches stay in the journal file they were written to: seen from outside, through kills and segments."""

from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

from broker_harness.broker_process import BrokerProcess
from broker_harness.wire_client import eventually

from pydanube.client import Client, connect

TOPIC = "/default/large"
WAL = {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}
MESSAGES = 100
LISTS = 60


def _payloads(life: int, number: int) -> list[bytes]:
    return [b"%d.%d.%d|" % (life, number, each) * 60 for each in range(MESSAGES)]


async def test_nothing_is_lost_or_doubled_when_brokers_are_killed(tmp_path: Path) -> None:
    kept = tmp_path / "data" / "wal" / "bundles"

    async def is_all_in_segments() -> bool:
        return not any(kept.glob("*.kept")) and any((tmp_path / "data" / "wal").rglob("*.parquet"))

    for life in range(3):
        storage: dict[str, Any] = {"wal": WAL}
        async with BrokerProcess(tmp_path, storage=storage) as broker:
            async with _connect(broker) as client:
                async with client.producer(TOPIC) as producer:
                    for number in range(LISTS):
                        await producer.send_many(_payloads(life, number))
                await _check(client, life + 1)
            assert any(kept.glob("*.kept"))
    storage = {"wal": WAL, "segments": {"age_seconds": 1}}
    async with BrokerProcess(tmp_path, storage=storage) as broker, _connect(broker) as client:
        await eventually(is_all_in_segments)
        await _check(client, 3)


def _connect(broker: BrokerProcess) -> AbstractAsyncContextManager[Client]:
    return connect(f"danube://{broker.address}")


async def _check(client: Client, lives: int) -> None:
    async with client.reader(TOPIC, start="earliest", end="latest") as reader:
        messages = [message async for message in reader]
    expected = [
        payload for life in range(lives) for number in range(LISTS) for payload in _payloads(life, number)
    ]
    assert [message.payload for message in messages] == expected
    assert all(after.offset == before.offset + 1 for before, after in pairwise(messages))
