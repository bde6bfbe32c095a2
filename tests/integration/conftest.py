"""Integration: a whole broker per test, spoken to over the network only."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("broker_harness")

from broker_harness.running_broker import RunningBroker, StartBroker  # noqa: E402
from broker_harness.wire_client import WireClient  # noqa: E402

from pydanube.kernel.policies import FailurePolicy  # noqa: E402


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Start a broker: settings as in its file, and failure policies as {(topic, subscription): policy}."""
    started: list[RunningBroker] = []

    async def start(
        failure_policies: dict[tuple[str, str], FailurePolicy] | None = None, **settings: Any
    ) -> RunningBroker:
        folder = tmp_path / f"broker-{len(started)}"
        folder.mkdir()
        # Journal files are written in full when they are made: small ones make a broker start at once.
        settings.setdefault("storage", {"wal": {"rotation": {"max_bytes": 1 << 20}}})
        broker = RunningBroker(folder, settings)
        for (topic, subscription), policy in (failure_policies or {}).items():
            await broker.put_failure_policy(topic, subscription, policy)
        started.append(broker)
        await broker.start()
        return broker

    yield start
    for broker in started:
        await broker.close()


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    """A broker with default settings."""
    return await start_broker()


@pytest.fixture
def client(broker: RunningBroker) -> WireClient:
    """A client of that broker."""
    return broker.client()
