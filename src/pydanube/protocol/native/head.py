"""The head of a batch: what all its messages share."""

from typing import Final

from google.protobuf.message import DecodeError

from pydanube.kernel.names import NAME_CHARACTERS_MAX
from pydanube.protocol.native.batch import BatchLayout, invalid_batch
from pydanube.protocol.native.head_scan import TIME_MS_MAX
from pydanube.protocol.native.timing import (
    COMPACTION_KEY_ATTRIBUTE,
    DELIVER_AFTER_ATTRIBUTE,
    DELIVER_AT_ATTRIBUTE,
    TTL_ATTRIBUTE,
)
from pydanube.protocol.native_pb2 import BatchHead, Publisher

RESERVED_ATTRIBUTES: Final = frozenset(
    (DELIVER_AT_ATTRIBUTE, DELIVER_AFTER_ATTRIBUTE, TTL_ATTRIBUTE, COMPACTION_KEY_ATTRIBUTE)
)
"""Attributes that rows use for what a batch has in its head or in a column."""


def decode_head(layout: BatchLayout) -> BatchHead:
    try:
        head = BatchHead.FromString(layout.head)
    except DecodeError as error:
        raise invalid_batch(f"its head cannot be decoded ({error})") from error
    head.ClearField("padding")
    if len(head.producer_name) > NAME_CHARACTERS_MAX:
        raise invalid_batch(f"its producer's name is longer than {NAME_CHARACTERS_MAX} characters")
    for name in ("publish_time", "deliver_at", "deliver_after", "ttl"):
        if getattr(head, name) > TIME_MS_MAX:
            raise invalid_batch(f"its {name} exceeds {TIME_MS_MAX} ms")
    return head


def publishers_of(head: BatchHead) -> list[Publisher]:
    """Whom the messages came from: column `publisher` counts in these, without it all came from the first."""
    if head.publishers:
        return list(head.publishers)
    return [Publisher(producer_id=head.producer_id, producer_name=head.producer_name)]


def shared_attributes(head: BatchHead) -> dict[str, str]:
    """Attributes of every row of a batch: those of the head, and its times in the form rows have them."""
    attributes = dict(head.attributes)
    if head.deliver_at:
        attributes[DELIVER_AT_ATTRIBUTE] = str(head.deliver_at)
    if head.deliver_after:
        attributes[DELIVER_AFTER_ATTRIBUTE] = str(head.deliver_after)
    if head.ttl:
        attributes[TTL_ATTRIBUTE] = str(head.ttl)
    return attributes
