"""The past of one topic: segments in the durable store, then runs on the local disk, without a gap between them.

start_offset ─── segments ──▶ sealed_end ─── waiting runs ──▶ the journal
                      └─ copies: runs that are in a segment already, as long as they are kept
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Sequence

from pydanube.entries.entry import decode_base_offset
from pydanube.entries.run_file import RunDescriptor, belongs_to, encode_run
from pydanube.history.places import Places
from pydanube.history.run_reader import Row, RunReader
from pydanube.history.segment import SegmentDescriptor, segment_key, topic_id_of, topic_path
from pydanube.kernel.errors import Conflict, Corrupt, DanubeError, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.metadata import Put

logger = logging.getLogger("pydanube.history")

Unit = RunDescriptor | SegmentDescriptor
"""What history consists of and is given up by."""


class TopicHistory:
    """Runs and segments of one topic, each oldest first and without a gap. Made by `open_history`."""

    def __init__(
        self,
        places: Places,
        topic: TopicName,
        topic_id: int,
        *,
        start_offset: int,
        segments: list[SegmentDescriptor],
        runs: list[RunDescriptor],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.segments = segments
        self.runs = runs
        self.change = asyncio.Lock()
        """Held by whoever adds to the history or takes from it."""
        self.is_deleted = False
        self.converting_from: int | None = None
        """The first offset that is being made into a segment: from there on nothing is given up meanwhile."""
        self._places = places
        self._start_offset = start_offset
        self._run_reader = RunReader(places.runs, topic, topic_id)
        self._damaged_copies: set[str] = set()
        self._count_waiting()

    @property
    def sealed_end(self) -> int:
        """The offset behind the last one that is in a segment."""
        return self.segments[-1].next_offset if self.segments else self._start_offset

    @property
    def waiting(self) -> list[RunDescriptor]:
        """Runs that are in no segment yet."""
        if not self.segments:
            return self.runs.copy()
        return [run for run in self.runs if run.start_offset >= self.sealed_end]

    @property
    def copies(self) -> list[RunDescriptor]:
        """Runs that are in a segment too."""
        return self.runs[: len(self.runs) - len(self.waiting)]

    @property
    def units(self) -> list[Unit]:
        """What the topic consists of, each message in one of them, oldest first."""
        return [*self.segments, *self.waiting]

    # Writing.

    async def stage(self, heads: Sequence[bytes], bodies: Sequence[bytes], *, created_ms: int) -> None:
        """Store these entries as the next run; do nothing if they are in one already.

        The file is whole and durable before the descriptor names it.
        """
        if self.has_staged(heads):
            return
        buffers, descriptor = await asyncio.to_thread(encode_run, heads, bodies, created_ms=created_ms)
        await self._places.runs.write(self.topic, descriptor.run_id, buffers)
        await self._places.catalogue.runs.add(self.topic, descriptor)
        self.add_run(descriptor)

    def has_staged(self, heads: Sequence[bytes]) -> bool:
        """Whether the entries with these headers are in a run already; if not, they are what comes next."""
        start_offset = decode_base_offset(heads[0])
        end = self.runs[-1].next_offset if self.runs else self.sealed_end
        assert start_offset <= end, "a gap between runs"
        return start_offset < end

    def add_run(self, descriptor: RunDescriptor) -> None:
        """The run is whole and durable, and so is its descriptor."""
        self._places.runs.hold(descriptor)
        self.runs.append(descriptor)
        self._count_waiting()

    async def add_segment(self, descriptor: SegmentDescriptor) -> None:
        """The object is whole and durable: from now on it is what readers of these offsets get."""
        assert descriptor.start_offset == self.sealed_end or not self.segments, "a gap between segments"
        await self._places.catalogue.segments.add(self.topic, descriptor)
        self.segments.append(descriptor)
        self._count_waiting()

    async def drop_copies(self, copies: Sequence[RunDescriptor]) -> None:
        """Remove runs that are in segments too."""
        for run in copies:
            assert run.next_offset <= self.sealed_end, "the only copy"
            await self._remove_run(run)

    async def replace_segments(
        self,
        old: Sequence[SegmentDescriptor],
        new: Sequence[SegmentDescriptor],
        *,
        remove_at_ms: int,
        reason: str,
    ) -> None:
        """New segments, whole and durable, hold the same offsets: readers get them instead from now on.

        Raises:
            Conflict: the old ones are not there any more, or the topic is being deleted; nothing has changed.
        """
        if self.is_deleted:
            raise Conflict(f"topic {self.topic} is being deleted", ErrorCode.TOPIC_UNKNOWN)
        number = bisect_right(self.segments, old[0].start_offset, key=_start_of) - 1
        if number < 0 or self.segments[number : number + len(old)] != list(old):
            raise Conflict(
                f"segments of topic {self.topic} from {old[0].segment_id} on have changed, by retention or by another "
                "replacement: list them and begin again",
                ErrorCode.VERSION_MISMATCH,
            )
        start, end = old[0].start_offset, old[-1].next_offset
        # Copies are read before segments, and hold what the new ones may be without.
        await self.drop_copies(
            [run for run in self.copies if run.next_offset > start and run.start_offset < end]
        )
        await self._places.catalogue.replace(self.topic, old, new, remove_at_ms=remove_at_ms, reason=reason)
        self.segments[number : number + len(old)] = new
        for segment in old:
            self._places.forget_segment(self.topic, segment)

    async def give_up(self, units: Sequence[Unit]) -> None:
        """Remove the oldest units: first their names, then their bytes, so that no name lacks its bytes."""
        for unit in units:
            self._start_offset = max(self._start_offset, unit.next_offset)
            if isinstance(unit, RunDescriptor):
                await self._remove_run(unit)
            else:
                await self.drop_copies([run for run in self.runs if run.next_offset <= unit.next_offset])
                await self._places.catalogue.segments.remove(self.topic, unit)
                self.segments.remove(unit)
                self._places.forget_segment(self.topic, unit)
                await _delete_object(self._places, self.topic, unit)
        self._count_waiting()

    async def _remove_run(self, run: RunDescriptor) -> None:
        await self._places.catalogue.runs.remove(self.topic, run)
        if run in self.runs:
            self.runs.remove(run)
        self._run_reader.forget(run)
        self._damaged_copies.discard(run.run_id)
        await self._places.runs.delete(self.topic, run)

    @property
    def deletion(self) -> Put:
        """The fact that the topic is to be deleted: from when it is written on, that is finished whatever happens."""
        return self._places.catalogue.deletion(self.topic, self.topic_id)

    async def begin_deletion(self) -> None:
        self.is_deleted = True
        await self._places.catalogue.begin_deletion(self.topic, self.topic_id)

    async def finish_deletion(self) -> None:
        self.segments.clear()
        self.runs.clear()
        self._count_waiting()
        try:
            await delete_history(self._places, self.topic, self.topic_id)
        except Unavailable as error:
            logger.warning("topic not deleted yet, tried again later topic=%s error=%s", self.topic, error)

    def _count_waiting(self) -> None:
        waiting = 0 if self.is_deleted else sum(run.size for run in self.waiting)
        self._places.backlog.set(self, waiting)

    # Reading.

    async def read(self, offset: int, *, messages_max: int, bytes_max: int, merged_max: int = 0) -> list[Row]:
        """Rows from the one that holds `offset` on, out of the unit that holds it; checked.

        Out of a segment, up to `merged_max` messages that came by themselves are one merged batch.

        Raises:
            Corrupt: what is stored is not what was written, with file and position.
        """
        while True:
            unit = self._unit_of(offset)
            try:
                if isinstance(unit, RunDescriptor):
                    return await self._run_reader.read(
                        unit, offset, messages_max=messages_max, bytes_max=bytes_max
                    )
                reader = await self._places.segment_reader()
                return await reader.read(
                    self.topic,
                    unit,
                    offset,
                    messages_max=messages_max,
                    bytes_max=bytes_max,
                    merged_max=merged_max,
                )
            except Corrupt as error:
                # The run may have become a segment and gone while it was being read: then look there.
                if self._unit_of(offset) is unit:
                    if not isinstance(unit, RunDescriptor) or unit not in self.copies:
                        raise
                    logger.error(
                        "copy not used any more, its segment is topic=%s error=%s", self.topic, error
                    )
                    self._damaged_copies.add(unit.run_id)

    def unit_from_time(self, append_ms: int, start_offset: int) -> Unit | None:
        """The oldest unit behind `start_offset` with an entry appended at that moment or later."""
        for unit in self.units:
            if unit.max_append_ms >= append_ms and unit.next_offset > start_offset:
                return unit
        return None

    async def find_time(self, unit: Unit, append_ms: int) -> int:
        """The first offset in that unit whose entry was appended at that moment or later.

        Raises:
            Corrupt: what is stored is not what was written, with file and position.
        """
        if isinstance(unit, RunDescriptor):
            return await self._run_reader.find_time(unit, append_ms)
        reader = await self._places.segment_reader()
        return await reader.find_time(self.topic, unit, append_ms)

    def _unit_of(self, offset: int) -> Unit:
        # Runs first: they are near, and hold the entries as they came.
        for units in (self.runs, self.segments):
            number = bisect_right(units, offset, key=_start_of) - 1
            if number >= 0 and offset < units[number].next_offset:
                unit = units[number]
                if not (isinstance(unit, RunDescriptor) and unit.run_id in self._damaged_copies):
                    return unit
        raise Corrupt(
            f"neither a run nor a segment of topic {self.topic} holds offset {offset}: restore the missing one from "
            "a copy",
            ErrorCode.SEGMENT_CORRUPT,
        )


async def delete_history(places: Places, topic: TopicName, topic_id: int) -> None:
    """Finish a deletion: nothing of that id stays, a new topic of the same name keeps its own.

    Raises:
        Unavailable: the durable store does not answer; the rest has to be done later.
    """
    for run in await places.catalogue.runs.list(topic):
        if run.topic_id == topic_id:
            await places.catalogue.runs.remove(topic, run)
            await places.runs.delete(topic, run)
    for name in await places.runs.list(topic):
        if belongs_to(name, topic_id):
            await places.runs.delete_file(topic, name)
    await places.runs.delete_topic(topic)
    for segment in await places.catalogue.segments.list(topic):
        if segment.topic_id == topic_id:
            await places.catalogue.segments.remove(topic, segment)
    async for found in places.store.list(topic_path(topic)):
        if topic_id_of(found.key.rpartition("/")[2]) == topic_id:
            await places.store.delete(found.key)
    await places.catalogue.end_deletion(topic_id)


async def open_history(
    places: Places,
    topic: TopicName,
    topic_id: int,
    *,
    start_offset: int,
    next_offset: int,
    is_new: bool,
) -> TopicHistory:
    """The history of a topic whose part in the journal begins at `next_offset`.

    What an interrupted stage, retention run or deletion left behind on this disk is removed, but only after the
    rest was found complete: what is not understood is kept. Objects in the durable store are left to the sweep.

    Raises:
        Corrupt: offsets between `start_offset` and `next_offset` are nowhere, or the topic has a history although it
            is new to the journal.
    """
    known_segments = await places.catalogue.segments.list(topic)
    known_runs = await places.catalogue.runs.list(topic)
    for run in known_runs:
        places.runs.hold(run)
    known: list[Unit] = [*known_segments, *known_runs]
    own = [unit for unit in known if unit.topic_id == topic_id]
    if is_new and own:
        raise Corrupt(
            f"topic {topic} has a history up to offset {own[-1].end_offset}, but the journal does not know the topic: "
            "this is not the journal it came from; restore the one that is"
        )
    segments = [
        segment for segment in known_segments if segment in own and segment.next_offset > start_offset
    ]
    runs = [run for run in known_runs if run in own and run.next_offset > start_offset]
    history = TopicHistory(places, topic, topic_id, start_offset=start_offset, segments=segments, runs=runs)
    _check_contiguous(topic, history.units, start_offset=start_offset, next_offset=next_offset)
    for run in known_runs:
        if run not in runs:
            await places.catalogue.runs.remove(topic, run)
            await places.runs.delete(topic, run)
    for segment in known_segments:
        if segment not in segments:
            await places.catalogue.segments.remove(topic, segment)
            await _delete_object(places, topic, segment)
    names = {run.run_id for run in runs}
    for name in await places.runs.list(topic):
        if name not in names:
            logger.info("orphan run removed topic=%s run=%s", topic, name)
            await places.runs.delete_file(topic, name)
    return history


async def _delete_object(places: Places, topic: TopicName, segment: SegmentDescriptor) -> None:
    """Remove the bytes of a segment nobody knows any more; what cannot be removed now is left to the sweep."""
    try:
        await places.store.delete(segment_key(topic, segment.segment_id))
    except DanubeError as error:
        logger.warning(
            "segment not removed, the sweep will topic=%s segment=%s error=%s",
            topic,
            segment.segment_id,
            error,
        )


def _check_contiguous(topic: TopicName, units: list[Unit], *, start_offset: int, next_offset: int) -> None:
    expected = start_offset
    for number, unit in enumerate(units):
        # Retention may stop inside the oldest unit, so that one alone may begin earlier.
        if unit.start_offset != expected and not (number == 0 and unit.start_offset < expected):
            raise _gap(topic, expected, unit.start_offset)
        expected = unit.next_offset
    if expected < next_offset:
        raise _gap(topic, expected, next_offset)


def _gap(topic: TopicName, start: int, end: int) -> Corrupt:
    return Corrupt(
        f"offsets {start} to {end - 1} of topic {topic} are in no segment, no run and not in the journal: restore the "
        "missing segments or runs with their descriptors, or the missing journal files, from a copy",
        ErrorCode.SEGMENT_CORRUPT,
    )


def _start_of(unit: Unit) -> int:
    return unit.start_offset
