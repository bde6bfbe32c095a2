"""Where in a closed journal file the entries with messages are.

Who has written it remembers; after a restart the headers of the entries tell, bodies are not read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydanube.entries.disk import Disk
from pydanube.entries.entry import CARRIES_MESSAGES, decode_placing
from pydanube.entries.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from pydanube.log.group import HEADER_BYTES, bytes_on_disk, decode_group_header

Places = dict[int, dict[int, int]]
"""By topic id and base offset."""


KEPT_ENTRY_BYTES_MIN: Final = 16 * 1024
"""Entries of a file that is kept are on average at least this large."""


class WrittenEntries:
    """What this process has put into files that are not staged yet, in its order.

    Reading the headers back instead would mean a seek for each entry, just when the next file is being written. Files with
    too many entries to be kept are not remembered.
    """

    def __init__(self, *, file_bytes: int) -> None:
        self._entries_max = file_bytes // KEPT_ENTRY_BYTES_MIN
        self._left: dict[int, int] = {}
        """How many more entries of each file are remembered; negative if it has too many."""
        self._parts: dict[int, list[tuple[int, list[bytes]]]] = {}

    def add(self, file_sequence: int, position: int, buffers: list[bytes], entries: int) -> None:
        """So many entries, of which these are the bytes, lie at that position of the file."""
        left = self._left.get(file_sequence, self._entries_max) - entries
        self._left[file_sequence] = left
        if left < 0:
            self._parts.pop(file_sequence, None)
        else:
            self._parts.setdefault(file_sequence, []).append((position, buffers))

    def places(self, file_sequence: int) -> Places | None:
        """Positions of the entries in the file; None if it must be read to know them."""
        parts = self._parts.get(file_sequence)
        if parts is None:
            return None
        places: Places = {}
        for position, buffers in parts:
            _note_entries(places, position, buffers)
        return places

    def forget(self, file_sequence: int) -> None:
        self._left.pop(file_sequence, None)
        self._parts.pop(file_sequence, None)


def _note_entries(places: Places, entry_at: int, buffers: Sequence[bytes]) -> None:
    """Add the places of entries that begin there and lie in these buffers, each in one or more of its own."""
    missing = 0
    for buffer in filter(None, buffers):  # the body of an empty message is none
        if not missing:
            kind, length, topic_id, base_offset = decode_placing(buffer)
            missing = ENTRY_HEADER_BYTES + length
            if kind in CARRIES_MESSAGES:
                places.setdefault(topic_id, {})[base_offset] = entry_at
            entry_at += missing
        missing -= len(buffer)


def entry_places(disk: Disk, path: Path, *, journal_id: int, file_sequence: int) -> Places:
    """Positions of the entries in all groups of the file."""
    places: Places = {}
    fd = disk.open(path)
    try:
        position = 0
        while True:
            data = disk.read_at(fd, position, HEADER_BYTES)
            group = decode_group_header(data, 0, journal_id, data_at=position)
            if group is None or group.file_sequence != file_sequence:
                return places
            entry_at = position + HEADER_BYTES
            end = entry_at + group.length
            while entry_at < end:
                head = disk.read_at(fd, entry_at, ENTRY_HEADER_BYTES)
                kind, length, topic_id, base_offset = decode_placing(head)
                if kind in CARRIES_MESSAGES:
                    places.setdefault(topic_id, {})[base_offset] = entry_at
                entry_at += ENTRY_HEADER_BYTES + length
            position += bytes_on_disk(group.length)
    finally:
        disk.close(fd)
