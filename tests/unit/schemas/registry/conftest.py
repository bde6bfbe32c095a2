"""A registry on each back end of the metadata store, and a clock that stands still."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydanube.metadata import MemoryStore, MetadataStore, SqliteStore
from pydanube.schemas.registry import SchemaRegistry

NOW_MS = 1_700_000_000_123


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture(params=["memory", "sqlite"])
async def metadata(
    request: pytest.FixtureRequest, tmp_path: Path, clock: StillClock
) -> AsyncIterator[MetadataStore]:
    store: MemoryStore | SqliteStore
    if request.param == "memory":
        store = MemoryStore(clock)
    else:
        store = await SqliteStore.open(tmp_path / "metadata.sqlite3", clock=clock)
    yield store
    await store.close()


@pytest.fixture
def registry(metadata: MetadataStore, clock: StillClock) -> SchemaRegistry:
    return SchemaRegistry(metadata, clock)
