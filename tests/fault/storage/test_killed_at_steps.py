"""SIGKILL at every step from the journal into the durable store (`python -m tests.fault.storage` tries more seeds)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.storage.modes import Mode
from tests.fault.storage.tale import tell


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", ["local", "shared_fs", "object_store"])
async def test_nothing_is_lost_doubled_or_left_behind(
    tmp_path: Path, make_mode: Callable[[str], Mode], mode: str
) -> None:
    told = await tell(tmp_path, make_mode(mode), f"seed of {mode}")
    assert told.ledger_acknowledged > 100
    assert told.orders_acknowledged
