"""Journals on a disk in memory that fails as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.log import Journal, JournalSettings, TopicLog
from pydanube.log.files import JournalDirectory
from pydanube.log.recovery import Recovery, recover
from pydanube.metadata import MemoryStore

FILE_BYTES = 256 * 1024


class StillClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class Workshop:
    """Builds journals, breaks them, and looks at what recovery makes of it."""

    journal_path = Path("/data/journal")
    topic = TopicName("default", "orders")

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = StillClock()
        self.metadata = MemoryStore(self.clock)
        self.settings = JournalSettings(file_bytes=FILE_BYTES, space_retry_ms=1, cache_bytes_max=0)
        self.journals: list[Journal] = []

    async def open(self, *, stages: bool = True) -> tuple[Journal, TopicLog]:
        journal = await Journal.open(
            self.journal_path,
            metadata=self.metadata,
            clock=self.clock,
            settings=self.settings,
            disk=self.disk,
        )
        self.journals.append(journal)
        log = await journal.open_topic(1, self.topic)
        if stages:
            await journal.forget_unopened()
        return journal, log

    def swap(self, files: dict[Path, bytes]) -> None:
        """Go on with a disk that holds these files; whoever used the old one finds it dead."""
        dead, self.disk = self.disk, MemoryDisk(files)
        dead.before = _dead

    def file(self, sequence: int) -> Path:
        return self.journal_path / f"{sequence:020}.journal"

    def recover(self, files: dict[Path, bytes]) -> Recovery:
        """Only read, change nothing."""
        disk = MemoryDisk(files)
        return recover(JournalDirectory(self.journal_path, disk, file_bytes=FILE_BYTES), disk)

    async def append(
        self, log: TopicLog, bodies: list[bytes], *, producer_id: int = 0
    ) -> list[DanubeError | None]:
        """Append and wait; a producer id other than 0 is that of an idempotent producer."""
        told: list[DanubeError | None] = []
        finished = asyncio.Event()

        def done(error: DanubeError | None) -> None:
            told.append(error)
            if len(told) == len(bodies):
                finished.set()

        for body in bodies:
            sequence = log.sequence_of(producer_id) + 1 if producer_id else 0
            log.append(body, producer_id=producer_id, sequence=sequence, append_ms=7, done=done)
        await finished.wait()
        return told

    async def rows(self, log: TopicLog) -> list[tuple[int, bytes]]:
        rows: list[tuple[int, bytes]] = []
        offset = log.start_offset
        while offset < log.committed_end:
            found = await log.read_cold(offset, messages_max=100, bytes_max=1 << 20)
            rows += [row[:2] for row in found]
            offset = rows[-1][0] + 1
        return rows


def _dead(call: str, path: Path | None) -> None:
    raise OSError("this process was killed")


def recovered_bodies(recovery: Recovery) -> list[bytes]:
    topic = recovery.topics.get(1)
    return [] if topic is None else [body for chunk in topic.tail.chunks for body in chunk.bodies]


@pytest.fixture
async def workshop() -> AsyncIterator[Workshop]:
    workshop = Workshop()
    yield workshop
    workshop.swap({})
    for journal in workshop.journals:
        await journal.close()


@pytest.fixture
def bodies_of() -> Callable[[Recovery], list[bytes]]:
    return recovered_bodies
