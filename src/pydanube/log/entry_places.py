"""Where in a closed journal file the entries with messages are: found by their headers, bodies are not read."""

from pathlib import Path

from pydanube.entries.disk import Disk
from pydanube.entries.entry import CARRIES_MESSAGES, decode_header
from pydanube.entries.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from pydanube.log.group import HEADER_BYTES, bytes_on_disk, decode_group_header

Places = dict[int, dict[int, int]]
"""By topic id and base offset."""


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
                entry = decode_header(disk.read_at(fd, entry_at, ENTRY_HEADER_BYTES))
                if entry.kind in CARRIES_MESSAGES:
                    places.setdefault(entry.topic_id, {})[entry.base_offset] = entry_at
                entry_at += ENTRY_HEADER_BYTES + entry.length
            position += bytes_on_disk(group.length)
    finally:
        disk.close(fd)
