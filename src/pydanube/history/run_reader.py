"""Reading the runs of one topic: checked entries from any offset or moment."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from pydanube.entries.entry import FLAG_TIMED, DamagedEntryError, EntryHeader, iterate_entries
from pydanube.entries.run_file import (
    FOOTER_BYTES,
    HEADER_BYTES,
    DamagedRunError,
    RunDescriptor,
    RunIndex,
    check_header,
    decode_footer,
    decode_index,
    footer_position,
)
from pydanube.entries.run_store import RunStore
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.kernel.names import TopicName

INDEXES_KEPT_MAX = 8
"""Indexes of runs in memory per topic: one per reader that is far behind, more or less."""

SCAN_BYTES = 4 << 20
"""Read at a time when looking for a moment."""

Row = tuple[int, bytes, int, bool]
"""Base offset and body of one entry, when it was appended, and whether it is timed."""

T = TypeVar("T")


class RunReader:
    def __init__(self, store: RunStore, topic: TopicName, topic_id: int) -> None:
        self._store = store
        self._topic = topic
        self._topic_id = topic_id
        self._indexes: OrderedDict[str, RunIndex] = OrderedDict()

    async def read(self, run: RunDescriptor, offset: int, *, messages_max: int, bytes_max: int) -> list[Row]:
        """Rows from the one that holds `offset` on; checked.

        Raises:
            Corrupt: the run is not what was written, with file and position.
        """
        rows = partial(
            _rows, topic_id=self._topic_id, offset=offset, messages_max=messages_max, bytes_max=bytes_max
        )
        return await self._read(run, offset, bytes_max, rows)

    async def find_time(self, run: RunDescriptor, append_ms: int) -> int:
        """The base offset of the first entry in that run appended at that moment or later.

        Raises:
            Corrupt: the run is not what was written, with file and position.
        """
        offset = run.start_offset
        look = partial(_first_from_time, topic_id=self._topic_id, append_ms=append_ms)
        while offset < run.next_offset:
            found, offset = await self._read(run, offset, SCAN_BYTES, look)
            if found:
                return offset
        raise Corrupt(
            f"run {self._store.place(self._topic, run)} has no entry of {run.max_append_ms} ms, but its "
            "descriptor says so: restore the metadata store or the run from a copy",
            ErrorCode.SEGMENT_CORRUPT,
        )

    def forget(self, run: RunDescriptor) -> None:
        self._indexes.pop(run.run_id, None)

    async def _read(
        self, run: RunDescriptor, offset: int, bytes_wanted: int, decode: Callable[[bytes], T]
    ) -> T:
        """What `decode` makes, in a thread, of the entries of about `bytes_wanted` from `offset` on."""
        try:
            index = await self._index_of(run)
            start, end = index.window(offset, bytes_wanted)
            try:
                return await self._store.read(self._topic, run, start, end - start, decode)
            except DamagedEntryError as error:
                raise DamagedRunError(start + error.position, error.why) from error
        except DamagedRunError as error:
            raise Corrupt(
                f"run {self._store.place(self._topic, run)} is damaged at byte "
                f"{self._store.byte_at(run, error.position)}: "
                f"{error.why}; restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            ) from error

    async def _index_of(self, run: RunDescriptor) -> RunIndex:
        name = run.run_id
        index = self._indexes.get(name)
        if index is not None:
            self._indexes.move_to_end(name)
            return index
        store, topic, size = self._store, self._topic, run.size
        await store.read(topic, run, 0, HEADER_BYTES, partial(check_header, descriptor=run))
        footer = partial(decode_footer, size=size)
        position, length, crc = await store.read(topic, run, footer_position(size), FOOTER_BYTES, footer)
        index = await store.read(
            topic, run, position, length, partial(decode_index, position=position, crc=crc)
        )
        self._indexes[name] = index
        while len(self._indexes) > INDEXES_KEPT_MAX:
            self._indexes.popitem(last=False)
        return index


def _rows(data: bytes, topic_id: int, offset: int, messages_max: int, bytes_max: int) -> list[Row]:
    rows: list[Row] = []
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
