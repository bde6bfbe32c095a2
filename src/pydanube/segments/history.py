"""The sealed part of one topic: contiguous segments, read by offset, deleted from the old end."""

import asyncio
import logging
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.segments.descriptor import Catalogue, SegmentDescriptor
from pydanube.segments.entry import FLAG_TIMED, DamagedEntryError, EntryHeader, decode_header, iterate_entries
from pydanube.segments.segment_file import (
    FOOTER_BYTES,
    HEADER_BYTES,
    DamagedSegmentError,
    SegmentIndex,
    belongs_to,
    check_header,
    decode_footer,
    decode_index,
    encode_segment,
    footer_position,
)
from pydanube.segments.store import SegmentStore

logger = logging.getLogger("pydanube.segments")

INDEXES_KEPT_MAX = 8
"""Indexes of segments in memory per topic: one per reader that is far behind, more or less."""

SCAN_BYTES = 4 << 20
"""Read at a time when looking for a moment."""

T = TypeVar("T")


class TopicHistory:
    """Segments of one topic, oldest first and without a gap. Made by `open_history`."""

    def __init__(
        self,
        store: SegmentStore,
        catalogue: Catalogue,
        topic: TopicName,
        topic_id: int,
        segments: list[SegmentDescriptor],
    ) -> None:
        self.segments = segments
        self.topic = topic
        self._store = store
        self._catalogue = catalogue
        self._topic_id = topic_id
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()

    async def seal(self, heads: Sequence[bytes], bodies: Sequence[bytes], *, created_ms: int) -> None:
        """Store these entries as the next segment; do nothing if they are in one already.

        The file is whole and durable before the descriptor names it.
        """
        start_offset = decode_header(heads[0]).base_offset
        if self.segments and start_offset < self.segments[-1].next_offset:
            return
        buffers, descriptor = await asyncio.to_thread(encode_segment, heads, bodies, created_ms=created_ms)
        assert not self.segments or start_offset == self.segments[-1].next_offset, "a gap between segments"
        await self._store.write(self.topic, descriptor.segment_id, buffers)
        await self._catalogue.add(self.topic, descriptor)
        self.segments.append(descriptor)

    async def read(
        self, offset: int, *, messages_max: int, bytes_max: int
    ) -> list[tuple[int, bytes, int, bool]]:
        """Rows from the one that holds `offset` on, out of the segment that holds it; checked.

        Raises:
            Corrupt: the segment is not what was written, with file and position.
        """
        rows = partial(
            _rows, topic_id=self._topic_id, offset=offset, messages_max=messages_max, bytes_max=bytes_max
        )
        return await self._read(self._segment_of(offset), offset, bytes_max, rows)

    def segment_from_time(self, append_ms: int, start_offset: int) -> SegmentDescriptor | None:
        """The oldest segment behind `start_offset` with an entry appended at that moment or later."""
        for segment in self.segments:
            if segment.max_append_ms >= append_ms and segment.next_offset > start_offset:
                return segment
        return None

    async def find_time(self, descriptor: SegmentDescriptor, append_ms: int) -> int:
        """The base offset of the first entry in that segment appended at that moment or later.

        Raises:
            Corrupt: the segment is not what was written, with file and position.
        """
        offset = descriptor.start_offset
        look = partial(_first_from_time, topic_id=self._topic_id, append_ms=append_ms)
        while offset < descriptor.next_offset:
            found, offset = await self._read(descriptor, offset, SCAN_BYTES, look)
            if found:
                return offset
        place = self._store.place(self.topic, descriptor.segment_id)
        raise Corrupt(
            f"segment {place} has no entry of {descriptor.max_append_ms} ms, but its descriptor says so: restore the "
            "metadata store or the segment from a copy",
            ErrorCode.SEGMENT_CORRUPT,
        )

    async def _read(
        self, descriptor: SegmentDescriptor, offset: int, bytes_wanted: int, decode: Callable[[bytes], T]
    ) -> T:
        """What `decode` makes, in a thread, of the entries of about `bytes_wanted` from `offset` on."""
        try:
            index = await self._index_of(descriptor)
            start, end = index.window(offset, bytes_wanted)
            try:
                return await self._store.read(self.topic, descriptor.segment_id, start, end - start, decode)
            except DamagedEntryError as error:
                raise DamagedSegmentError(start + error.position, error.why) from error
        except DamagedSegmentError as error:
            place = self._store.place(self.topic, descriptor.segment_id)
            raise Corrupt(
                f"segment {place} is damaged at byte {error.position}: {error.why}; restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            ) from error

    async def delete(self, descriptor: SegmentDescriptor) -> None:
        """Remove the oldest segment: first its name, then its bytes, so that no name lacks its bytes."""
        await self._catalogue.remove(self.topic, descriptor)
        if self.segments and self.segments[0] is descriptor:
            del self.segments[0]
        self._indexes.pop(descriptor.segment_id, None)
        await self._store.delete(self.topic, descriptor.segment_id)

    async def begin_deletion(self) -> None:
        await self._catalogue.begin_deletion(self.topic, self._topic_id)

    async def finish_deletion(self) -> None:
        self.segments.clear()
        await delete_history(self._store, self._catalogue, self.topic, self._topic_id)

    def _segment_of(self, offset: int) -> SegmentDescriptor:
        number = bisect_right(self.segments, offset, key=lambda segment: segment.start_offset) - 1
        if number < 0 or offset >= self.segments[number].next_offset:
            raise Corrupt(
                f"no segment of topic {self.topic} holds offset {offset}: restore the missing one from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            )
        return self.segments[number]

    async def _index_of(self, descriptor: SegmentDescriptor) -> SegmentIndex:
        name = descriptor.segment_id
        index = self._indexes.get(name)
        if index is not None:
            self._indexes.move_to_end(name)
            return index
        store, topic, size = self._store, self.topic, descriptor.size
        await store.read(topic, name, 0, HEADER_BYTES, partial(check_header, descriptor=descriptor))
        footer = partial(decode_footer, size=size)
        position, length, crc = await store.read(topic, name, footer_position(size), FOOTER_BYTES, footer)
        index = await store.read(
            topic, name, position, length, partial(decode_index, position=position, crc=crc)
        )
        self._indexes[name] = index
        while len(self._indexes) > INDEXES_KEPT_MAX:
            self._indexes.popitem(last=False)
        return index


async def delete_history(store: SegmentStore, catalogue: Catalogue, topic: TopicName, topic_id: int) -> None:
    """Finish a deletion: no segment of that id stays, a new topic of the same name keeps its own."""
    for descriptor in await catalogue.list(topic):
        if descriptor.topic_id == topic_id:
            await catalogue.remove(topic, descriptor)
    for name in await store.list(topic):
        if belongs_to(name, topic_id):
            await store.delete(topic, name)
    await store.delete_topic(topic)
    await catalogue.end_deletion(topic_id)


async def open_history(
    store: SegmentStore,
    catalogue: Catalogue,
    topic: TopicName,
    topic_id: int,
    *,
    start_offset: int,
    next_offset: int,
    is_new: bool,
) -> TopicHistory:
    """The segments of a topic whose part in the journal begins at `next_offset`.

    What an interrupted seal, retention run or deletion left behind is removed, but only after the
    rest was found complete: what is not understood is kept.

    Raises:
        Corrupt: offsets between `start_offset` and `next_offset` are in no segment, or the topic has
            segments although it is new to the journal.
    """
    known = await catalogue.list(topic)
    foreign = [segment for segment in known if segment.topic_id != topic_id]
    own = [segment for segment in known if segment.topic_id == topic_id]
    if is_new and own:
        raise Corrupt(
            f"topic {topic} has segments up to offset {own[-1].end_offset}, but the journal does not know the topic: "
            "this is not the journal they came from; restore the one that is"
        )
    kept = [segment for segment in own if segment.next_offset > start_offset]
    _check_contiguous(topic, kept, start_offset=start_offset, next_offset=next_offset)
    history = TopicHistory(store, catalogue, topic, topic_id, kept)
    for segment in [*foreign, *(segment for segment in own if segment not in kept)]:
        await history.delete(segment)
    names = {segment.segment_id for segment in kept}
    for name in await store.list(topic):
        if name not in names:
            logger.info("orphan segment removed topic=%s segment=%s", topic, name)
            await store.delete(topic, name)
    return history


def _check_contiguous(
    topic: TopicName, segments: list[SegmentDescriptor], *, start_offset: int, next_offset: int
) -> None:
    expected = start_offset
    for number, segment in enumerate(segments):
        # Retention may stop inside the oldest segment, so that one alone may begin earlier.
        if segment.start_offset != expected and not (number == 0 and segment.start_offset < expected):
            raise _gap(topic, expected, segment.start_offset)
        expected = segment.next_offset
    if expected < next_offset:
        raise _gap(topic, expected, next_offset)


def _gap(topic: TopicName, start: int, end: int) -> Corrupt:
    return Corrupt(
        f"offsets {start} to {end - 1} of topic {topic} are neither in a segment nor in the journal: restore the "
        "missing segments with their descriptors, or the missing journal files, from a copy",
        ErrorCode.SEGMENT_CORRUPT,
    )


def _rows(
    data: bytes, topic_id: int, offset: int, messages_max: int, bytes_max: int
) -> list[tuple[int, bytes, int, bool]]:
    rows: list[tuple[int, bytes, int, bool]] = []
    room = bytes_max
    stop = offset + max(messages_max, 1)
    for header, body in _entries(data, topic_id):
        if header.base_offset + header.messages <= offset:
            continue
        room -= len(body)
        if header.base_offset >= stop or (room < 0 and rows):
            break
        rows.append((header.base_offset, body, header.append_ms, header.flags & FLAG_TIMED != 0))
    return rows


def _first_from_time(data: bytes, topic_id: int, append_ms: int) -> tuple[bool, int]:
    """Whether an entry has that time or a later one, and its offset, or that behind the last one."""
    offset = 0
    for header, _ in _entries(data, topic_id):
        if header.append_ms >= append_ms:
            return True, header.base_offset
        offset = header.base_offset + header.messages
    return False, offset


def _entries(data: bytes, topic_id: int) -> Iterator[tuple[EntryHeader, bytes]]:
    for position, header, _, body in iterate_entries(data, 0, len(data)):
        if header.topic_id != topic_id:
            raise DamagedEntryError(position, f"an entry of topic {header.topic_id}, not {topic_id},")
        yield header, body
