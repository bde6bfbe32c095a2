"""Reads messages out of segments in the durable store, for readers far behind.

One reader serves all topics of a broker. A segment's footer is fetched once and remembered; a row group is one read of
the store, decoded in a thread, and stays in memory while there is room, so that a reader that comes for the next part
of it finds it. Whoever wants a row group that is being fetched waits for that fetch. For a reader that begins with a
segment or goes on where it was, the next ones are fetched ahead. All of this stays within `cache_bytes_max`, however
far back readers are and however many.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pydanube.history.damage import DamagedSegmentError
from pydanube.history.group_cache import GroupCache, GroupKey
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.segment_footer import (
    TAIL_BYTES,
    GroupFacts,
    SegmentFooter,
    decode_footer,
    decode_group,
    footer_start,
)
from pydanube.history.segment_rows import BATCH_RUN_MIN, Row, RowGroup
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.protocol.native.batch import message_count
from pydanube.stores.store import DurableStore

T = TypeVar("T")

FOOTERS_BYTES_MAX = 16 << 20
"""Footers in memory; a usual one takes 200 KB. The one used last stays whatever its size."""
GROUPS_AHEAD = 2
"""Row groups fetched ahead of who reads in order. Decoding takes longer than reading what is decoded: with one, a
reader waits for it; with two, both are decoded at once where there is a core to spare."""
POSITIONS_KEPT_MAX = 1024
"""Places where a read ended, so that the one that begins there is known as its sequel."""


class SegmentReader:
    """Messages by offset and by time, out of segments that a descriptor names."""

    def __init__(self, store: DurableStore, *, cache_bytes_max: int) -> None:
        self._store = store
        self._cache = GroupCache(cache_bytes_max)
        self._footers: OrderedDict[str, SegmentFooter] = OrderedDict()
        self._footers_loading: dict[str, asyncio.Task[SegmentFooter]] = {}
        self._loading: dict[GroupKey, asyncio.Task[RowGroup]] = {}
        self._positions: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._turn = asyncio.Lock()
        self._released = asyncio.Event()
        # No more than can work at once, and always the same: an allocator keeps for each thread what it has freed.
        self._threads = ThreadPoolExecutor(max(GROUPS_AHEAD, os.cpu_count() or 1), "segments")

    @property
    def memory_bytes(self) -> int:
        """Taken by row groups in memory and set aside for those on their way."""
        return self._cache.used + self._cache.reserved

    async def read(
        self,
        topic: TopicName,
        descriptor: SegmentDescriptor,
        offset: int,
        *,
        messages_max: int,
        bytes_max: int,
        merged_max: int = 0,
    ) -> list[Row]:
        """Entries from `offset`, which the segment holds, on; at least one, all out of one row group.

        Up to `merged_max` messages that came by themselves are one batch, with the columns of merged ones.

        Raises:
            Corrupt: the segment is not what was written; says where and in what way.
            Unavailable: the store did not answer.
        """
        assert descriptor.start_offset <= offset < descriptor.next_offset, "another segment holds the offset"
        source = _Source(topic, descriptor)
        footer = await self._footer(source)
        facts = footer.group_of(offset)
        is_in_order = offset == descriptor.start_offset or (source.key, offset) in self._positions
        self._positions.pop((source.key, offset), None)
        for_rows = merged_max < BATCH_RUN_MIN
        ahead = footer.groups[facts.number + 1 : facts.number + 1 + GROUPS_AHEAD] if is_in_order else ()
        group = await self._group(source, footer, facts, for_rows, ahead)
        wanted = {"messages_max": messages_max, "bytes_max": bytes_max, "merged_max": merged_max}
        rows = group.ready_rows(offset, **wanted)
        if rows:
            # Who reads on and on would never wait for anything, and nothing would be fetched ahead meanwhile.
            await asyncio.sleep(0)
        else:
            rows = await self._in_thread(partial(group.rows, offset, **wanted))
        end = rows[-1][0] + message_count(rows[-1][1])
        if end == facts.next_offset:
            self._cache.finish(GroupKey(source.key, facts.number))
        self._positions[source.key, end] = None
        if len(self._positions) > POSITIONS_KEPT_MAX:
            self._positions.popitem(last=False)
        return rows

    async def find_time(self, topic: TopicName, descriptor: SegmentDescriptor, append_ms: int) -> int:
        """The first offset appended at that moment or later; the one behind the segment if there is none.

        Raises:
            Corrupt: the segment is not what was written; says where and in what way.
            Unavailable: the store did not answer.
        """
        if append_ms <= descriptor.min_append_ms:
            return descriptor.start_offset
        source = _Source(topic, descriptor)
        footer = await self._footer(source)
        for facts in footer.groups:
            if facts.max_append_ms >= append_ms:
                group = await self._group(source, footer, facts, for_rows=True)
                found = await self._in_thread(partial(group.first_from_time, append_ms))
                assert found is not None, "a row group without the time it was checked to have"
                return found
        return descriptor.next_offset

    def forget(self, topic: TopicName, descriptor: SegmentDescriptor) -> None:
        """Drop what is in memory of a segment, as it is deleted or was replaced."""
        segment = segment_key(topic, descriptor.segment_id)
        self._footers.pop(segment, None)
        self._footers_loading.pop(segment, None)
        self._cache.forget(segment)
        for key in [key for key in self._loading if key.segment == segment]:
            del self._loading[key]
        for position in [position for position in self._positions if position[0] == segment]:
            del self._positions[position]

    async def close(self) -> None:
        """Stop fetching ahead and drop everything."""
        tasks = [*self._loading.values(), *self._footers_loading.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)
        self._cache.clear()
        self._footers.clear()
        self._positions.clear()

    # ── footers ─────────────────────────────────────────────────────────────────────────────────

    async def _footer(self, source: "_Source") -> SegmentFooter:
        footer = self._footers.get(source.key)
        if footer is not None:
            self._footers.move_to_end(source.key)
            return footer
        task = self._footers_loading.get(source.key)
        if task is None:
            task = asyncio.create_task(self._load_footer(source))
            self._footers_loading[source.key] = task
            task.add_done_callback(_look_at_failure)
        # Others may wait for the same: one reader that gives up does not take it from them.
        return await asyncio.shield(task)

    async def _load_footer(self, source: "_Source") -> SegmentFooter:
        task = asyncio.current_task()
        size = source.descriptor.size
        try:
            start = max(size - TAIL_BYTES, 0)
            tail = await self._fetch(source, start, size)
            try:
                begin = footer_start(tail, size)
                if begin < start:
                    tail = await self._fetch(source, begin, size)
                footer = await self._in_thread(partial(decode_footer, tail, source.topic, source.descriptor))
            except DamagedSegmentError as error:
                raise self._damaged(source, error) from error
            if self._footers_loading.get(source.key) is task:
                self._footers[source.key] = footer
                self._drop_footers()
            return footer
        finally:
            if self._footers_loading.get(source.key) is task:
                del self._footers_loading[source.key]

    def _drop_footers(self) -> None:
        total = sum([footer.memory_bytes for footer in self._footers.values()])
        while total > FOOTERS_BYTES_MAX and len(self._footers) > 1:
            total -= self._footers.popitem(last=False)[1].memory_bytes

    # ── row groups ──────────────────────────────────────────────────────────────────────────────

    async def _group(
        self,
        source: "_Source",
        footer: SegmentFooter,
        facts: GroupFacts,
        for_rows: bool,
        ahead: Sequence[GroupFacts] = (),
    ) -> RowGroup:
        """A row group; those `ahead` are on their way then."""
        key = GroupKey(source.key, facts.number)
        group = self._cache.get(key)
        if group is None:
            loading = self._loading.get(key) or self._start_loading(key, source, footer, facts, for_rows)
            await asyncio.sleep(0)  # room for this one is set aside before the others are looked at
        for following in ahead:
            self._prefetch(source, footer, following, for_rows)
        return group if group is not None else await asyncio.shield(loading)

    def _prefetch(self, source: "_Source", footer: SegmentFooter, facts: GroupFacts, for_rows: bool) -> None:
        """Fetch what a reader will want next, unless somebody would lose what he is reading now."""
        key = GroupKey(source.key, facts.number)
        if key in self._cache or key in self._loading or not self._cache.can_spare(_bytes_to_load(facts)):
            return
        self._start_loading(key, source, footer, facts, for_rows)

    def _start_loading(
        self, key: GroupKey, source: "_Source", footer: SegmentFooter, facts: GroupFacts, for_rows: bool
    ) -> asyncio.Task[RowGroup]:
        task = asyncio.create_task(self._load_group(key, source, footer, facts, for_rows))
        self._loading[key] = task
        task.add_done_callback(_look_at_failure)
        return task

    async def _load_group(
        self, key: GroupKey, source: "_Source", footer: SegmentFooter, facts: GroupFacts, for_rows: bool
    ) -> RowGroup:
        task = asyncio.current_task()
        needed = _bytes_to_load(facts)
        try:
            await self._reserve(needed)
            try:
                data = await self._fetch(source, facts.start, facts.end)
                decode = partial(
                    decode_group, data, footer, facts, source.topic, source.descriptor, for_rows=for_rows
                )
                del data
                group = await self._in_thread(decode)
            except DamagedSegmentError as error:
                raise self._damaged(source, error) from error
            finally:
                self._cache.release(needed)
                self._released.set()
            if self._loading.get(key) is task:
                self._cache.add(key, group)
            return group
        finally:
            if self._loading.get(key) is task:
                del self._loading[key]

    async def _reserve(self, size: int) -> None:
        """Wait, in order of arrival, until what is being loaded leaves room for so much more."""
        async with self._turn:
            while not self._cache.can_reserve(size):
                self._released.clear()
                await self._released.wait()
            self._cache.reserve(size)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    # ── the store ───────────────────────────────────────────────────────────────────────────────

    async def _fetch(self, source: "_Source", start: int, end: int) -> memoryview:
        data = await self._store.read(source.key, start, end - start)
        if len(data) != end - start:
            raise self._damaged(source, f"it has {len(data)} bytes from byte {start} on, not {end - start}")
        return data

    def _damaged(self, source: "_Source", why: object) -> Corrupt:
        return Corrupt(
            f"segment {self._store.place(source.key)} is damaged: {why}; restore it from a copy",
            ErrorCode.SEGMENT_CORRUPT,
        )


class _Source:
    """A segment to read from."""

    __slots__ = ("descriptor", "key", "topic")

    def __init__(self, topic: TopicName, descriptor: SegmentDescriptor) -> None:
        self.topic = topic
        self.descriptor = descriptor
        self.key = segment_key(topic, descriptor.segment_id)


def _bytes_to_load(facts: GroupFacts) -> int:
    """What a row group takes while it is decoded."""
    return facts.stored_bytes + facts.raw_bytes


def _look_at_failure(task: "asyncio.Task[SegmentFooter] | asyncio.Task[RowGroup]") -> None:
    # Whoever waits gets it too; a fetch ahead that failed is tried again by the reader that comes there.
    if not task.cancelled():
        task.exception()
