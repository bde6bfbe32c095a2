"""What a journal file begins with: the state of every topic, so that older files can go."""

from typing import NamedTuple

from pydanube.segments.entry import HEADER_BYTES, encode_cursor, encode_topic_state

_NAME_BYTES_PER_CHARACTER_MAX = 4


class TopicFacts(NamedTuple):
    topic_id: int
    epoch: int
    start_offset: int
    next_offset: int
    cursors: dict[str, int]


class Snapshot:
    """Copied quickly in the loop thread, encoded in the writer thread."""

    def __init__(self, topics: list[TopicFacts]) -> None:
        self._topics = topics

    @property
    def bytes_max(self) -> int:
        return sum(
            2 * HEADER_BYTES
            + sum(HEADER_BYTES + _NAME_BYTES_PER_CHARACTER_MAX * len(name) for name in topic.cursors)
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
        return entries
