"""Messages that were removed from a topic's history: their offsets stay, so that offsets remain dense.

docs/segment-format.md says what is left of such a message. Subscriptions pass over it, for it expired long ago by its
time to live; readers leave it out here, by its mark.
"""

from typing import Final

from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.batch import BatchLayout, is_batch, read_layout
from pydanube.protocol.native.head import decode_head

REMOVED_ATTRIBUTE: Final = "x-danube-removed"
"""Says why: `erased` or `compacted`."""
REMOVED_TTL_MS: Final = 1

_MARK: Final = REMOVED_ATTRIBUTE.encode()


def is_removed(body: bytes) -> bool:
    """Whether an entry out of a segment holds removed messages: all of it, for they share it with no others."""
    if not is_batch(body):
        # Almost none is marked, and searching is far cheaper than decoding.
        return _MARK in body and REMOVED_ATTRIBUTE in StreamMessage.FromString(body).attributes
    layout = read_layout(body)
    head = decode_head(layout)
    # Nobody who publishes has no name, so usually nothing but the head is looked at.
    return not head.producer_name and head.ttl == REMOVED_TTL_MS and _all_are_marked(body, layout)


def _all_are_marked(body: bytes, layout: BatchLayout) -> bool:
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to load

    from pydanube.protocol.native.columns import decode_record_batch  # noqa: PLC0415

    batch = decode_record_batch(body, layout)
    if "attributes" not in batch.schema.names:
        return False
    marks = pc.map_lookup(batch.column("attributes"), REMOVED_ATTRIBUTE, "first")
    return bool(marks.null_count == 0)
