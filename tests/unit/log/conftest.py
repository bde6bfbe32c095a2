"""A journal on a disk in memory: opens, restarts, kills."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FsyncPolicy
from pydanube.log import Journal, JournalSettings, TopicLog
from pydanube.metadata import MemoryStore

JOURNAL = Path("/data/journal")
TOPIC = TopicName("default", "orders")


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Rig:
    """Everything that survives a broker: disk, metadata, clock; and the journal of the one running now."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = SetClock()
        self.metadata = MemoryStore(self.clock)
        self.settings = JournalSettings(file_bytes=256 * 1024, space_retry_ms=1, cursor_delay_ms_max=1)
        self.journals: list[Journal] = []

    async def open(self, **changes: object) -> Journal:
        journal = await Journal.open(
            JOURNAL,
            metadata=self.metadata,
            clock=self.clock,
            settings=self.settings,
            disk=self.disk,
            **changes,  # type: ignore[arg-type]
        )
        self.journals.append(journal)
        return journal

    async def open_topic(
        self,
        topic_id: int = 1,
        name: TopicName = TOPIC,
        *,
        epoch: int = 1,
        fsync: FsyncPolicy = FsyncPolicy.ALWAYS,
        on_committed: Callable[[], None] = lambda: None,
    ) -> tuple[Journal, TopicLog]:
        """A journal with one topic open, found on disk or new."""
        journal = await self.open()
        log = await journal.open_topic(topic_id, name, epoch=epoch, fsync=fsync, on_committed=on_committed)
        await journal.forget_unopened()
        return journal, log

    def kill(self) -> None:
        """Leave the running journal with a dead disk, and take what it had written so far along."""

        def refuse(call: str, path: Path | None) -> None:
            raise OSError("this process was killed")

        self.disk.before = refuse
        self.disk = MemoryDisk(self.disk.files())

    async def restart(self) -> tuple[Journal, TopicLog]:
        """Kill the journal and open the next one on what it left behind."""
        self.kill()
        return await self.open_topic()


async def append_all(log: TopicLog, bodies: list[bytes]) -> list[DanubeError | None]:
    """Append, wait until all are done, return what they were told in the order they were told."""
    told: list[DanubeError | None] = []
    all_done = asyncio.Event()

    def done(error: DanubeError | None) -> None:
        told.append(error)
        if len(told) == len(bodies):
            all_done.set()

    for body in bodies:
        log.append(body, append_ms=7, done=done)
    if bodies:
        await all_done.wait()
    return told


async def read_all(log: TopicLog) -> list[tuple[int, bytes]]:
    rows: list[tuple[int, bytes]] = []
    offset = log.start_offset
    while offset < log.committed_end:
        found = await log.read_cold(offset, messages_max=100, bytes_max=1 << 20)
        rows += [row[:2] for row in found]
        offset = rows[-1][0] + 1
    return rows


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    for journal in rig.journals:
        await journal.close()


@pytest.fixture
def append() -> Callable[..., object]:
    return append_all


@pytest.fixture
def read() -> Callable[..., object]:
    return read_all
