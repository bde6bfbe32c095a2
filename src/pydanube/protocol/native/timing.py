"""When an entry's messages may be delivered and when they expire: attributes of a row, fields of a batch's head."""

from collections.abc import Mapping
from typing import Final

from google.protobuf.message import DecodeError

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.batch import is_batch, read_layout
from pydanube.protocol.native.head_scan import TIME_MS_MAX, scan_head

DELIVER_AT_ATTRIBUTE: Final = "x-deliver-at"
"""Not before this time, Unix milliseconds."""
DELIVER_AFTER_ATTRIBUTE: Final = "x-deliver-after"
"""Not before so many milliseconds after the append."""
TTL_ATTRIBUTE: Final = "x-ttl"
"""Not later than so many milliseconds after the append."""
COMPACTION_KEY_ATTRIBUTE: Final = "x-compaction-key"
"""Of the messages with the same key the latest counts."""

TIMING_ATTRIBUTES: Final = (DELIVER_AT_ATTRIBUTE, DELIVER_AFTER_ATTRIBUTE, TTL_ATTRIBUTE)


def timing(body: bytes) -> tuple[int, int, int]:
    """The entry's deliver_at, deliver_after and ttl in milliseconds; 0 where it has none.

    Raises:
        Rejected: a row's attribute is not a number of milliseconds (ARGUMENT_INVALID), or the body cannot be read.
    """
    if is_batch(body):
        head = scan_head(read_layout(body).head)
        return head.deliver_at, head.deliver_after, head.ttl
    # Almost no message is timed, and searching is far cheaper than decoding.
    if b"x-deliver-" not in body and b"x-ttl" not in body:
        return 0, 0, 0
    try:
        attributes = StreamMessage.FromString(body).attributes
    except DecodeError as error:
        raise Rejected(f"malformed StreamMessage: {error}", ErrorCode.MALFORMED_REQUEST) from error
    return (
        _milliseconds(DELIVER_AT_ATTRIBUTE, attributes),
        _milliseconds(DELIVER_AFTER_ATTRIBUTE, attributes),
        _milliseconds(TTL_ATTRIBUTE, attributes),
    )


def _milliseconds(name: str, attributes: Mapping[str, str]) -> int:
    text = attributes.get(name)
    if text is None:
        return 0
    # isdecimal alone would let other scripts' digits through, and int() takes signs, spaces and underscores.
    if text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= TIME_MS_MAX:
        return int(text)
    raise Rejected(f"attribute {name} is {text[:40]!r}: expected milliseconds, 0 to {TIME_MS_MAX}")
