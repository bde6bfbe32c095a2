"""The journal of one broker: opens, gives each topic its log, stages, closes."""

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from pydanube.entries.disk import Disk, LocalDisk
from pydanube.entries.entry import encode_topic_drop, encode_topic_state
from pydanube.entries.run_store import LocalRunStore
from pydanube.history.catalogue import Catalogue
from pydanube.history.places import Places
from pydanube.history.topic_history import TopicHistory, delete_history, open_history
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Conflict, Corrupt, DanubeError, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FsyncPolicy
from pydanube.log.commit import CommitQueue
from pydanube.log.files import JournalDirectory
from pydanube.log.keeping import Keeper
from pydanube.log.opening import open_files
from pydanube.log.recovery import Progress, RecoveredTopic
from pydanube.log.settings import JournalSettings
from pydanube.log.staging import Stager
from pydanube.log.stats import WriterStats
from pydanube.log.topic_log import TopicLog
from pydanube.log.writer import JournalWriter
from pydanube.metadata import MetadataStore
from pydanube.stores.directory import DirectoryStore
from pydanube.stores.store import DurableStore

logger = logging.getLogger("pydanube.log")

READ_CACHE_BYTES_MAX = 64 << 20


class Journal:
    """One per broker, shared by all its topics.

    To start: `open`, then `open_topic` for every topic the metadata store assigns to this broker, then
    `forget_unopened`. Until that last call nothing found on disk is given up.
    """

    def __init__(
        self,
        queue: CommitQueue,
        stager: Stager,
        *,
        reports: "_LoopReports",
        places: Places,
        deletions: dict[int, TopicName],
    ) -> None:
        self._queue = queue
        self._stager = stager
        self._reports = reports
        self.places = places
        self._deletions = deletions

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        metadata: MetadataStore,
        clock: Clock,
        store: DurableStore | None = None,
        read_cache_bytes_max: int = READ_CACHE_BYTES_MAX,
        broker_id: str = "standalone",
        settings: JournalSettings | None = None,
        disk: Disk | None = None,
        progress: Progress | None = None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> "Journal":
        """Recover what is in `directory` and start the writer thread.

        Args:
            store: where segments are; by default the directory this one is in.
            read_cache_bytes_max: memory for segments that consumers far behind are reading.
            broker_id: under `/storage/journals/{broker_id}` the metadata store remembers which journal this
                broker has written, so that a lost directory is noticed.
            progress: told (bytes read, bytes in all) while recovering, in the loop thread.
            on_step: told the name of each durable step of staging.

        Raises:
            Corrupt: the journal is damaged, missing although it was used, or another broker's.
            Unavailable: the file system refused, for one because it is full.
        """
        settings = settings or JournalSettings()
        disk = disk or LocalDisk()
        loop = asyncio.get_running_loop()
        identity = _Identity(metadata, broker_id)
        expected_id = await identity.read()
        files = JournalDirectory(directory, disk, file_bytes=settings.file_bytes)
        opened = await asyncio.to_thread(
            open_files, files, disk, expected_id=expected_id, progress=_in_loop(loop, progress)
        )
        if expected_id is None:
            await identity.write(opened.journal_id)
        queue = CommitQueue(
            settings,
            loop=loop,
            file_sequence=opened.file_sequence,
            position=opened.position,
            closed_files=opened.recovery.files[:-1],
            recovered=opened.recovery.topics,
        )
        reports = _LoopReports(loop, queue)
        queue.start(
            JournalWriter(
                disk=disk,
                directory=files,
                settings=settings,
                reports=reports,
                journal_id=opened.journal_id,
                file_sequence=opened.file_sequence,
                fd=opened.fd,
                position=opened.position,
                group_sequence=opened.group_sequence,
            )
        )
        catalogue = Catalogue(metadata, broker_id)
        places = Places(
            LocalRunStore(directory.parent / "runs", disk, recycle=files.adopt),
            catalogue,
            store or DirectoryStore(directory.parent),
            read_cache_bytes_max=read_cache_bytes_max,
        )
        keeper = Keeper(
            disk,
            files,
            opened.journal_id,
            places,
            file_bytes=settings.file_bytes,
            written=queue.written,
        )
        return cls(
            queue,
            Stager(queue, files, places, clock=clock, keeper=keeper, on_step=on_step),
            reports=reports,
            places=places,
            deletions=await catalogue.deletions(),
        )

    @property
    def recovered(self) -> Mapping[int, RecoveredTopic]:
        """Topics found on disk and not opened yet, by topic id."""
        return self._queue.recovered

    def call_after_commit(self, callback: Callable[[], None]) -> None:
        """Call back when everybody has been told of a commit, so that answers are written without delay."""
        self._queue.after_commit = callback

    @property
    def is_crowded(self) -> bool:
        """Whether appends come faster than they can be staged: slow down, or be refused before long."""
        return self._queue.is_crowded

    def call_when_roomy(self, callback: Callable[[], None]) -> None:
        """Call back when it is not crowded any more."""
        self._queue.on_roomy = callback

    @property
    def stats(self) -> WriterStats:
        """What the writer has counted since this process opened the journal."""
        return self._queue.stats

    @property
    def unstaged_bytes(self) -> int:
        """Memory held by messages that are in the journal only."""
        return self._queue.unstaged_bytes

    @property
    def refusal(self) -> DanubeError | None:
        """Why appends are refused at the moment, or None."""
        return self._queue.refusal

    async def open_topic(
        self,
        topic_id: int,
        name: TopicName,
        *,
        epoch: int = 1,
        fsync: FsyncPolicy = FsyncPolicy.ALWAYS,
        on_committed: Callable[[], None] = lambda: None,
        adopted: tuple[int, int] | None = None,
    ) -> TopicLog:
        """The log of a topic, found on disk or new.

        Args:
            adopted: start and next offset of a new topic whose history was brought from elsewhere.

        Raises:
            Conflict: the topic was written under a later epoch: this broker does not own it any more.
            Corrupt: a part of the topic is neither in the journal nor in runs or segments.
        """
        queue = self._queue
        if topic_id in self._deletions:
            await self._finish_deletion(topic_id, self._deletions[topic_id])
        found = queue.recovered.get(topic_id)
        if found is not None and found.epoch > epoch:
            raise Conflict(
                f"topic {name} was written under epoch {found.epoch}, this is {epoch}: ask for its owner again"
            )
        state = found or RecoveredTopic(topic_id, epoch, *(adopted or (0, 0)))
        history = await open_history(
            self.places,
            name,
            topic_id,
            start_offset=state.start_offset,
            next_offset=state.tail.first_offset(otherwise=state.next_offset),
            is_new=found is None and adopted is None,
        )
        log = TopicLog(
            queue,
            topic_id,
            epoch=epoch,
            start_offset=state.start_offset,
            next_offset=state.next_offset,
            cursors=state.cursors,
            tail=state.tail,
            producers=state.producers,
            history=history,
            fsync=fsync,
            on_committed=on_committed,
        )
        queue.recovered.pop(topic_id, None)
        queue.logs[topic_id] = log
        facts = encode_topic_state(
            topic_id, epoch, start_offset=log.start_offset, next_offset=log.next_offset
        )
        if adopted is not None:
            await queue.write_state(facts)
        elif found is None or found.epoch != epoch:
            queue.add_state(facts)
        return log

    async def forget_unopened(self) -> list[int]:
        """Give up every topic found on disk that was not opened, return their ids, and begin staging."""
        await self.finish_deletions()
        dead = list(self._queue.recovered)
        for topic_id in dead:
            self._queue.add_state(encode_topic_drop(topic_id, self._drop(topic_id)))
        await self.places.runs.sweep_bundles()
        self._stager.start()
        return dead

    async def finish_deletions(self) -> None:
        """Do what is left of deletions that were begun; what the durable store refuses now is tried next time."""
        self._deletions |= await self.places.catalogue.deletions()
        for topic_id, name in list(self._deletions.items()):
            try:
                await self._finish_deletion(topic_id, name)
            except Unavailable as error:
                logger.warning("topic not deleted yet topic=%s error=%s", name, error)

    async def _finish_deletion(self, topic_id: int, name: TopicName) -> None:
        """Every step may be repeated, so that whoever deletes the same topic meanwhile does no harm."""
        # The journal must have forgotten the topic before its history goes: else it would be missed.
        await self._queue.write_state(encode_topic_drop(topic_id, self._drop(topic_id)))
        await delete_history(self.places, name, topic_id)
        self._deletions.pop(topic_id, None)

    def _drop(self, topic_id: int) -> int:
        """Forget what was found of a topic; return its epoch."""
        topic = self._queue.recovered.pop(topic_id, None)
        if topic is None:
            return 0
        self._queue.free(topic.tail.clear())
        return topic.epoch

    @property
    def histories(self) -> Iterable[TopicHistory]:
        """Those of all open topics."""
        return [log.history for log in self._queue.logs.values()]

    def hold(self, reason: Unavailable | None) -> None:
        """Refuse appends for that reason until called with None."""
        self._queue.hold(reason)

    @property
    def file_in_use(self) -> int | None:
        """The number of the file that is written to; None while it holds no messages."""
        return self._queue.file_sequence if self._queue.open_file_bytes else None

    async def rotate(self) -> None:
        """Close the file in use and begin the next one; staging follows in the background."""
        await self._queue.rotate()

    async def stage_now(self) -> None:
        """Close the file in use and return when everything in it is in runs."""
        await self.rotate()
        await self._stager.finish()

    async def scrub(self) -> None:
        """Like `stage_now`, and then no file of the journal holds what was staged."""
        await self._stager.scrub()

    def forget_cached(self, topic_id: int) -> None:
        """Read what is staged of that topic from where it is stored, not from memory."""
        log = self._queue.logs.get(topic_id)
        if log is not None:
            self._stager.forget_cached(log)

    async def close(self) -> None:
        """Write what is pending, sync, and mark the end as clean. Later appends are refused."""
        await self._stager.stop()
        await self._queue.close()
        await self.places.close()
        self._reports.close()


