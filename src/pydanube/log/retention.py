"""Which parts of a topic's history a retention policy gives up. Pure."""

from collections.abc import Sequence

from pydanube.history.topic_history import Unit
from pydanube.kernel.policies import Retention

MEBIBYTE = 1 << 20
MINUTE_MS = 60_000


def expired(
    units: Sequence[Unit],
    policy: Retention,
    *,
    unconsumed_from: int | None,
    converting_from: int | None = None,
    now_ms: int,
) -> list[Unit]:
    """The oldest runs and segments that may go, oldest first.

    `unconsumed_from` is the first offset some subscription still waits for, None if there are no
    subscriptions: then nobody waits for anything, but nobody has consumed anything either. What is being made into a
    segment, from `converting_from` on, stays until that is done.
    """
    given_up: list[Unit] = []
    size = sum(unit.size for unit in units)
    for unit in units:
        if converting_from is not None and unit.next_offset > converting_from:
            break
        is_consumed = unconsumed_from is not None and unit.next_offset <= unconsumed_from
        is_awaited = unconsumed_from is not None and not is_consumed
        if is_awaited and not policy.drop_unconsumed:
            break
        is_old = (
            bool(policy.time_minutes) and unit.max_append_ms < now_ms - (policy.time_minutes or 0) * MINUTE_MS
        )
        is_too_much = bool(policy.size_mb) and size > (policy.size_mb or 0) * MEBIBYTE
        if not (is_old or is_too_much or (policy.until_consumed and is_consumed)):
            break
        given_up.append(unit)
        size -= unit.size
    return given_up
