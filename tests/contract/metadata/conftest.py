"""Every back end of the metadata store, opened the same way; a new one joins by adding itself here."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydanube.metadata import MemoryStore, MetadataStore, SqliteStore
from pydanube.metadata.history import History


class ManualClock:
    """Stands still until told otherwise."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@dataclass
class Opened:
    """A store under test, and how time passes for it."""

    store: MetadataStore
    pass_ms: Callable[[int], Awaitable[None]]


HISTORY_CHANGES = 64


async def open_memory(folder: Path, clock: ManualClock) -> Opened:
    store = MemoryStore(clock, history=History(0, changes_max=HISTORY_CHANGES))

    async def pass_ms(ms: int) -> None:
        clock.ms += ms
        await store.expire_leases()

    return Opened(store, pass_ms)


async def open_sqlite(folder: Path, clock: ManualClock) -> Opened:
    store = await SqliteStore.open(
        folder / "metadata.sqlite3", clock=clock, history_changes_max=HISTORY_CHANGES
    )

    async def pass_ms(ms: int) -> None:
        clock.ms += ms
        await store.expire_leases()

    return Opened(store, pass_ms)


BACKENDS: dict[str, Callable[[Path, ManualClock], Awaitable[Opened]]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
}


@pytest.fixture(params=sorted(BACKENDS))
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    opened = await BACKENDS[request.param](tmp_path, ManualClock())
    yield opened
    await opened.store.close()


@pytest.fixture
def store(opened: Opened) -> MetadataStore:
    return opened.store


@pytest.fixture
def pass_ms(opened: Opened) -> Callable[[int], Awaitable[None]]:
    return opened.pass_ms


@pytest.fixture
def history_changes() -> int:
    """How many changes the stores under test remember."""
    return HISTORY_CHANGES
