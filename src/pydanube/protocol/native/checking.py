"""The one look a broker takes at a batch before it takes it: no consumer ever meets a broken one.

Most batches are plain payloads. Those are checked here, in place, without Arrow: its library gives up the interpreter's
lock in every call, and getting it back from the journal's thread costs more than the check. The others are read by Arrow.
"""

from typing import Any

from librt.strings import read_i32_le

from pydanube.protocol.native.batch import (
    ATTRIBUTES,
    MERGED_COLUMNS,
    NONE,
    PAYLOAD,
    BatchLayout,
    invalid_batch,
    read_layout,
)
from pydanube.protocol.native.head import RESERVED_ATTRIBUTES
from pydanube.protocol.native.head_scan import HeadScan, scan_head
from pydanube.protocol.native.ipc_message import binary_column


class CheckedBatch:
    """What the broker needs to know of a batch it is about to take."""

    __slots__ = ("_largest", "count", "head", "is_timed", "layout", "payload_bytes", "record_batch")

    def __init__(
        self, layout: BatchLayout, head: HeadScan, payload_bytes: int, largest: int, record_batch: Any
    ) -> None:
        self.layout = layout
        self.count = layout.count
        self.payload_bytes = payload_bytes
        """Of all payloads together."""
        self.head = head
        self.is_timed = bool(head.deliver_at or head.deliver_after or head.ttl)
        self.record_batch = record_batch
        """Its columns; None if it is plain payloads, which Arrow has not read."""
        self._largest = largest

    @property
    def payload_bytes_max(self) -> int:
        """Of the largest payload. Ask only if all together exceed what one may have: Arrow may have to count."""
        if self._largest < 0:
            from pydanube.protocol.native import columns  # noqa: PLC0415  (needs Arrow)

            self._largest = columns.longest(self.record_batch.column(0))
        return self._largest


def check_batch(body: bytes) -> CheckedBatch:
    """Read a batch once and wholly.

    Raises:
        Rejected: with BATCH_INVALID, saying what cannot be read.
    """
    layout = read_layout(body)
    head = scan_head(layout.head)
    if layout.columns & MERGED_COLUMNS or head.has_publishers:
        raise invalid_batch("it has publishers, times of append or request numbers, which only brokers write")
    reserved = head.reserved.decode()
    if layout.columns == PAYLOAD and layout.codec == NONE:
        payload_bytes, largest = _check_payloads(body, layout)
        checked = CheckedBatch(layout, head, payload_bytes, largest, None)
    else:
        from pydanube.protocol.native import columns  # noqa: PLC0415  (needs Arrow)

        batch = columns.decode_record_batch(body, layout)
        if not reserved and layout.columns & ATTRIBUTES:
            reserved = min(RESERVED_ATTRIBUTES.intersection(columns.attribute_names(batch)), default="")
        checked = CheckedBatch(layout, head, batch.column(0).total_values_length, -1, batch)
    if reserved:
        raise invalid_batch(f"attribute {reserved} belongs in the head or in a column of a batch")
    return checked


def _check_payloads(body: bytes, layout: BatchLayout) -> tuple[int, int]:
    """Bytes of all payloads and of the largest, of a batch that is one column of them."""
    column = binary_column(body, layout.arrow_at, layout.count)
    offsets_at = column.offsets_at
    first = previous = int(read_i32_le(body, offsets_at))
    largest = 0
    if first < 0:
        raise invalid_batch("a payload begins before the column's data")
    for number in range(layout.count):
        offsets_at += 4
        offset = int(read_i32_le(body, offsets_at))
        size = offset - previous
        if size > largest:
            largest = size
        elif size < 0:
            raise invalid_batch(f"payload {number} ends before it begins")
        previous = offset
    if previous > column.data_bytes:
        raise invalid_batch("a payload ends behind the column's data")
    return previous - first, largest
