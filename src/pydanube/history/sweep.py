"""Removing from the durable store what no descriptor names: leftovers of uploads that were cut short."""

import logging
from collections.abc import Callable, Container

from pydanube.history.places import Places
from pydanube.history.segment import segment_key
from pydanube.kernel.names import TopicName
from pydanube.stores.store import StoredObject

logger = logging.getLogger("pydanube.history")

SWEPT_PATH = "storage/topics"


async def sweep(
    places: Places,
    *,
    uploading: Container[str],
    older_than_ms: int,
    on_removed: Callable[[StoredObject], None],
) -> int:
    """Remove orphans written before that moment; return how many.

    An object is looked up in the catalogue after it was listed, and one that is being uploaded is left alone, so
    nothing that becomes a segment meanwhile is taken for an orphan. Replaced segments go in their own time. What lies
    where segments do not is not touched.
    """
    removed = 0
    known: tuple[TopicName | None, set[str]] = (None, set())
    async for found in places.store.list(SWEPT_PATH):
        topic = _topic_of(found.key)
        if topic is None or found.key in uploading or found.modified_ms > older_than_ms:
            continue
        if topic != known[0] or found.key not in known[1]:
            segments = await places.catalogue.segments.list(topic)
            known = (topic, {segment_key(topic, segment.segment_id) for segment in segments})
        if found.key in known[1] or found.key in uploading:
            continue
        # Asked after the segments were: whatever is replaced meanwhile is found here or there.
        if not await places.catalogue.is_replaced(found.key.rpartition("/")[2]):
            await places.store.delete(found.key)
            logger.info("orphan object removed object=%s bytes=%d", places.store.place(found.key), found.size)
            on_removed(found)
            removed += 1
    return removed


def _topic_of(key: str) -> TopicName | None:
    parts = key.split("/")
    if len(parts) != 6 or parts[4] != "segments":
        return None
    return TopicName(parts[2], parts[3])
