"""What an application passes along with a payload, checked before anything is taken."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypedDict

from pydanube.client.encoding import Common, Timing
from pydanube.client.outgoing import NO_EXTRAS, UNTIMED, Extras
from pydanube.client.position import unix_ms
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native.timing import (
    COMPACTION_KEY_ATTRIBUTE,
    DELIVER_AFTER_ATTRIBUTE,
    DELIVER_AT_ATTRIBUTE,
    TTL_ATTRIBUTE,
)

Payload = bytes | bytearray | memoryview
Moment = datetime | int
"""A datetime with a time zone, or Unix milliseconds."""
Duration = timedelta | float
"""A timedelta, or seconds."""


class TimingFields(TypedDict, total=False):
    """When messages are delivered; all of it may be left out or None."""

    deliver_at: Moment | None
    """Not delivered before this moment."""
    deliver_after: Duration | None
    """Not delivered until so long after the broker took it."""
    ttl: Duration | None
    """Not delivered any more, so long after the broker took it."""


class Fields(TimingFields, total=False):
    """What may be said of a message besides its payload; all of it may be left out or None."""

    key: str | None
    """Routing key: messages with one key share a partition and keep their order."""
    attributes: Mapping[str, str] | None
    publish_time: Moment | None
    """When it was sent; now, if this is left out."""
    schema_id: int | None
    schema_version: int | None
    compaction_key: str | bytes | None
    """Of messages with the same key the latest counts."""


_KEYWORDS: Final = {
    DELIVER_AT_ATTRIBUTE: "deliver_at",
    DELIVER_AFTER_ATTRIBUTE: "deliver_after",
    TTL_ATTRIBUTE: "ttl",
    COMPACTION_KEY_ATTRIBUTE: "compaction_key",
}
_DURATION_MS_MAX: Final = (1 << 53) - 1


def payload_bytes(payload: Payload) -> bytes:
    """The payload as bytes of its own, which nobody else can change while it is on its way."""
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise Rejected(f"a payload is bytes, not {type(payload).__name__}: encode it first")


def checked_extras(fields: Fields) -> Extras:
    """The fields of one message but for its timing; NO_EXTRAS itself if it has none."""
    key = fields.get("key")
    attributes = fields.get("attributes")
    publish_time = fields.get("publish_time")
    schema_id = fields.get("schema_id")
    schema_version = fields.get("schema_version")
    compaction_key = fields.get("compaction_key")
    if key is not None and not isinstance(key, str):
        raise Rejected(f"a routing key is text, not {type(key).__name__}")
    if attributes:
        for name, value in attributes.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise Rejected(f"attribute {name!r}: names and values are text, not {type(value).__name__}")
            if name in _KEYWORDS:
                raise Rejected(f"attribute {name!r} is the protocol's own: pass {_KEYWORDS[name]}=… instead")
        attributes = dict(attributes)
    _check_number(schema_id, 64, "schema_id")
    _check_number(schema_version, 32, "schema_version")
    if isinstance(compaction_key, str):
        compaction_key = compaction_key.encode()
    elif compaction_key is not None:
        try:
            compaction_key.decode()
        except UnicodeDecodeError as error:
            raise Rejected(f"a compaction key is text in UTF-8: {error}") from error
    extras = Extras(
        key,
        attributes or None,
        None if publish_time is None else unix_ms(publish_time, what="publish_time"),
        schema_id,
        schema_version,
        compaction_key,
    )
    return NO_EXTRAS if extras == NO_EXTRAS else extras


def checked_timing(fields: TimingFields) -> Timing:
    """When to deliver, UNTIMED itself if it does not matter."""
    deliver_at, deliver_after, ttl = fields.get("deliver_at"), fields.get("deliver_after"), fields.get("ttl")
    if deliver_at is None and deliver_after is None and ttl is None:
        return UNTIMED
    if deliver_at is not None and deliver_after is not None:
        raise Rejected("deliver_at and deliver_after exclude each other: pass one of them")
    return Timing(
        0 if deliver_at is None else unix_ms(deliver_at, what="deliver_at"),
        _duration_ms(deliver_after, "deliver_after"),
        _duration_ms(ttl, "ttl"),
    )


def common_fields(fields: Fields, now_ms: int) -> tuple[Common, bytes | None]:
    """The same fields for many messages, and their compaction key."""
    extras = checked_extras(fields)
    common = Common(
        now_ms if extras.publish_time is None else extras.publish_time,
        checked_timing(fields),
        extras.key,
        extras.attributes,
        extras.schema_id,
        extras.schema_version,
    )
    return common, extras.compaction_key


def _duration_ms(duration: Duration | None, what: str) -> int:
    if duration is None:
        return 0
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not 0 < seconds * 1000 <= _DURATION_MS_MAX:
        raise Rejected(f"invalid {what} {duration}: expected a timedelta or seconds, more than 0")
    return max(1, round(seconds * 1000))


def _check_number(value: int | None, bits: int, what: str) -> None:
    if value is not None and not (isinstance(value, int) and 0 <= value < 1 << bits):
        raise Rejected(f"invalid {what} {value!r}: expected 0 to {(1 << bits) - 1}")


def too_large(topic: str, size: int, limit: int) -> Rejected:
    return Rejected(
        f"{topic}: a payload of {size} bytes exceeds the {limit} bytes the topic takes: split it, or store it "
        "elsewhere and send where it is",
        ErrorCode.MESSAGE_TOO_LARGE,
    )
