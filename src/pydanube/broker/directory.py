"""Which topics this broker serves, by name and as the wire spells it, and which are partitions of what."""

from collections.abc import Iterator

from pydanube.broker.topic import Topic
from pydanube.kernel.errors import Conflict, ErrorCode
from pydanube.kernel.names import TopicName


class TopicDirectory:
    """Names are compared whole: `/default/foo` has nothing to do with `/default/foobar`."""

    def __init__(self) -> None:
        self._by_name: dict[TopicName, Topic] = {}
        self._by_wire_name: dict[bytes, Topic] = {}
        self._partitions: dict[TopicName, dict[int, TopicName]] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def get_wire(self, wire_name: bytes) -> Topic | None:
        """The topic by the bytes a message carries: no decoding on the hot path."""
        return self._by_wire_name.get(wire_name)

    def add(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_wire_name[topic.wire_name] = topic
        base, number = topic.name.partition_of, topic.name.partition_number
        if base is not None and number is not None:
            self._partitions.setdefault(base, {})[number] = topic.name

    def remove(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_wire_name[topic.wire_name]
        base, number = topic.name.partition_of, topic.name.partition_number
        if base is not None and number is not None:
            del self._partitions[base][number]

    def partitions(self, base: TopicName) -> list[TopicName]:
        """The topic itself if it exists, else its partitions in numeric order, else nothing."""
        if base in self._by_name:
            return [base]
        numbered = self._partitions.get(base, {})
        return [numbered[number] for number in sorted(numbered)]

    def check_new(self, name: TopicName) -> None:
        """A plain topic and partitions of it cannot exist together."""
        base = name.partition_of
        if base is not None and base in self._by_name:
            raise Conflict(
                f"cannot create partition {name}: {base} already exists as a topic without partitions",
                ErrorCode.TOPIC_CONFLICT,
            )
        if self._partitions.get(name):
            raise Conflict(
                f"cannot create {name}: it already exists as a topic of {len(self._partitions[name])} partitions",
                ErrorCode.TOPIC_CONFLICT,
            )
