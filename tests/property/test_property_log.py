"""Random lives of a journal against a model: offsets dense, order and content kept, nothing stored twice.

Cursors stay where they were moved to, and what is remembered of producers is the same after every restart.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pydanube.entries.entry import Kind
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import Retention
from pydanube.log import Journal, JournalSettings, TopicLog
from pydanube.metadata import MemoryStore

TOPICS = {1: TopicName("default", "orders"), 2: TopicName("default", "payments")}

TOPIC_IDS = st.sampled_from(sorted(TOPICS))
PRODUCER_IDS = st.integers(1, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), TOPIC_IDS, st.integers(1, 40), st.integers(0, 3000)),
    st.tuples(st.just("burst"), TOPIC_IDS, st.integers(1, 40), st.integers(0, 3000)),
    st.tuples(st.just("publish"), TOPIC_IDS, PRODUCER_IDS, st.integers(1, 30), st.integers(1, 5)),
    st.tuples(st.just("publish burst"), TOPIC_IDS, PRODUCER_IDS, st.integers(1, 30), st.integers(1, 5)),
    st.tuples(st.just("forget"), TOPIC_IDS, PRODUCER_IDS),
    st.tuples(st.just("cursor"), TOPIC_IDS, st.integers(0, 100)),
    st.tuples(st.just("move"), TOPIC_IDS, st.integers(-1, 100)),
    st.tuples(st.just("retain"), TOPIC_IDS, st.integers(0, 100)),
    st.tuples(st.just("stage")),
    st.tuples(st.just("rotate")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("kill")),
    st.tuples(st.just("power"), st.integers(0, 2**32)),
)


class StillClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


class Life:
    """A broker's journal through restarts, and what it has promised."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.clock = StillClock()
        self.metadata = MemoryStore(self.clock)
        self.acknowledged: dict[int, list[bytes]] = {topic_id: [] for topic_id in TOPICS}
        self.sent: dict[int, list[bytes]] = {topic_id: [] for topic_id in TOPICS}
        self.start = dict.fromkeys(TOPICS, 0)
        self.possible_cursors: dict[int, set[int]] = {topic_id: {0} for topic_id in TOPICS}
        """The last one known to be durable and all after it."""
        self.sequences: dict[tuple[int, int], list[int]] = {}
        """Per topic and producer the offset of each message sent so far."""
        self.number = 0

    async def begin(self) -> None:
        self.journal = await Journal.open(
            Path("/data/journal"),
            metadata=self.metadata,
            clock=self.clock,
            settings=JournalSettings(file_bytes=160 * 1024, cache_bytes_max=20_000),
            disk=self.disk,
        )
        self.logs: dict[int, TopicLog] = {
            topic_id: await self.journal.open_topic(topic_id, name) for topic_id, name in TOPICS.items()
        }
        await self.journal.forget_unopened()
        for topic_id, log in self.logs.items():
            await self.check(topic_id, log)
            # What was on its way when the journal ended may have arrived: it counts from now on.
            self.acknowledged[topic_id] = self.sent[topic_id][: log.committed_end]
            self.sent[topic_id] = list(self.acknowledged[topic_id])
            self.possible_cursors[topic_id] = {log.cursors.get("s", 0)}
            for producer_id in range(1, 5):
                self.check_producer(topic_id, producer_id, log)

    def check_producer(self, topic_id: int, producer_id: int, log: TopicLog) -> None:
        """Every message of the producer that is in the log is known, with its offset or as too old."""
        offsets = self.sequences.setdefault((topic_id, producer_id), [])
        del offsets[sum(offset < log.next_offset for offset in offsets) :]
        assert log.sequence_of(producer_id) == len(offsets)
        assert log.check_sequence(producer_id, len(offsets) + 1, 3) is None
        answers = [log.check_sequence(producer_id, number, 1) for number in range(1, len(offsets) + 1)]
        known = [offset for offset in answers if offset != -1]
        assert known == offsets[len(offsets) - len(known) :]
        assert len(known) >= min(len(offsets), 16)

    async def check(self, topic_id: int, log: TopicLog) -> None:
        assert log.start_offset == self.start[topic_id]
        assert len(self.acknowledged[topic_id]) <= log.committed_end <= len(self.sent[topic_id])
        rows: list[tuple[int, bytes]] = []
        while (offset := rows[-1][0] + 1 if rows else log.start_offset) < log.committed_end:
            found = await log.read_cold(offset, messages_max=7, bytes_max=5000)
            for base, body, *_ in found:
                rows += enumerate(body.split(b"\0") if b"/" in body else [body], base)
        assert rows == list(enumerate(self.sent[topic_id]))[log.start_offset : log.committed_end]
        assert log.cursors.get("s", 0) in self.possible_cursors[topic_id]

    def send(self, topic_id: int, count: int, size: int) -> asyncio.Event:
        """Append without waiting; the event says when all were acknowledged."""
        finished = asyncio.Event()
        for left in range(count, 0, -1):
            self.number += 1
            body = b"%d:" % self.number + bytes(size)

            def done(error: DanubeError | None, body: bytes = body, left: int = left) -> None:
                if error is None:
                    self.acknowledged[topic_id].append(body)
                if left == 1:
                    finished.set()

            assert self.logs[topic_id].append(body, append_ms=1, done=done) == len(self.sent[topic_id])
            self.sent[topic_id].append(body)
        return finished

    def publish(self, topic_id: int, producer_id: int, entries: int, count: int) -> asyncio.Event:
        """Append batches of an idempotent producer, each of them sent twice."""
        finished = asyncio.Event()
        log = self.logs[topic_id]
        offsets = self.sequences.setdefault((topic_id, producer_id), [])
        for left in range(entries, 0, -1):
            sequence = len(offsets) + 1
            self.number += 1
            bodies = [b"%d/%d" % (self.number, part) for part in range(count)]

            def done(error: DanubeError | None, bodies: list[bytes] = bodies, left: int = left) -> None:
                if error is None:
                    self.acknowledged[topic_id] += bodies
                if left == 1:
                    finished.set()

            assert log.check_sequence(producer_id, sequence, count) is None
            offset = log.append(
                b"\0".join(bodies),
                count=count,
                kind=Kind.BATCH,
                producer_id=producer_id,
                sequence=sequence,
                append_ms=1,
                done=done,
            )
            assert log.check_sequence(producer_id, sequence, count) == offset == len(self.sent[topic_id])
            self.sent[topic_id] += bodies
            offsets += range(offset, offset + count)
        return finished

    async def do(self, operation: tuple[object, ...]) -> None:
        match operation:
            case ("append", int(topic_id), int(count), int(size)):
                await self.send(topic_id, count, size).wait()
            case ("burst", int(topic_id), int(count), int(size)):
                self.send(topic_id, count, size)
            case ("cursor", int(topic_id), int(percent)):
                log = self.logs[topic_id]
                log.save_cursor("s", log.committed_end * percent // 100)
                self.possible_cursors[topic_id].add(log.cursors["s"])
            case ("move", int(topic_id), int(percent)):
                log = self.logs[topic_id]
                cursor = max(log.committed_end * percent // 100, -1)
                await log.move_cursor("s", cursor)
                self.possible_cursors[topic_id] = {cursor}
            case ("publish", int(topic_id), int(producer_id), int(entries), int(count)):
                await self.publish(topic_id, producer_id, entries, count).wait()
            case ("publish burst", int(topic_id), int(producer_id), int(entries), int(count)):
                self.publish(topic_id, producer_id, entries, count)
            case ("forget", int(topic_id), int(producer_id)):
                self.logs[topic_id].forget_producer(producer_id)
                self.sequences[topic_id, producer_id] = []
                await self.send(topic_id, 1, 0).wait()
            case ("retain", int(topic_id), int(percent)):
                log = self.logs[topic_id]
                await log.retain(
                    Retention(until_consumed=True),
                    unconsumed_from=log.committed_end * percent // 100,
                    now_ms=0,
                )
                self.start[topic_id] = log.start_offset
            case ("stage",):
                await self.journal.stage_now()
                self.cursors_are_durable()
            case ("rotate",):
                await self.journal.rotate()
            case ("stop",):
                await self.journal.close()
                self.cursors_are_durable()
                await self.begin()
            case ("kill",):
                await self.end(MemoryDisk.files)
                await self.begin()
            case ("power", int(seed)):
                dice = random.Random(seed)
                await self.end(lambda disk: disk.after_power_loss(lambda: dice.random() < 0.5))
                await self.begin()

    def cursors_are_durable(self) -> None:
        for topic_id, log in self.logs.items():
            self.possible_cursors[topic_id] = {log.cursors.get("s", 0)}

    async def end(self, left_by: Callable[[MemoryDisk], dict[Path, bytes]]) -> None:
        """The process is gone: from now on its disk refuses, and what it leaves is looked at when nothing moves."""

        def refuse(call: str, path: Path | None) -> None:
            raise OSError("this process was killed")

        self.disk.before = refuse
        known = {topic_id: len(bodies) for topic_id, bodies in self.acknowledged.items()}
        await self.journal.close()
        for topic_id, count in known.items():
            del self.acknowledged[topic_id][count:]
        self.disk = MemoryDisk(left_by(self.disk))


@settings(max_examples=60, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
# A cursor that changed just before a rotation stands in the new file's snapshot only.
@example([("append", 1, 25, 0), ("cursor", 1, 4), ("rotate",)])
@example([("append", 1, 25, 0), ("cursor", 1, 50), ("rotate",), ("move", 1, -1), ("rotate",), ("kill",)])
@example([("publish", 1, 1, 30, 5), ("forget", 1, 1), ("stage",), ("publish", 1, 1, 3, 1), ("kill",)])
def test_any_life_keeps_every_promise(operations: list[tuple[object, ...]]) -> None:
    async def live() -> None:
        life = Life()
        await life.begin()
        for operation in operations:
            await life.do(operation)
        await life.do(("stop",))
        await life.journal.close()

    asyncio.run(live())
