"""Which runs of a topic are to become the next segment. Pure."""

from collections.abc import Sequence

from pydanube.entries.run_file import RunDescriptor


def due_runs(
    waiting: Sequence[RunDescriptor],
    *,
    segment_bytes: int,
    age_ms_max: int,
    now_ms: int,
    on_demand: bool = False,
) -> list[RunDescriptor]:
    """The oldest runs, up to about `segment_bytes`; none if they are few and young and nobody asks."""
    taken: list[RunDescriptor] = []
    size = 0
    for run in waiting:
        if taken and size + run.size > segment_bytes:
            break
        taken.append(run)
        size += run.size
    if not taken:
        return []
    is_enough = size >= segment_bytes or len(taken) < len(waiting)
    is_old = now_ms - taken[0].created_at * 1000 >= age_ms_max
    return taken if on_demand or is_enough or is_old else []
