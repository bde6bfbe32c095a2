"""A segment: one Parquet file of a topic, its columns, its name and what the metadata store remembers of it.

`docs/segment-format.md` describes the same for readers in other languages.
"""

import re
from typing import Final

import msgspec

from pydanube.kernel.names import TopicName

FORMAT_VERSION: Final = 1

KEY_TOPIC: Final = "danube.topic"
KEY_TOPIC_ID: Final = "danube.topic_id"
KEY_LEDGER: Final = "danube.ledger"
KEY_EPOCH: Final = "danube.epoch"
KEY_START_OFFSET: Final = "danube.start_offset"
KEY_END_OFFSET: Final = "danube.end_offset"
KEY_FORMAT: Final = "danube.format_version"
KEY_CREATED: Final = "danube.created_ms"
KEY_PAYLOAD_BYTES: Final = "danube.payload_bytes"
KEY_REMOVED: Final = "danube.removed_messages"
KEY_CHECKSUM: Final = "danube.checksum"
"""CRC-32C, in hexadecimal, of all bytes before the Parquet footer."""

UNFINISHED_SUFFIX: Final = ".unfinished"

_NAME: Final = re.compile(r"data-(\d{20})-(\d{20})-([0-9a-f]{16})-(\d+)\.parquet")


class SegmentDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable segment. It exists for readers once its descriptor is stored."""

    segment_id: str
    """Name of the object, made by `segment_id`."""
    topic_id: int
    epoch: int
    start_offset: int
    end_offset: int
    """The last offset in it: both ends are part of the segment."""
    size: int
    checksum: str
    """CRC-32C of all bytes of the file, in hexadecimal."""
    created_at: int
    """Unix seconds."""
    min_append_ms: int
    max_append_ms: int
    min_publish_ms: int
    max_publish_ms: int
    payload_bytes: int
    """Of all messages, not compressed."""
    removed_messages: int | None = None
    """Of which only the offset is left; None if it was made before they were counted."""
    etag: str = ""

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1


def segment_id(topic_id: int, start_offset: int, end_offset: int, created_at: int) -> str:
    """A name that sorts by offset; no two topics and no two attempts share one."""
    return f"data-{start_offset:020}-{end_offset:020}-{topic_id:016x}-{created_at}.parquet"


def unfinished_name(topic_id: int, start_offset: int, created_ms: int) -> str:
    """What a segment is called while it is written: who made it knows its end only afterwards."""
    return f"data-{start_offset:020}-{topic_id:016x}-{created_ms}{UNFINISHED_SUFFIX}"


def topic_id_of(name: str) -> int | None:
    """The topic a segment of that name belongs to; None if the name is not one of ours."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[3], 16)


def topic_path(topic: TopicName) -> str:
    """Where the segments of a topic lie in the durable store."""
    return f"storage/topics/{topic.namespace}/{topic.topic}/segments"


def segment_key(topic: TopicName, name: str) -> str:
    return f"{topic_path(topic)}/{name}"
