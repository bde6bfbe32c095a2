"""What the metadata store remembers of runs and segments, and under which keys."""

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

from pydanube.entries.run_file import RunDescriptor
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode
from pydanube.kernel.names import TopicName
from pydanube.metadata import ABSENT, Compare, Delete, MetadataStore, Put, Write

REPLACED_AT_ONCE_MAX: Final = 48
"""Segments that go, and that come, in one transaction: the metadata store bounds those."""

REPLACED_PATH: Final = "/storage/replaced"

D = TypeVar("D", bound=RunDescriptor | SegmentDescriptor)


class ReplacedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a segment that others took the place of: it stays a while for readers that were told of it."""

    topic: str
    topic_id: int
    segment_id: str
    remove_at_ms: int
    reason: str


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

    def put(self, topic: TopicName, descriptor: D) -> Put:
        """What `add` writes, for whoever has to write more with it at once."""
        return Put(self._key(topic, descriptor), msgspec.json.encode(descriptor))

    async def unchanged(self, topic: TopicName, descriptor: D) -> Compare:
        """Holds as long as the descriptor is what it is now.

        Raises:
            Conflict: it is another one already, or gone.
        """
        key = self._key(topic, descriptor)
        entry = await self._metadata.get(key)
        if entry is None or self._decode(key, entry.value) != descriptor:
            raise Conflict(
                f"{key} does not name {descriptor} any more: list the segments again",
                ErrorCode.VERSION_MISMATCH,
            )
        return Compare(key, entry.version)

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

    async def add_runs(self, runs: Sequence[tuple[TopicName, RunDescriptor]]) -> None:
        """Make runs of many topics known, all of them or none; as many as one transaction takes."""
        await self._metadata.transact([], [self.runs.put(topic, run) for topic, run in runs])

    async def replace(
        self,
        topic: TopicName,
        old: Sequence[SegmentDescriptor],
        new: Sequence[SegmentDescriptor],
        *,
        remove_at_ms: int,
        reason: str,
    ) -> None:
        """Name new segments instead of old ones, and their files as to be removed: all of it or nothing.

        Raises:
            Conflict: an old one is not there any more, or the topic is being deleted.
        """
        assert len(old) <= REPLACED_AT_ONCE_MAX, "more than one transaction takes"
        assert len(new) <= REPLACED_AT_ONCE_MAX, "more than one transaction takes"
        compares = [await self.segments.unchanged(topic, segment) for segment in old]
        writes: list[Write] = [self.segments.put(topic, segment) for segment in new]
        written = {write.key for write in writes}
        writes += [Delete(compare.key) for compare in compares if compare.key not in written]
        for segment in old:
            file = ReplacedFile(
                topic=str(topic),
                topic_id=segment.topic_id,
                segment_id=segment.segment_id,
                remove_at_ms=remove_at_ms,
                reason=reason,
            )
            writes.append(Put(_replaced_key(file.segment_id), msgspec.json.encode(file)))
        compares.append(Compare(self.deletion(topic, old[0].topic_id).key, ABSENT))
        await self._metadata.transact(compares, writes)

    async def replaced_files(self) -> list[ReplacedFile]:
        """Files that are to be removed, now or later."""
        return [
            msgspec.json.decode(entry.value, type=ReplacedFile)
            for entry in await self._metadata.list(REPLACED_PATH)
        ]

    async def forget_replaced(self, file: ReplacedFile) -> None:
        """The file is gone."""
        await self._metadata.delete(_replaced_key(file.segment_id))

    async def is_replaced(self, segment_id: str) -> bool:
        """Whether the file of that name is one of them."""
        return await self._metadata.get(_replaced_key(segment_id)) is not None

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


def _replaced_key(segment_id: str) -> str:
    return f"{REPLACED_PATH}/{segment_id}"
