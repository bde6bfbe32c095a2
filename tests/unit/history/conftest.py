"""A whole storage in one process for the tests of this folder."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.unit.history.storage_rig import StorageRig  # noqa: E402


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[StorageRig]:
    rig = StorageRig(tmp_path)
    yield rig
    await rig.close()
