"""Making segments of runs: which, when, and in which order of steps.

    runs ─▶ converter process ─▶ file in the spool ─▶ durable store ─▶ descriptor ─▶ runs given back
             "converted"          "uploaded"          "described"     "released"

Every step is durable before the next begins. A crash between two of them leaves the runs in place, plus a file in the
spool or an object nobody names: the first is removed at start, the second by the sweep.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from pydanube.entries.run_file import RunDescriptor
from pydanube.history.convert_job import Converted, ConvertJob, RunSource
from pydanube.history.due import due_runs
from pydanube.history.ownership import Owner, claim_store
from pydanube.history.places import Places
from pydanube.history.replacement import remove_replaced
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.sweep import sweep
from pydanube.history.topic_history import TopicHistory
from pydanube.kernel.clock import Clock
from pydanube.kernel.distribution import Distribution
from pydanube.kernel.errors import DanubeError, ErrorCode, Unavailable

logger = logging.getLogger("pydanube.history")

LOOK_SECONDS = 1.0
CHORES_SECONDS = 60.0
RETRY_MS_MAX = 60_000
MEBIBYTE = 1 << 20
HURRIED_SHARE = 0.5
"""Of `waiting_bytes_max`: with more than that waiting, making segments does not give way to publishers any more. They get
slower then, which is better than being refused."""


class TieringSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    segment_bytes: int = 128 * MEBIBYTE
    """Runs are merged into one segment up to about this size."""
    age_ms_max: int = 300_000
    """Messages are in a segment about this long after they came, however few there are."""
    waiting_bytes_max: int = 10 * 1024 * MEBIBYTE
    """Local disk for runs that are in no segment yet; beyond it appends are refused."""
    uploads_max: int = 4
    """Topics whose segments are made and uploaded at the same time."""
    keeps_copies: bool = False
    """Whether runs stay on the local disk after they became a segment, until retention lets them go."""
    sweep_ms: int = 24 * 60 * 60_000
    orphan_ms_min: int = 0
    """Objects younger than this are never swept: another broker may be uploading them."""


class JournalSide(Protocol):
    """What tiering asks of the journal."""

    @property
    def file_in_use(self) -> int | None: ...

    @property
    def histories(self) -> Iterable[TopicHistory]: ...

    def hold(self, reason: Unavailable | None) -> None: ...

    async def rotate(self) -> None: ...

    async def stage_now(self) -> None: ...

    async def finish_deletions(self) -> None: ...


class Conversion(Protocol):
    async def convert(self, job: ConvertJob) -> Converted: ...


@dataclass(slots=True)
class TieringStats:
    segments: int = 0
    bytes: int = 0
    upload_ms: Distribution = field(default_factory=Distribution)
    failures: int = 0
    orphans: int = 0


@dataclass(slots=True)
class Trouble:
    """Why a topic's runs do not become segments at the moment."""

    failures: int
    error: DanubeError
    retry_at_ms: int


