"""The client's unit tests: pure parts by themselves, drivers against a broker that plays a script."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("scripted_broker")

from scripted_broker import ScriptedBroker  # noqa: E402


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    """A broker that behaves until a test tells it not to."""
    broker = ScriptedBroker()
    await broker.start()
    yield broker
    await broker.stop()
