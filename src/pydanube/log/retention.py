"""Which segments a retention policy gives up. Pure."""

from collections.abc import Sequence

from pydanube.kernel.policies import Retention
from pydanube.segments.descriptor import SegmentDescriptor

MEBIBYTE = 1 << 20
MINUTE_MS = 60_000


def expired(
    segments: Sequence[SegmentDescriptor], policy: Retention, *, unconsumed_from: int | None, now_ms: int
) -> list[SegmentDescriptor]:
    """The oldest segments that may go, oldest first.

    `unconsumed_from` is the first offset some subscription still waits for, None if there are no
    subscriptions: then nobody waits for anything, but nobody has consumed anything either.
    """
    given_up: list[SegmentDescriptor] = []
    size = sum(segment.size for segment in segments)
    for segment in segments:
        is_consumed = unconsumed_from is not None and segment.next_offset <= unconsumed_from
        is_awaited = unconsumed_from is not None and not is_consumed
        if is_awaited and not policy.drop_unconsumed:
            break
        is_old = (
            bool(policy.time_minutes)
            and segment.max_append_ms < now_ms - (policy.time_minutes or 0) * MINUTE_MS
        )
        is_too_much = bool(policy.size_mb) and size > (policy.size_mb or 0) * MEBIBYTE
        if not (is_old or is_too_much or (policy.until_consumed and is_consumed)):
            break
        given_up.append(segment)
        size -= segment.size
    return given_up
