"""What a journal file begins with: the whole state of every topic, so that older files can go."""

from typing import NamedTuple

from pydanube.entries.entry import (
    HEADER_BYTES,
    encode_cursor,
    encode_producer,
    encode_topic_state,
    producer_bytes,
)
from pydanube.log.producers import SentEntry

_NAME_BYTES_PER_CHARACTER_MAX = 4


class TopicFacts(NamedTuple):
    topic_id: int
    epoch: int
    start_offset: int
    next_offset: int
    cursors: dict[str, int]
    producers: list[tuple[int, tuple[SentEntry, ...]]]
    """Idempotent producers with their last entries, in the order of their last appends."""


class Snapshot:
    """Copied quickly in the loop thread, encoded in the writer thread."""

    def __init__(self, topics: list[TopicFacts]) -> None:
        self._topics = topics

    @property
    def bytes_max(self) -> int:
        return sum(
            2 * HEADER_BYTES
            + sum(HEADER_BYTES + _NAME_BYTES_PER_CHARACTER_MAX * len(name) for name in topic.cursors)
            + sum(producer_bytes(len(sent)) for _, sent in topic.producers)
            for topic in self._topics
        )

    def encode(self) -> list[bytes]:
        entries = []
        for topic in self._topics:
            entries.append(
                encode_topic_state(
                    topic.topic_id,
                    topic.epoch,
                    start_offset=topic.start_offset,
                    next_offset=topic.next_offset,
                )
            )
            entries += [
                encode_cursor(topic.topic_id, topic.epoch, name, offset)
                for name, offset in topic.cursors.items()
            ]
            entries += [
                encode_producer(topic.topic_id, topic.epoch, producer_id, sent)
                for producer_id, sent in topic.producers
            ]
        return entries
