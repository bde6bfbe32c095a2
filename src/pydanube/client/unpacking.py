"""A batch as what its messages have in common, and their payloads."""

from typing import TYPE_CHECKING

from pydanube.protocol.native.batch import BatchLayout
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.head import decode_head, publishers_of, shared_attributes
from pydanube.protocol.native.payload_batch import decode_payload_batch, is_payload_batch

if TYPE_CHECKING:
    from pydanube.client.message import Origin


def unpack_batch(item: Item, layout: BatchLayout, origin: "Origin") -> list[bytes]:
    """Fill in what the batch says of its messages and return their payloads.

    Raises:
        Rejected: it cannot be read.
    """
    head = decode_head(layout)
    publishers = publishers_of(head)
    origin.producer_name = publishers[0].producer_name
    origin.publish_time_ms = head.publish_time
    origin.attributes = shared_attributes(head)
    if head.HasField("routing_key"):
        origin.routing_key = head.routing_key
    if head.HasField("schema_id"):
        origin.schema_id = head.schema_id
    if head.HasField("schema_version"):
        origin.schema_version = head.schema_version
    if is_payload_batch(layout):
        return decode_payload_batch(item.body, layout)[item.skip : item.skip + item.messages]
    # Here, because a client that meets nothing but payloads need not load Arrow.
    from pydanube.client.unpacked_columns import fill_columns  # noqa: PLC0415

    return fill_columns(item, layout, publishers, origin)
