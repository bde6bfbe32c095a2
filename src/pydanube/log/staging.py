"""Turning closed journal files into runs, then giving the files back.

A file full of large entries is kept, and its runs are where they are. Others are copied: to a run each, or to bundles.

Order per file: every topic's run written and synced, its descriptor stored, and only then the file
released. A crash in between repeats the file after restart; runs that exist already stay as they are.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress

from pydanube.entries import bundle
from pydanube.history.bundling import Part, stage_together
from pydanube.history.places import Places
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError
from pydanube.log.commit import CommitQueue
from pydanube.log.files import JournalDirectory
from pydanube.log.keeping import Keeper, KeptFile, Work
from pydanube.log.tail import Chunk
from pydanube.log.topic_log import TopicLog

logger = logging.getLogger("pydanube.log")

BUNDLED_BYTES_MAX = 1 << 20
"""What a topic has in a journal file goes into a bundle up to here, if enough others have as little."""
BUNDLED_TOPICS_MIN = 16
BUNDLE_BYTES = 16 << 20
"""A bundle is closed once it is that long: its topics cannot be changed while it is written."""
TOPICS_AT_ONCE_MAX = 8
"""Runs written at the same time: their syncs share the file system's own commits."""
RETRY_SECONDS_MAX = 30.0
HURRIED_MS = 250
"""A file that was full sooner: the next one is not written with zeros first, which would take as long as it lasts."""

Stage = Callable[[Sequence[Work], int], Awaitable[None]]
"""Makes runs of some topics' chunks, created at that moment, while their histories are held."""


