"""What the metadata store remembers of runs and segments, and under which keys."""

from typing import Generic, TypeVar

import msgspec

from pydanube.entries.run_file import RunDescriptor
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.metadata import MetadataStore, Put

D = TypeVar("D", bound=RunDescriptor | SegmentDescriptor)


class Shelf(Generic[D]):
    """Descriptors of one kind, one key each in the order of their offsets."""

    def __init__(self, metadata: MetadataStore, name: str, kind: type[D]) -> None:
        self._metadata = metadata
        self._name = name
        self._kind = kind

    async def list(self, topic: TopicName) -> list[D]:
        """Those of the topic, oldest first; those of an earlier topic of that name included."""
        return [
            self._decode(entry.key, entry.value) for entry in await self._metadata.list(self._path(topic))
        ]

    async def add(self, topic: TopicName, descriptor: D) -> None:
        """Make it known. Repeating it changes nothing."""
        await self._metadata.put(self._key(topic, descriptor), msgspec.json.encode(descriptor))

    async def remove(self, topic: TopicName, descriptor: D) -> None:
        """Forget it, unless the key speaks of another one by now."""
        key = self._key(topic, descriptor)
        while (entry := await self._metadata.get(key)) is not None:
            if self._decode(key, entry.value) != descriptor:
                return
            try:
                await self._metadata.delete(key, expected_version=entry.version)
            except Conflict:
                # Somebody changed it meanwhile, perhaps to the same end: look again.
                continue
            return

    def _path(self, topic: TopicName) -> str:
        return f"/storage/topics/{topic.namespace}/{topic.topic}/{self._name}"

    def _key(self, topic: TopicName, descriptor: D) -> str:
        # Twenty digits hold every 64-bit number, so text order is offset order.
        return f"{self._path(topic)}/{descriptor.start_offset:020}"

    def _decode(self, key: str, value: bytes) -> D:
        try:
            return msgspec.json.decode(value, type=self._kind)
        except msgspec.DecodeError as error:
            raise Corrupt(f"{key} does not hold a descriptor: {error}", ErrorCode.METADATA_CORRUPT) from error


class Catalogue:
    """Runs and segments of all topics, and deletions under way."""

    def __init__(self, metadata: MetadataStore, broker_id: str) -> None:
        self.runs = Shelf(metadata, "runs", RunDescriptor)
        self.segments = Shelf(metadata, "segments", SegmentDescriptor)
        self._metadata = metadata
        self._deletions = f"/storage/deletions/{broker_id}"

    async def begin_deletion(self, topic: TopicName, topic_id: int) -> None:
        """Say that the topic is to be deleted, so that an interrupted deletion is finished later."""
        mark = self.deletion(topic, topic_id)
        await self._metadata.put(mark.key, mark.value)

    def deletion(self, topic: TopicName, topic_id: int) -> Put:
        """What `begin_deletion` writes, for whoever has to write more with it at once."""
        return Put(f"{self._deletions}/{topic_id}", str(topic).encode())

    async def end_deletion(self, topic_id: int) -> None:
        await self._metadata.delete(f"{self._deletions}/{topic_id}")

    async def deletions(self) -> dict[int, TopicName]:
        """Topics of this broker whose deletion was begun and not finished, by id."""
        return {
            int(entry.key.rpartition("/")[2]): TopicName.parse(entry.value.decode())
            for entry in await self._metadata.list(self._deletions)
        }