class Tiering:
    """One task per broker looks; one more per topic that is being worked on."""

    def __init__(
        self,
        journal: JournalSide,
        places: Places,
        converter: Conversion,
        *,
        settings: TieringSettings,
        clock: Clock,
        spool: Path,
        owner: Owner,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.stats = TieringStats()
        self.troubles: dict[TopicHistory, Trouble] = {}
        self._journal = journal
        self._places = places
        self._converter = converter
        self._settings = settings
        self._clock = clock
        self._spool = spool
        self._owner = owner
        self._on_step = on_step
        self._is_ours = False
        self._working: dict[TopicHistory, asyncio.Task[None]] = {}
        self._spared: set[str] = set()
        self._wake = asyncio.Event()
        self._is_holding = False
        self._file_seen: tuple[int | None, int] = (None, 0)
        self._swept_at_ms: int | None = None
        self._duties: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to look.

        Raises:
            Conflict: the durable store is another cluster's. If it does not answer, that is found out later.
        """
        await asyncio.to_thread(_empty, self._spool)
        try:
            await self.claim()
        except Unavailable as error:
            logger.warning("durable store not reached, publishing goes on without it error=%s", error)
        loop = asyncio.get_running_loop()
        self._duties = [loop.create_task(self._run()), loop.create_task(self._do_chores())]

    async def stop(self) -> None:
        """End; what is half done is done again after the next start."""
        tasks = [*self._working.values(), *self._duties]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def seal(self, history: TopicHistory) -> list[SegmentDescriptor]:
        """Make segments of everything the topic holds now; return those that are new since the call.

        Raises:
            DanubeError: what keeps that from happening.
        """
        known = {segment.segment_id for segment in history.segments}
        await self._journal.stage_now()
        end = history.runs[-1].next_offset if history.runs else history.sealed_end
        while history.sealed_end < end and not history.is_deleted:
            working = self._working.get(history)
            if working is not None:
                # Shielded: whoever gives up waiting must not stop what was begun for all.
                await asyncio.shield(working)
            else:
                await asyncio.shield(self._begin(history, self._due(history, on_demand=True)))
            trouble = self.troubles.get(history)
            if trouble is not None:
                raise type(trouble.error)(trouble.error.text, trouble.error.code)
        return [segment for segment in history.segments if segment.segment_id not in known]

    def lag_ms(self, history: TopicHistory) -> int:
        """How long the oldest message that is in no segment yet has waited for one."""
        waiting = history.waiting
        return max(self._clock.now_ms() - waiting[0].min_append_ms, 0) if waiting else 0

    async def sweep_now(self) -> int:
        """Remove orphans from the durable store; return how many."""
        await self.claim()
        removed = await sweep(
            self._places,
            uploading=self._spared,
            older_than_ms=self._clock.now_ms() - self._settings.orphan_ms_min,
            on_removed=lambda found: None,
        )
        self.stats.orphans += removed
        return removed

    @contextmanager
    def spared(self, keys: Iterable[str]) -> Iterator[None]:
        """Objects on their way to a descriptor: until they have it, or failed to get it, they are not orphans."""
        names = set(keys)
        self._spared |= names
        try:
            yield
        finally:
            self._spared -= names

    async def claim(self) -> None:
        """To be called before anything is written or removed: the store must be ours.

        Raises:
            Conflict: it is another cluster's.
        """
        if not self._is_ours:
            is_in_use = any(history.segments for history in self._journal.histories)
            await claim_store(self._places.store, self._owner, is_in_use=is_in_use)
            self._is_ours = True

    # Looking.

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except DanubeError as error:
                logger.warning("tiering failed, tried again shortly error=%s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    async def _look(self) -> None:
        for history in [history for history in self.troubles if history.is_deleted]:
            del self.troubles[history]
        self._hold_or_let_in()
        for history in list(self._places.backlog.topics):
            if len(self._working) >= self._settings.uploads_max:
                break
            if history not in self._working and (runs := self._due(history)):
                self._begin(history, runs)
        await self._rotate_if_old()

    async def _do_chores(self) -> None:
        """What takes long and hurries nobody: the durable store may be slow to list."""
        while True:
            try:
                await self._journal.finish_deletions()
                await remove_replaced(self._places, now_ms=self._clock.now_ms(), on_step=self._on_step)
                now_ms = self._clock.monotonic_ms()
                if self._swept_at_ms is None or now_ms - self._swept_at_ms >= self._settings.sweep_ms:
                    await self.sweep_now()
                    self._swept_at_ms = now_ms
            except DanubeError as error:
                logger.warning("sweep failed, tried again later error=%s", error)
            await asyncio.sleep(CHORES_SECONDS)

    def _due(self, history: TopicHistory, *, on_demand: bool = False) -> list[RunDescriptor]:
        now_ms = self._clock.now_ms()
        trouble = self.troubles.get(history)
        if trouble is not None and self._clock.monotonic_ms() < trouble.retry_at_ms and not on_demand:
            return []
        return due_runs(
            history.waiting,
            segment_bytes=self._settings.segment_bytes,
            age_ms_max=self._settings.age_ms_max,
            now_ms=now_ms,
            on_demand=on_demand,
        )

    async def _rotate_if_old(self) -> None:
        """Messages of a quiet broker must leave the journal too: close a file that has been in use for long."""
        number = self._journal.file_in_use
        now_ms = self._clock.monotonic_ms()
        if number is None or number != self._file_seen[0]:
            self._file_seen = (number, now_ms)
        elif now_ms - self._file_seen[1] >= self._settings.age_ms_max:
            self._file_seen = (None, now_ms)
            await self._journal.rotate()

    def _hold_or_let_in(self) -> None:
        limit = self._settings.waiting_bytes_max
        waiting = self._places.backlog.bytes
        if waiting > limit:
            causes = [trouble.error.text for trouble in self.troubles.values()]
            cause = f": {causes[0]}" if causes else ""
            self._is_holding = True
            self._journal.hold(
                Unavailable(
                    f"{waiting} bytes on the local disk wait for the durable store, more than "
                    f"storage.segments.waiting_mb_max allows ({limit} bytes){cause}; publishing goes on by itself when "
                    "they are stored",
                    ErrorCode.OVERLOADED,
                )
            )
        elif self._is_holding:
            self._is_holding = False
            self._journal.hold(None)

    # Working.

    def _begin(self, history: TopicHistory, runs: list[RunDescriptor]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._seal_runs(history, runs))
        self._working[history] = task
        task.add_done_callback(lambda _: self._ended(history))
        return task

    def _ended(self, history: TopicHistory) -> None:
        del self._working[history]
        self._hold_or_let_in()
        self._wake.set()

    async def _seal_runs(self, history: TopicHistory, runs: list[RunDescriptor]) -> None:
        try:
            history.converting_from = runs[0].start_offset
            await self.claim()
            await self._make_segment(history, runs)
        except DanubeError as error:
            self._note(history, error)
        except OSError as error:
            self._note(
                history,
                Unavailable(
                    f"the spool {self._spool} failed: {error.strerror or error}; free or repair that disk",
                    ErrorCode.STORAGE_FAILED,
                ),
            )
        else:
            self.troubles.pop(history, None)
        finally:
            history.converting_from = None

    async def _make_segment(self, history: TopicHistory, runs: list[RunDescriptor]) -> None:
        topic = history.topic
        converted = await self._converter.convert(
            ConvertJob(
                topic=str(topic),
                runs=tuple(
                    RunSource(path=self._places.runs.place(topic, run), descriptor=run) for run in runs
                ),
                spool=str(self._spool),
                created_ms=self._clock.now_ms(),
                is_hurried=self._places.backlog.bytes > HURRIED_SHARE * self._settings.waiting_bytes_max,
            )
        )
        self._on_step("converted")
        file = Path(converted.path)
        key = segment_key(topic, converted.descriptor.segment_id)
        with self.spared([key]):
            try:
                descriptor = await self._upload(key, converted, file)
            finally:
                await asyncio.to_thread(file.unlink, missing_ok=True)
            async with history.change:
                if history.is_deleted:
                    await self._places.store.delete(key)
                    return
                await history.add_segment(descriptor)
                self._on_step("described")
                if not self._settings.keeps_copies:
                    await history.drop_copies(history.copies)
                self._on_step("released")
        logger.info(
            "segment made topic=%s segment=%s messages=%d bytes=%d",
            topic,
            descriptor.segment_id,
            descriptor.next_offset - descriptor.start_offset,
            descriptor.size,
        )

    async def _upload(self, key: str, converted: Converted, file: Path) -> SegmentDescriptor:
        begun_ms = self._clock.monotonic_ms()
        etag = await self._places.store.put_file(key, file)
        self._on_step("uploaded")
        self.stats.segments += 1
        self.stats.bytes += converted.descriptor.size
        self.stats.upload_ms.record(self._clock.monotonic_ms() - begun_ms)
        return msgspec.structs.replace(converted.descriptor, etag=etag)

    def _note(self, history: TopicHistory, error: DanubeError) -> None:
        before = self.troubles.get(history)
        failures = 1 if before is None else before.failures + 1
        pause_ms = min(1000 << min(failures - 1, 10), RETRY_MS_MAX)
        self.troubles[history] = Trouble(failures, error, self._clock.monotonic_ms() + pause_ms)
        self.stats.failures += 1
        logger.warning(
            "no segment made, tried again later topic=%s attempt=%d error=%s", history.topic, failures, error
        )


def _empty(spool: Path) -> None:
    spool.mkdir(parents=True, exist_ok=True)
    for leftover in spool.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
