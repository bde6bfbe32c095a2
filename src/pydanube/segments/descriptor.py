"""What the metadata store remembers of a segment, and under which keys."""

import msgspec

from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.metadata import MetadataStore


class SegmentDescriptor(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable segment. It exists for readers once its descriptor is stored."""

    segment_id: str
    """Name of the file or object."""
    topic_id: int
    epoch: int
    start_offset: int
    end_offset: int
    """The last offset in it: both ends are part of the segment."""
    size: int
    checksum: str
    """CRC-32C of all bytes, in hexadecimal."""
    created_at: int
    """Unix seconds."""
    min_append_ms: int
    max_append_ms: int
    entry_count: int

    @property
    def next_offset(self) -> int:
        return self.end_offset + 1


class Catalogue:
    """Descriptors of all topics, one key each in the order of their offsets, and deletions under way."""

    def __init__(self, metadata: MetadataStore, broker_id: str) -> None:
        self._metadata = metadata
        self._deletions = f"/storage/deletions/{broker_id}"

    async def list(self, topic: TopicName) -> list[SegmentDescriptor]:
        """The topic's segments, oldest first; those of an earlier topic of that name included."""
        return [_decode(entry.key, entry.value) for entry in await self._metadata.list(_prefix(topic))]

    async def add(self, topic: TopicName, descriptor: SegmentDescriptor) -> None:
        """Make the segment known. Repeating it changes nothing."""
        await self._metadata.put(_key(topic, descriptor.start_offset), msgspec.json.encode(descriptor))

    async def remove(self, topic: TopicName, descriptor: SegmentDescriptor) -> None:
        """Forget the segment, unless the key speaks of another one by now."""
        key = _key(topic, descriptor.start_offset)
        entry = await self._metadata.get(key)
        if entry is not None and _decode(key, entry.value).segment_id == descriptor.segment_id:
            await self._metadata.delete(key, expected_version=entry.version)

    async def begin_deletion(self, topic: TopicName, topic_id: int) -> None:
        """Say that the topic is to be deleted, so that an interrupted deletion is finished later."""
        await self._metadata.put(f"{self._deletions}/{topic_id}", str(topic).encode())

    async def end_deletion(self, topic_id: int) -> None:
        await self._metadata.delete(f"{self._deletions}/{topic_id}")

    async def deletions(self) -> dict[int, TopicName]:
        """Topics of this broker whose deletion was begun and not finished, by id."""
        return {
            int(entry.key.rpartition("/")[2]): TopicName.parse(entry.value.decode())
            for entry in await self._metadata.list(self._deletions)
        }


def _prefix(topic: TopicName) -> str:
    return f"/storage/topics/{topic.namespace}/{topic.topic}/segments"


def _key(topic: TopicName, start_offset: int) -> str:
    # Twenty digits hold every 64-bit number, so text order is offset order.
    return f"{_prefix(topic)}/{start_offset:020}"


def _decode(key: str, value: bytes) -> SegmentDescriptor:
    try:
        return msgspec.json.decode(value, type=SegmentDescriptor)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{key} does not hold a segment descriptor: {error}", ErrorCode.METADATA_CORRUPT
        ) from error
