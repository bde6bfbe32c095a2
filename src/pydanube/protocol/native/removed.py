"""Messages that were removed from a topic's history: their offsets stay, so that offsets remain dense.

docs/segment-format.md says what is left of such a message. Subscriptions pass over it, for it expired long ago by its
time to live; readers leave it out here, by its mark.
"""

from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.batch import is_batch
from pydanube.protocol.native.columns import decode_record_batch

if TYPE_CHECKING:
    import pyarrow as pa

REMOVED_ATTRIBUTE: Final = "x-danube-removed"
"""Says why: `erased` or `compacted`."""

_MARK: Final = REMOVED_ATTRIBUTE.encode()


def is_removed(body: bytes) -> bool:
    """Whether an entry out of a segment holds removed messages: all of it, for they share it with no others."""
    # Almost none does, and searching is far cheaper than decoding; batches out of segments are not compressed.
    if _MARK not in body:
        return False
    if not is_batch(body):
        return REMOVED_ATTRIBUTE in StreamMessage.FromString(body).attributes
    batch = decode_record_batch(body)
    return "attributes" in batch.schema.names and _all_are_marked(batch.column("attributes"))


def _all_are_marked(attributes: "pa.MapArray") -> bool:
    marks = pc.map_lookup(attributes, REMOVED_ATTRIBUTE, "first")
    return bool(marks.null_count == 0)
