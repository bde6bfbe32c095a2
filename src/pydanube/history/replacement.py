"""New segments in the place of old ones that hold the same offsets: what they must be, and when the old files go.

    files sent ─▶ checked ─▶ durable store ─▶ one transaction: descriptors ─▶ old files removed, some time later
                              "replacement_uploaded"  "replacement_described"      "replaced_removed"

Before the transaction the new files are orphans, which the sweep removes after a crash; after it the old ones are on a
list of their own, which `remove_replaced` works through. At no moment are both named, or neither.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from pydanube.history.places import Places
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import TopicName

logger = logging.getLogger("pydanube.history")

REPLACED_KEPT_MS: Final = 60 * 60_000
"""Programs that were told where a segment lies may read it for so long after it was replaced."""

_COMMON: Final = ("min_append_ms", "max_append_ms", "min_publish_ms", "max_publish_ms")


def check_replacement(old: Sequence[SegmentDescriptor], new: Sequence[SegmentDescriptor]) -> None:
    """Refuse segments that cannot be those messages: other offsets, other times, another epoch, more bytes.

    Messages may have been removed, but each keeps its place and its times: docs/segment-format.md.
    """
    wanted, given = (old[0].start_offset, old[-1].end_offset), (new[0].start_offset, new[-1].end_offset)
    if wanted != given:
        raise Rejected(
            f"the files hold offsets {given[0]} to {given[1]}, the segments they are to replace {wanted[0]} to "
            f"{wanted[1]}: make them of exactly these",
            ErrorCode.ARGUMENT_INVALID,
        )
    for name in _COMMON:
        choose = min if name.startswith("min") else max
        before, after = (choose(getattr(each, name) for each in some) for some in (old, new))
        if before != after:
            raise Rejected(
                f"{name} of the files is {after}, of the segments they are to replace {before}: a message keeps its "
                "times, also when it is removed",
                ErrorCode.ARGUMENT_INVALID,
            )
    epochs = {each.epoch for each in old}
    if not {each.epoch for each in new} <= epochs:
        raise Rejected(
            f"the files are not of epochs {sorted(epochs)}, as the segments they are to replace",
            ErrorCode.ARGUMENT_INVALID,
        )
    before, after = (sum(each.payload_bytes for each in some) for some in (old, new))
    if after > before:
        raise Rejected(
            f"the files have {after} bytes of payloads, the segments they are to replace {before}: messages can be "
            "removed, not changed",
            ErrorCode.ARGUMENT_INVALID,
        )


async def remove_replaced(
    places: Places,
    *,
    now_ms: int,
    topic_id: int | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> int:
    """Remove the files whose time has come, or all of one topic; return how many.

    Raises:
        Unavailable: the durable store does not answer; the rest has to be done later.
    """
    removed = 0
    for file in await places.catalogue.replaced_files():
        if file.topic_id == topic_id or (topic_id is None and file.remove_at_ms <= now_ms):
            await places.store.delete(segment_key(TopicName.parse(file.topic), file.segment_id))
            on_step("replaced_removed")
            await places.catalogue.forget_replaced(file)
            logger.info("replaced segment removed topic=%s segment=%s", file.topic, file.segment_id)
            removed += 1
    return removed
