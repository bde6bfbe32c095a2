"""What an operator may ask of a topic's storage: facts, segments, sealing now, history brought from elsewhere."""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pydanube.broker.broker import Broker
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.history.convert_job import CheckJob
from pydanube.history.converter import Converter
from pydanube.history.places import Places
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.tiering import Tiering
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import TopicName

IMPORTS_MAX = 4
FILES_PER_IMPORT_MAX = 100_000
PART_BYTES_MAX = 1 << 20
IMPORT_IDLE_MS_MAX = 60 * 60 * 1000
"""An import nobody has sent a part of for so long was abandoned by a client that could not say so."""


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


@dataclass(slots=True)
class _Import:
    topic: TopicName
    directory: Path
    touched_ms: int
    files: dict[int, int] = field(default_factory=dict)
    """Bytes so far, by file number."""


class StorageControl:
    def __init__(
        self,
        broker: Broker,
        tiering: Tiering,
        places: Places,
        converter: Converter,
        *,
        clock: Clock,
        mode: str,
        spool: Path,
    ) -> None:
        self._broker = broker
        self._tiering = tiering
        self._places = places
        self._converter = converter
        self._clock = clock
        self._mode = mode
        self._spool = spool
        self._imports: dict[int, _Import] = {}

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

    # Imports: files come in parts, are checked together, and become the history of a new topic.

    async def begin_import(self, topic: TopicName) -> int:
        """The id the topic will have; segments to be imported must carry it."""
        if self._broker.topics.get(topic) is not None:
            raise Conflict(
                f"topic {topic} exists already: import under another name", ErrorCode.TOPIC_CONFLICT
            )
        await self._abandon_idle()
        if len(self._imports) >= IMPORTS_MAX:
            raise Rejected(f"{IMPORTS_MAX} imports are under way: finish or abandon one first")
        topic_id = await self._broker.reserve_topic_id()
        directory = self._spool / f"import-{topic_id}"
        await asyncio.to_thread(directory.mkdir, parents=True)
        self._imports[topic_id] = _Import(topic, directory, self._clock.monotonic_ms())
        return topic_id

    async def import_part(self, import_id: int, file_number: int, position: int, data: bytes) -> None:
        """Append to a file; `position` is how much of it was sent before."""
        session = self._import(import_id)
        session.touched_ms = self._clock.monotonic_ms()
        have = session.files.get(file_number, 0)
        if position != have or len(data) > PART_BYTES_MAX or not 0 <= file_number < FILES_PER_IMPORT_MAX:
            raise Rejected(
                f"part of {len(data)} bytes for file {file_number} at {position}: {have} bytes of it are here, a part "
                f"has {PART_BYTES_MAX} at most, an import {FILES_PER_IMPORT_MAX} files"
            )
        await asyncio.to_thread(_append, session.directory / f"{file_number}.parquet", data)
        session.files[file_number] = have + len(data)

    async def finish_import(self, import_id: int) -> ImportOutcome:
        """Check the files and make the topic.

        Raises:
            Corrupt: a file is damaged, or the files do not follow each other without a gap.
        """
        session = self._import(import_id)
        # Whoever stops waiting must not leave a topic half made.
        finishing = asyncio.get_running_loop().create_task(self._finish_import(import_id, session))
        return await asyncio.shield(finishing)

    async def _finish_import(self, import_id: int, session: _Import) -> ImportOutcome:
        paths = [session.directory / f"{number}.parquet" for number in sorted(session.files)]
        found = await self._converter.check(
            CheckJob(
                topic=str(session.topic),
                topic_id=import_id,
                files=tuple(map(str, paths)),
                created_ms=self._clock.now_ms(),
            )
        )
        keys = [segment_key(session.topic, segment.segment_id) for segment in found]
        await self._tiering.claim()
        with self._tiering.spared(keys):
            for path, key in zip(paths, keys, strict=True):
                await self._places.store.put_file(key, path)
            for segment in found:
                await self._places.catalogue.segments.add(session.topic, segment)
        adopted = (found[0].start_offset, found[-1].next_offset)
        await self._broker.adopt_topic(session.topic, import_id, adopted)
        await self.abandon_import(import_id)
        return ImportOutcome(*adopted, len(found))

    async def abandon_import(self, import_id: int) -> None:
        session = self._import(import_id)
        del self._imports[import_id]
        await asyncio.to_thread(shutil.rmtree, session.directory, ignore_errors=True)

    def topic_of_import(self, import_id: int) -> str:
        """The topic an import will make, "" if there is no such import."""
        session = self._imports.get(import_id)
        return "" if session is None else str(session.topic)

    async def _abandon_idle(self) -> None:
        before_ms = self._clock.monotonic_ms() - IMPORT_IDLE_MS_MAX
        for import_id in [key for key, session in self._imports.items() if session.touched_ms < before_ms]:
            await self.abandon_import(import_id)

    def _import(self, import_id: int) -> _Import:
        try:
            return self._imports[import_id]
        except KeyError:
            raise Rejected(f"no import {import_id} is under way: begin it again") from None

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


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