class Stager:
    """One task per journal; works through `CommitQueue.closed_files` from the oldest on."""

    def __init__(
        self,
        queue: CommitQueue,
        directory: JournalDirectory,
        places: Places,
        *,
        clock: Clock,
        keeper: Keeper,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        """`on_step` is told "kept" for each file that is, "staged" for each run, "journal_released" for each file."""
        self._queue = queue
        self._directory = directory
        self._places = places
        self._clock = clock
        self._keeper = keeper
        self._rotated_ms: int | None = None
        self._on_step = on_step
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._stopping = False
        self._failure: Exception | None = None
        self._cached: deque[tuple[TopicLog, Chunk]] = deque()
        self._cached_bytes = 0
        self._task: asyncio.Task[None] | None = None
        queue.on_rotated = self._wake.set

    def start(self) -> None:
        self._wake.set()
        self._task = self._queue.loop.create_task(self._run())

    async def stop(self) -> None:
        """End after the runs in hand; what is not staged stays in the journal."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task

    async def finish(self) -> None:
        """Return once every closed file is staged and released; raise what keeps that from happening."""
        while self._queue.closed_files:
            self._failure = None
            self._tried.clear()
            self._wake.set()
            await self._tried.wait()
            if self._failure is not None:
                raise self._failure

    async def scrub(self) -> None:
        """Like `finish` after a rotation, but no file of the journal is used again, or kept, with what else is in it."""
        with self._directory.scrubbing():
            await asyncio.to_thread(self._directory.drop_spares)
            await self._queue.rotate()
            await self.finish()
            await self._places.runs.sweep_kept()

    def forget_cached(self, log: TopicLog) -> None:
        """Keep nothing of that topic in memory that is in runs."""
        for owner, chunk in list(self._cached):
            if owner is log:
                self._cached.remove((owner, chunk))
                self._cached_bytes -= chunk.memory_bytes
                log.tail.forget(chunk)

    async def _run(self) -> None:
        failures = 0
        while not self._stopping:
            # Whatever wakes the task makes it look again, a failure after a while does too.
            with suppress(TimeoutError):
                pause = min(2.0 ** (failures - 1), RETRY_SECONDS_MAX) if failures else None
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._prepare()
                await self._stage_closed_files()
                failures = 0
            except (OSError, DanubeError) as error:
                failures += 1
                self._failure = error
                logger.warning("staging failed, tried again later attempt=%d error=%s", failures, error)
            self._tried.set()

    async def _prepare(self) -> None:
        """Have the next file ready before it is needed; the disk may be full, staging may still work."""
        now_ms = self._clock.monotonic_ms()
        is_hurried = self._rotated_ms is not None and now_ms - self._rotated_ms < HURRIED_MS
        self._rotated_ms = now_ms
        try:
            await asyncio.to_thread(self._directory.prepare, at_once=is_hurried, gently=True)
        except OSError as error:
            logger.warning("no spare journal file error=%s", error)

    async def _stage_closed_files(self) -> None:
        closed = self._queue.closed_files
        while closed and not self._stopping:
            if await self._stage_file(closed[0]):
                self._on_step("journal_released")
                self._queue.written.forget(closed[0])
                logger.debug("journal file released file_sequence=%d", closed.popleft())

    async def _stage_file(self, file_sequence: int) -> bool:
        """Whether everything in the file is in runs now, and the journal is without it."""
        work = [
            (log, chunk)
            for log in self._queue.logs.values()
            for chunk in log.tail.chunks
            if chunk.file_sequence == file_sequence and chunk.bases and not chunk.staged
        ]
        kept = await self._keeper.keep(file_sequence, work)
        if kept is not None:
            return await self._stage_kept(file_sequence, kept, work)
        if await self._copy(work):
            await asyncio.to_thread(self._directory.release, file_sequence)
            return True
        return False

    async def _stage_kept(self, file_sequence: int, kept: KeptFile, work: list[Work]) -> bool:
        self._on_step("kept")
        try:
            for first in range(0, len(work), bundle.RUNS_MAX):
                if self._stopping:
                    return False
                await self._stage_together(work[first : first + bundle.RUNS_MAX], kept.stage)
            await asyncio.to_thread(self._directory.give_away, file_sequence)
            return True
        finally:
            await kept.give_up_if_unused()

    async def _copy(self, work: list[Work]) -> bool:
        """Whether all of it is in runs of its own now."""
        small = [item for item in work if item[1].memory_bytes <= BUNDLED_BYTES_MAX]
        alone = [item for item in work if item[1].memory_bytes > BUNDLED_BYTES_MAX]
        if len(small) < BUNDLED_TOPICS_MIN:
            small, alone = [], work
        gate = asyncio.Semaphore(TOPICS_AT_ONCE_MAX)
        results = await asyncio.gather(
            *(self._stage_chunk(log, chunk, gate) for log, chunk in alone),
            self._stage_bundles(small),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return all(results)

    async def _stage_chunk(self, log: TopicLog, chunk: Chunk, gate: asyncio.Semaphore) -> bool:
        async with gate:
            if self._stopping:
                return False
            if await log.stage(chunk, created_ms=self._clock.now_ms()):
                self._staged(log, chunk)
            return True

    async def _stage_bundles(self, work: list[Work]) -> bool:
        """One after the other: each is written past the page cache, through the same memory."""
        for group in _bundles(work):
            if self._stopping:
                return False
            await self._stage_together(group, self._stage_bundle)
        return True

    async def _stage_bundle(self, group: Sequence[Work], created_ms: int) -> None:
        parts = [Part(log.history, chunk.heads, chunk.bodies) for log, chunk in group]
        await stage_together(self._places, parts, created_ms=created_ms)

    async def _stage_together(self, group: Sequence[Work], stage: Stage) -> None:
        async with AsyncExitStack() as stack:
            for log, _ in group:
                await stack.enter_async_context(log.history.change)
            there = [(log, chunk) for log, chunk in group if not log.history.is_deleted]
            await stage(there, self._clock.now_ms())
            for log, chunk in group:
                chunk.staged = not log.history.is_deleted
        for log, chunk in group:
            if chunk.staged:
                self._staged(log, chunk)

    def _staged(self, log: TopicLog, chunk: Chunk) -> None:
        self._on_step("staged")
        self._queue.free(chunk.memory_bytes)
        self._keep_in_cache(log, chunk)

    def _keep_in_cache(self, log: TopicLog, chunk: Chunk) -> None:
        self._cached.append((log, chunk))
        self._cached_bytes += chunk.memory_bytes
        while self._cached_bytes > self._queue.settings.cache_bytes_max:
            oldest_log, oldest = self._cached.popleft()
            self._cached_bytes -= oldest.memory_bytes
            oldest_log.tail.forget(oldest)


def _bundles(work: Sequence[Work]) -> Iterator[list[Work]]:
    """The work in parts that make a bundle each."""
    group: list[Work] = []
    size = 0
    for log, chunk in work:
        group.append((log, chunk))
        size += chunk.memory_bytes
        if size >= BUNDLE_BYTES or len(group) == bundle.RUNS_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group
