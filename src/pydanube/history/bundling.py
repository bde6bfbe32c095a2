"""Staging many topics at once: their runs in one file, their descriptors in one transaction."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pydanube.entries.bundle import encode_bundle
from pydanube.history.places import Places
from pydanube.history.topic_history import TopicHistory


class Part(NamedTuple):
    """Entries of one topic that are to become its next run."""

    history: TopicHistory
    heads: Sequence[bytes]
    bodies: Sequence[bytes]


async def stage_together(places: Places, parts: Sequence[Part], *, created_ms: int) -> None:
    """Store each part as a run of its topic, unless it is one already; to be called with all `change` locks held.

    The file is whole and durable before the descriptors name it, and they come all at once.
    """
    new = [part for part in parts if not part.history.has_staged(part.heads)]
    if not new:
        return
    bundle = await asyncio.to_thread(
        encode_bundle, [(part.heads, part.bodies) for part in new], created_ms=created_ms
    )
    await places.runs.write_bundle(bundle.name, bundle.buffers)
    runs = list(zip([part.history for part in new], bundle.runs, strict=True))
    await places.catalogue.add_runs([(history.topic, run) for history, run in runs])
    for history, run in runs:
        history.add_run(run)
