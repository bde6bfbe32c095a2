"""Closed journal files that are kept: what is in them becomes runs where it lies, and nothing is written twice.

Worth it where entries are large, as batches are: a run then lies in few places. Small entries of many topics are copied together by the topic instead (staging.py).
"""

import asyncio
import logging
from collections.abc import Sequence

from pydanube.entries.disk import Disk
from pydanube.entries.entry import HEADER_BYTES
from pydanube.entries.kept import KeptPart
from pydanube.history.bundling import keep_together
from pydanube.history.places import Places
from pydanube.log.entry_places import KEPT_ENTRY_BYTES_MIN, WrittenEntries, entry_places
from pydanube.log.entry_places import Places as EntryPlaces
from pydanube.log.files import JournalDirectory
from pydanube.log.tail import Chunk
from pydanube.log.topic_log import TopicLog

logger = logging.getLogger("pydanube.log")

Work = tuple[TopicLog, Chunk]


class Keeper:
    """Decides which files are kept, and keeps them."""

    def __init__(
        self,
        disk: Disk,
        directory: JournalDirectory,
        journal_id: int,
        places: Places,
        *,
        file_bytes: int,
        written: WrittenEntries,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._journal_id = journal_id
        self._places = places
        self._file_bytes = file_bytes
        self._written = written
        self._cannot = False

    async def keep(self, file_sequence: int, work: Sequence[Work]) -> "KeptFile | None":
        """Keep the file if that is worth it and can be done; its messages are still to be staged."""
        if self._cannot or self._directory.is_scrubbing or not self._is_worth_it(work):
            return None
        path = self._directory.path_of(file_sequence)
        found = self._written.places(file_sequence)
        if found is None:
            found = await asyncio.to_thread(
                entry_places, self._disk, path, journal_id=self._journal_id, file_sequence=file_sequence
            )
        if not all(_are_in(found.get(log.topic_id, {}), chunk) for log, chunk in work):
            logger.error("a closed journal file lacks messages that were written to it file=%s", path)
            return None
        name = f"{self._journal_id:016x}-{file_sequence:020}.kept"
        try:
            await self._places.runs.keep(path, name)
        except OSError as error:
            logger.warning("journal files are copied, not kept: no second name for %s error=%s", path, error)
            self._cannot = True
            return None
        return KeptFile(self._places, name, found)

    def _is_worth_it(self, work: Sequence[Work]) -> bool:
        """Whether the file is at least half full of large entries."""
        entries = sum(len(chunk.heads) for _, chunk in work)
        size = sum(HEADER_BYTES * len(chunk.heads) + sum(map(len, chunk.bodies)) for _, chunk in work)
        return size >= self._file_bytes // 2 and size >= entries * KEPT_ENTRY_BYTES_MIN


class KeptFile:
    """A journal file that has a second name among the runs."""

    def __init__(self, places: Places, name: str, found: EntryPlaces) -> None:
        self._places = places
        self._name = name
        self._found = found

    async def stage(self, group: Sequence[Work], created_ms: int) -> None:
        """Let these be runs; to be called with their `change` locks held."""
        parts = [
            (
                log.history,
                KeptPart(
                    chunk.heads, chunk.bodies, [self._found[log.topic_id][base] for base in chunk.bases]
                ),
            )
            for log, chunk in group
        ]
        await keep_together(self._places, self._name, parts, created_ms=created_ms)

    async def give_up_if_unused(self) -> None:
        """Forget the second name unless runs have come to need it."""
        await self._places.runs.drop_unused(self._name)


def _are_in(found: dict[int, int], chunk: Chunk) -> bool:
    return found.keys() >= set(chunk.bases)
