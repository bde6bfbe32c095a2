"""Topic names: `/{namespace}/{topic}`, and partitions of one as `{base}-part-{n}`."""

import re
from dataclasses import dataclass

from pydanube.kernel.errors import ErrorCode, Rejected

NAME_CHARACTERS_MAX = 255
"""Longest topic, subscription, producer or consumer name accepted."""

NAMESPACE_CHARACTERS_MAX = 128
"""Longest namespace that can be made: its topics have names too."""

_TOPIC = re.compile(r"/([\w-]+)/([\w-]+)")
_NAMESPACE = re.compile(r"[\w-]+")
_PARTITION = re.compile(r"(.+)-part-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A checked topic name; `str()` gives the full form with the leading slash."""

    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.topic}"

    @classmethod
    def parse(cls, text: str) -> "TopicName":
        """Take a name apart, or say what is wrong with it."""
        match = _TOPIC.fullmatch(text)
        if match is None or len(text) > NAME_CHARACTERS_MAX:
            raise Rejected(
                f"invalid topic name {text[:NAME_CHARACTERS_MAX]!r}: expected /namespace/topic, each part made of "
                f"letters, digits, '_' and '-', {NAME_CHARACTERS_MAX} characters at most",
                ErrorCode.TOPIC_NAME_INVALID,
            )
        return cls(match[1], match[2])

    @property
    def partition_of(self) -> "TopicName | None":
        """The base topic if this is a partition's name, else None."""
        match = _PARTITION.fullmatch(self.topic)
        return TopicName(self.namespace, match[1]) if match else None

    @property
    def partition_number(self) -> int | None:
        match = _PARTITION.fullmatch(self.topic)
        return int(match[2]) if match else None


def check_namespace(text: str) -> str:
    """Accept the name of a namespace: what may stand in front of a topic's."""
    if _NAMESPACE.fullmatch(text) is None or len(text) > NAMESPACE_CHARACTERS_MAX:
        raise Rejected(
            f"invalid namespace {text[:NAMESPACE_CHARACTERS_MAX]!r}: expected letters, digits, '_' and '-', "
            f"{NAMESPACE_CHARACTERS_MAX} characters at most"
        )
    return text


def check_name(text: str, *, what: str) -> str:
    """Accept a producer, consumer or subscription name: printable, not empty, bounded."""
    if not text or len(text) > NAME_CHARACTERS_MAX or not text.isprintable():
        raise Rejected(
            f"invalid {what} {text[:NAME_CHARACTERS_MAX]!r}: expected 1 to {NAME_CHARACTERS_MAX} printable characters"
        )
    return text
