"""What an operator may ask of a topic's storage: facts, segments, sealing now, history brought from elsewhere."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydanube.broker.broker import Broker
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.incoming_files import PART_BYTES_MAX, IncomingFiles, Senders
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.segment_replacement import SegmentReplacement
from pydanube.history.convert_job import CheckJob
from pydanube.history.converter import Converter
from pydanube.history.replacement import remove_replaced
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.tiering import Tiering
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.log.journal import Journal

IMPORTS_MAX = 4


@dataclass(frozen=True, slots=True)
class SealOutcome:
    segments: list[SegmentDescriptor]
    """Those that are new."""
    next_offset: int
    """Everything before it is in segments."""


@dataclass(frozen=True, slots=True)
class StorageFacts:
    mode: str
    fsync: str
    start_offset: int
    next_offset: int
    sealed_end: int
    segment_count: int
    segment_bytes: int
    run_count: int
    run_bytes: int
    waiting_bytes: int
    lag_seconds: float
    failures: int
    last_error: str


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    start_offset: int
    next_offset: int
    segments: int


@dataclass(frozen=True, slots=True)
class DroppedCopies:
    """What there was of a topic beside its segments."""

    runs: int
    replaced_files: int


@dataclass(slots=True, kw_only=True)
class _Import(IncomingFiles):
    """Files that are to become a topic, and how far that has come."""

    segments: tuple[SegmentDescriptor, ...] = ()
    """What they are, once they were checked."""
    stored: int = 0
    """How many of them are in the durable store."""
    finishing: asyncio.Task[ImportOutcome] | None = None


class StorageControl:
    def __init__(
        self,
        broker: Broker,
        tiering: Tiering,
        journal: Journal,
        converter: Converter,
        *,
        clock: Clock,
        dice: Dice,
        mode: str,
        spool: Path,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._broker = broker
        self._tiering = tiering
        self._journal = journal
        self._places = journal.places
        self._converter = converter
        self._clock = clock
        self._mode = mode
        self._spool = spool
        self._on_step = on_step
        self._imports: Senders[_Import] = Senders("import", at_once_max=IMPORTS_MAX, clock=clock)
        self.replacement = SegmentReplacement(
            tiering,
            journal.places,
            converter,
            clock=clock,
            dice=dice,
            spool=spool,
            on_replaced=lambda history: journal.forget_cached(history.topic_id),
            on_step=on_step,
        )

    async def seal(self, topic: TopicName) -> SealOutcome:
        """Make segments of everything the topic holds now."""
        history = self._topic(topic).log.history
        segments = await self._tiering.seal(history)
        return SealOutcome(segments, history.sealed_end)

    def topics(self, namespace: str) -> list[str]:
        """The topics of a namespace that store messages, partitions each by its own name, in order."""
        return sorted(
            str(topic.name)
            for topic in self._broker.topics
            if topic.name.namespace == namespace and isinstance(topic, ReliableTopic)
        )

    def segments(self, topic: TopicName) -> list[SegmentDescriptor]:
        """Oldest first."""
        return self._topic(topic).log.history.segments.copy()

    def place(self, topic: TopicName, name: str) -> str:
        return self._places.store.place(segment_key(topic, name))

    def facts(self, topic: TopicName) -> StorageFacts:
        log = self._topic(topic).log
        history = log.history
        trouble = self._tiering.troubles.get(history)
        return StorageFacts(
            mode=self._mode,
            fsync=log.fsync.value,
            start_offset=log.start_offset,
            next_offset=log.committed_end,
            sealed_end=history.sealed_end,
            segment_count=len(history.segments),
            segment_bytes=sum(segment.size for segment in history.segments),
            run_count=len(history.runs),
            run_bytes=sum(run.size for run in history.runs),
            waiting_bytes=sum(run.size for run in history.waiting),
            lag_seconds=self._tiering.lag_ms(history) / 1000,
            failures=0 if trouble is None else trouble.failures,
            last_error="" if trouble is None else trouble.error.text,
        )

    async def read_segment(self, topic: TopicName, name: str, position: int, size: int) -> memoryview:
        """Bytes of a segment as they are stored; fewer at its end."""
        for segment in self.segments(topic):
            if segment.segment_id == name:
                if not 0 <= position < segment.size or not 0 < size <= PART_BYTES_MAX:
                    raise Rejected(
                        f"segment {name} has {segment.size} bytes: {size} from {position} on cannot be read "
                        f"({PART_BYTES_MAX} at a time)"
                    )
                size = min(size, segment.size - position)
                return await self._places.store.read(segment_key(topic, name), position, size)
        raise Rejected(f"topic {topic} has no segment {name}: list its segments", ErrorCode.ARGUMENT_INVALID)

    # Maintenance: segments made anew, and nothing left beside them.

    async def begin_replacement(self, topic: TopicName, segment_ids: Sequence[str], reason: str) -> int:
        """Begin to replace these segments; `self.replacement` takes the files."""
        return await self.replacement.begin(self._topic(topic).log.history, segment_ids, reason)

    async def drop_copies(self, topic: TopicName) -> DroppedCopies:
        """Keep the sealed messages of a topic nowhere but in its segments.

        Not in the journal's files, not in memory, not in runs, not in files of segments that were replaced. Subscriptions
        start over where they have come to, so messages that are not acknowledged are delivered again.
        """
        stored = self._topic(topic)
        log = stored.log
        self._journal.forget_cached(log.topic_id)
        async with log.history.change:
            copies = log.history.copies
            await log.history.drop_copies(copies)
        # After that: the journal may have got files back in which copies were.
        await self._journal.scrub()
        replaced = await remove_replaced(
            self._places,
            now_ms=self._clock.now_ms(),
            topic_id=log.history.topic_id,
            on_step=self._on_step,
        )
        for subscription in stored.subscriptions.values():
            assert isinstance(subscription, DurableSubscription), "those of a reliable topic are"
            subscription.seek(subscription.next_offset)
        return DroppedCopies(len(copies), replaced)

    # Imports: files come in parts, are checked together, and become the history of a new topic.

    async def begin_import(self, topic: TopicName) -> int:
        """The id the topic will have; segments to be imported must carry it."""
        if self._broker.topics.get(topic) is not None:
            raise Conflict(
                f"topic {topic} exists already: import under another name", ErrorCode.TOPIC_CONFLICT
            )
        topic_id = await self._broker.reserve_topic_id()
        files = _Import(
            topic=topic,
            directory=self._spool / f"import-{topic_id}",
            touched_ms=self._clock.monotonic_ms(),
        )
        await self._imports.add(topic_id, files)
        return topic_id

    async def import_part(self, import_id: int, file_number: int, position: int, data: bytes) -> None:
        """Append to a file; `position` is how much of it was sent before."""
        files = self._imports.get(import_id)
        if files.segments:
            raise Rejected(f"the files of import {import_id} were checked: finish or abandon it")
        await files.append(file_number, position, data)

    async def finish_import(self, import_id: int) -> ImportOutcome:
        """Check the files and make the topic. To be repeated if the store did not answer: it goes on where it was.

        Raises:
            Corrupt: a file is damaged, or the files do not follow each other without a gap.
            Unavailable: the store did not take everything.
        """
        files = self._imports.get(import_id)
        if files.finishing is None or files.finishing.done():
            # Whoever stops waiting must not leave a topic half made, and may come back for the outcome.
            finish = self._finish_import(import_id, files)
            files.finishing = asyncio.get_running_loop().create_task(finish)
        return await asyncio.shield(files.finishing)

    async def _finish_import(self, import_id: int, files: "_Import") -> ImportOutcome:
        paths = files.paths
        if not files.segments:
            job = CheckJob(
                topic=str(files.topic),
                topic_id=import_id,
                files=tuple(map(str, paths)),
                created_ms=self._clock.now_ms(),
            )
            files.segments = await self._converter.check(job)
        found = files.segments
        keys = [segment_key(files.topic, segment.segment_id) for segment in found]
        await self._tiering.claim()
        with self._tiering.spared(keys):
            while files.stored < len(keys):
                await self._places.store.put_file(keys[files.stored], paths[files.stored])
                files.stored += 1
            for segment in found:
                await self._places.catalogue.segments.add(files.topic, segment)
        adopted = (found[0].start_offset, found[-1].next_offset)
        await self._broker.adopt_topic(files.topic, import_id, adopted)
        await self._imports.remove(import_id)
        return ImportOutcome(*adopted, len(found))

    async def abandon_import(self, import_id: int) -> None:
        self._imports.get(import_id)
        await self._imports.remove(import_id)

    def topic_of_import(self, import_id: int) -> str:
        """The topic an import will make, "" if there is no such import."""
        files = self._imports.find(import_id)
        return "" if files is None else str(files.topic)

    def _topic(self, name: TopicName) -> ReliableTopic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise Rejected(f"topic {name} not found on this broker", ErrorCode.TOPIC_UNKNOWN)
        if not isinstance(topic, ReliableTopic):
            raise Rejected(
                f"topic {name} is non-reliable: it stores nothing, so there is nothing to show or seal",
                ErrorCode.DISPATCH_MISMATCH,
            )
        return topic