class _Identity:
    """Which journal a broker has written, as the metadata store remembers it."""

    def __init__(self, metadata: MetadataStore, broker_id: str) -> None:
        self._metadata = metadata
        self._key = f"/storage/journals/{broker_id}"

    async def read(self) -> int | None:
        entry = await self._metadata.get(self._key)
        if entry is None:
            return None
        try:
            return int(json.loads(entry.value)["journal_id"], 16)
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(
                f"metadata key {self._key} does not hold a journal id: {entry.value[:100]!r}"
            ) from error

    async def write(self, journal_id: int) -> None:
        await self._metadata.put(self._key, json.dumps({"journal_id": f"{journal_id:016x}"}).encode())


class _LoopReports:
    """Carries the writer thread's reports into the loop thread, in order.

    Through an eventfd the loop watches: woken that way it is back a fifth sooner than by
    `call_soon_threadsafe` (ADR 0002).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: CommitQueue) -> None:
        self._loop = loop
        self._queue = queue
        self._reports: deque[Callable[[], None]] = deque()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._bell, self._deliver)

    def committed(self, batches: int, file_sequence: int, position: int) -> None:
        self._send(partial(self._queue.batches_committed, batches, file_sequence, position))

    def rotated(self, file_sequence: int, position: int) -> None:
        self._send(partial(self._queue.file_begun, file_sequence, position))

    def rotation_failed(self, file_sequence: int, error: OSError) -> None:
        self._send(partial(self._queue.rotation_failed, file_sequence, error))

    def stopped(self, error: Exception | None) -> None:
        self._send(partial(self._queue.writer_stopped, error))

    def close(self) -> None:
        """To be called when the writer thread is gone: until then it may ring, whatever it has reported."""
        if self._bell >= 0:
            self._loop.remove_reader(self._bell)
            os.close(self._bell)
            self._bell = -1

    def _send(self, report: Callable[[], None]) -> None:
        self._reports.append(report)
        os.eventfd_write(self._bell, 1)

    def _deliver(self) -> None:
        os.eventfd_read(self._bell)
        while self._reports:
            self._reports.popleft()()


def _in_loop(loop: asyncio.AbstractEventLoop, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None

    def report(done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, done, total)

    return report
