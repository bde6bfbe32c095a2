"""A journal, a durable store in memory and the tiering between them, all in one process and on a clock set by hand."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydanube.history.convert_job import Converted, ConvertJob
from pydanube.history.ownership import Owner
from pydanube.history.segment_file import write_segment
from pydanube.history.tiering import Tiering, TieringSettings
from pydanube.history.topic_history import TopicHistory
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.log import Journal, JournalSettings, TopicLog
from pydanube.log.tail import Row
from pydanube.metadata import MemoryStore
from pydanube.protocol import danube_pb2 as pb
from pydanube.stores.memory import MemoryObjects

TOPIC = TopicName("default", "orders")
OTHER = TopicName("default", "payments")
OWNER = Owner("0000000000000001", "ours")
PATIENCE_SECONDS = 20.0


class SetClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class SameProcess:
    """Converts without a process of its own: what is tested here is what happens around it."""

    def __init__(self) -> None:
        self.failure: DanubeError | None = None
        self.jobs: list[ConvertJob] = []

    async def convert(self, job: ConvertJob) -> Converted:
        self.jobs.append(job)
        if self.failure is not None:
            raise self.failure
        return await asyncio.to_thread(write_segment, job)


class StorageRig:
    """Everything that outlives a broker, and the journal and tiering of the one running now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SetClock()
        self.metadata = MemoryStore(self.clock)
        self.objects = MemoryObjects(now_ms=self.clock.now_ms)
        self.converter = SameProcess()
        self.settings = TieringSettings(segment_bytes=64 << 10, age_ms_max=60_000)
        self.on_step: Callable[[str], None] = lambda step: None
        self.read_cache_bytes_max = 64 << 20
        self.cache_bytes_max = 0
        self._opened: list[tuple[Journal, Tiering]] = []

    async def open(self, *topics: TopicName) -> list[TopicLog]:
        """Start a broker with these topics; ids follow their order."""
        return await self.open_only(dict(enumerate(topics or (TOPIC,), 1)))

    async def open_only(self, topics: dict[int, TopicName]) -> list[TopicLog]:
        """Start a broker that knows these topics by these ids."""
        (self.folder / "spool").mkdir(exist_ok=True)
        self.journal = await Journal.open(
            self.folder / "journal",
            metadata=self.metadata,
            clock=self.clock,
            store=self.objects,
            read_cache_bytes_max=self.read_cache_bytes_max,
            settings=JournalSettings(
                file_bytes=256 << 10, cache_bytes_max=self.cache_bytes_max, space_retry_ms=1
            ),
        )
        self.tiering = Tiering(
            self.journal,
            self.journal.places,
            self.converter,
            settings=self.settings,
            clock=self.clock,
            spool=self.folder / "spool",
            owner=OWNER,
            on_step=self._reached,
        )
        self._opened.append((self.journal, self.tiering))
        logs = [await self.journal.open_topic(number, name) for number, name in topics.items()]
        await self.journal.forget_unopened()
        return logs

    async def open_tiering(self, *topics: TopicName) -> list[TopicLog]:
        """The same, and begin to look for what is due."""
        logs = await self.open(*topics)
        await self.tiering.start()
        return logs

    def _reached(self, step: str) -> None:
        self.on_step(step)

    async def close(self) -> None:
        while self._opened:
            journal, tiering = self._opened.pop()
            await tiering.stop()
            await journal.close()

    async def seal(self, log: TopicLog) -> list[tuple[int, int]]:
        return [(made.start_offset, made.next_offset) for made in await self.tiering.seal(log.history)]

    async def descriptors(self, topic: TopicName = TOPIC) -> list[Any]:
        return await self.journal.places.catalogue.segments.list(topic)

    def stored(self) -> list[str]:
        """Names of all segments in the store, known or not."""
        return sorted(key for key in self.objects.objects if key.endswith(".parquet"))

    def run_files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "runs").rglob("*") if path.is_file())


def body(number: int, size: int = 0) -> bytes:
    """A message as a gRPC client sends it."""
    return pb.StreamMessage(
        request_id=number,
        publish_time=number,
        producer_name="p",
        payload=(b"%d " % number).ljust(size, b"."),
    ).SerializeToString()


def number_of(row: Row) -> int:
    return int(pb.StreamMessage.FromString(row[1]).payload.split()[0])


async def append(log: TopicLog, *bodies: bytes, append_ms: int = 7) -> list[DanubeError | None]:
    """Append, wait until all are answered, return the answers."""
    told: list[DanubeError | None] = []
    finished = asyncio.Event()

    def done(error: DanubeError | None) -> None:
        told.append(error)
        if len(told) == len(bodies):
            finished.set()

    for each in bodies:
        log.append(each, append_ms=append_ms, done=done)
    await finished.wait()
    return told


async def publish(log: TopicLog, count: int, *, size: int = 0) -> None:
    """The next `count` messages; each says which offset it must have."""
    first = log.next_offset
    told = await append(log, *(body(number, size) for number in range(first, first + count)))
    assert told == [None] * count


async def read(log: TopicLog, start: int | None = None) -> list[int]:
    """The numbers of all messages from `start` on, in the order and at the offsets they are read."""
    numbers: list[int] = []
    offset = log.start_offset if start is None else start
    while offset < log.committed_end:
        rows = await log.read_cold(offset, messages_max=100, bytes_max=1 << 20)
        assert [row[0] for row in rows] == list(range(offset, offset + len(rows)))
        numbers += map(number_of, rows)
        offset += len(rows)
    return numbers


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what must happen; how long it takes does not matter."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


def waiting(history: TopicHistory) -> list[tuple[int, int]]:
    return [(run.start_offset, run.next_offset) for run in history.waiting]
