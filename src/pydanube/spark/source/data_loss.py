"""Messages that are gone before they were read: an error that names them, or a warning, never silence."""

import logging

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.topics import TopicPart

logger = logging.getLogger("pydanube.spark")


def check_loss(part: TopicPart, wanted: range, available: range, *, fail: bool) -> range:
    """What can be read of a range.

    Raises:
        Rejected: OFFSET_GONE if some of it was deleted, and `fail`.
    """
    if wanted.start >= available.start or wanted.start >= wanted.stop:
        return wanted
    lost = range(wanted.start, min(wanted.stop, available.start))
    text = (
        f"{len(lost)} messages of {part.name} are gone: offset {lost.start} was wanted, "
        f"the oldest one kept is {available.start}"
    )
    if fail:
        raise Rejected(
            f"{text}; keep messages longer, or set failOnDataLoss=false to go on without them",
            ErrorCode.OFFSET_GONE,
        )
    logger.warning("%s; failOnDataLoss=false, so reading goes on without them", text)
    return range(lost.stop, max(lost.stop, wanted.stop))


def topic_lost(part: TopicPart, position: int, *, fail: bool, why: str) -> None:
    """A topic that was being read is not what it was.

    Raises:
        Rejected: if `fail`.
    """
    text = f"{part.name} {why}, and offset {position} was to be read next"
    if fail:
        raise Rejected(
            f"{text}; begin with a new checkpoint, or set failOnDataLoss=false to go on with what there is",
            ErrorCode.OFFSET_GONE,
        )
    logger.warning("%s; failOnDataLoss=false, so reading goes on with what there is", text)
