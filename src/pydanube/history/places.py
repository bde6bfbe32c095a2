"""Where the history of all topics lies, and how much of it waits to become segments."""

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

from pydanube.entries.run_store import RunStore
from pydanube.history.catalogue import Catalogue
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.names import TopicName
from pydanube.stores.store import DurableStore

if TYPE_CHECKING:
    from pydanube.history.segment_reader import SegmentReader
    from pydanube.history.topic_history import TopicHistory


class Backlog:
    """Topics with runs that are in no segment yet."""

    def __init__(self) -> None:
        self.topics: dict[TopicHistory, int] = {}
        """Bytes that wait, by topic."""
        self.bytes = 0

    def set(self, history: "TopicHistory", waiting_bytes: int) -> None:
        self.bytes += waiting_bytes - self.topics.get(history, 0)
        if waiting_bytes:
            self.topics[history] = waiting_bytes
        else:
            self.topics.pop(history, None)


class Places:
    """One per broker, shared by the histories of its topics."""

    def __init__(
        self, runs: RunStore, catalogue: Catalogue, store: DurableStore, *, read_cache_bytes_max: int
    ) -> None:
        self.runs = runs
        self.catalogue = catalogue
        self.store = store
        self.backlog = Backlog()
        self._read_cache_bytes_max = read_cache_bytes_max
        self._reader: SegmentReader | None = None

    def forget_segment(self, topic: TopicName, segment: SegmentDescriptor) -> None:
        """The segment is gone: nothing of it is to stay in memory."""
        if self._reader is not None:
            self._reader.forget(topic, segment)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()

    async def segment_reader(self) -> "SegmentReader":
        """Made when the first consumer is that far behind: it needs Arrow, which takes a moment to load."""
        if self._reader is None:
            module = await asyncio.to_thread(import_module, "pydanube.history.segment_reader")
            if self._reader is None:
                self._reader = module.SegmentReader(self.store, cache_bytes_max=self._read_cache_bytes_max)
        return self._reader
