"""Staging many topics at once: their runs in one file, their descriptors in one transaction.

The file is written for them, or it is the journal's own, which is kept.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pydanube.entries.bundle import encode_bundle
from pydanube.entries.kept import KeptPart
from pydanube.entries.run_file import RunDescriptor
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
    await _add_runs(places, [part.history for part in new], bundle.runs)


async def keep_together(
    places: Places, name: str, parts: Sequence[tuple[TopicHistory, KeptPart]], *, created_ms: int
) -> None:
    """Let each part be a run of its topic where it lies in a kept file; otherwise as `stage_together`."""
    new = [(history, part) for history, part in parts if not history.has_staged(part.heads)]
    if not new:
        return
    runs = await places.runs.describe(name, [part for _, part in new], created_ms=created_ms)
    await _add_runs(places, [history for history, _ in new], runs)


async def _add_runs(places: Places, histories: Sequence[TopicHistory], runs: Sequence[RunDescriptor]) -> None:
    added = list(zip(histories, runs, strict=True))
    await places.catalogue.add_runs([(history.topic, run) for history, run in added])
    for history, run in added:
        history.add_run(run)
