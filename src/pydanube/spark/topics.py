"""From what a user names to the topics, and partitions of topics, that hold its messages."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import TopicName

if TYPE_CHECKING:
    from pydanube.client import blocking
    from pydanube.client.history import TopicStorage

TOPICS_MAX = 10_000
"""That one query may read, partitions counted each."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPart:
    """A topic without partitions, or one partition: what has offsets of its own."""

    topic: str
    """As the user knows it."""
    partition: int
    name: str
    """As the broker knows it."""

    @classmethod
    def of_name(cls, name: str) -> "TopicPart":
        parsed = TopicName.parse(name)
        base = parsed.partition_of
        return cls(str(base or parsed), parsed.partition_number or 0, name)


def resolve(client: "blocking.Client", topics: Sequence[str]) -> list[TopicPart]:
    """The parts of these topics, in order; each topic must exist.

    Raises:
        Rejected: a topic does not exist, or stores no messages.
    """
    by_namespace = _by_namespace(client, {TopicName.parse(topic).namespace for topic in topics})
    parts: set[TopicPart] = set()
    for topic in topics:
        name = TopicName.parse(topic)
        known = by_namespace[name.namespace]
        found = [part for part in known if topic in (part.topic, part.name)]
        if not found:
            raise Rejected(
                f"topic {topic} does not exist, or stores no messages (non-reliable dispatch): "
                "`danube topics list` shows those there are",
                ErrorCode.TOPIC_UNKNOWN,
            )
        parts.update(found)
    return _bounded(parts)


def matching(client: "blocking.Client", pattern: str) -> list[TopicPart]:
    """The parts of all topics whose whole name matches a regular expression, such as `/default/orders-.*`; maybe none."""
    head = re.match(r"/([\w-]+)/", pattern)
    if head is None:
        raise Rejected(
            f"invalid topic pattern {pattern!r}: begin it with the namespace, e.g. /default/orders-.*"
        )
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise Rejected(f"invalid topic pattern {pattern!r}: {error}") from error
    known = _by_namespace(client, {head[1]})[head[1]]
    return _bounded(part for part in known if expression.fullmatch(part.topic))


def storage_of(client: "blocking.Client", parts: Iterable[TopicPart]) -> "dict[str, TopicStorage]":
    """How far the messages of each part reach, by its name."""
    return {part.name: client.history.storage(part.name) for part in parts}


def _by_namespace(client: "blocking.Client", namespaces: Iterable[str]) -> Mapping[str, list[TopicPart]]:
    return {
        namespace: [TopicPart.of_name(name) for name in client.history.topics(namespace)]
        for namespace in namespaces
    }


def _bounded(parts: Iterable[TopicPart]) -> list[TopicPart]:
    found = sorted(parts)
    if len(found) > TOPICS_MAX:
        raise Rejected(f"{len(found)} topics and partitions, {TOPICS_MAX} at most can be read at once")
    return found
