"""Publishes that wait until their schema is loaded: what is left to do with them then."""

from collections.abc import Callable
from typing import NamedTuple

from pydanube.broker.schema_validation import HeldPublish
from pydanube.broker.sessions import Producer
from pydanube.broker.topic import PublishDone
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError
from pydanube.protocol.native.named_schemas import NamedPayloads


class Entry(NamedTuple):
    """One entry body, with what was found out about it when it came."""

    producer: Producer
    epoch: int
    sequence: int
    body: bytes
    messages: int
    payload_bytes: int
    is_timed: bool


class HeldRow(HeldPublish):
    """A publish of `Broker.publish`; who waits for `done` counts what becomes of it."""

    def __init__(self, entry: Entry, named: NamedPayloads, clock: Clock, done: PublishDone) -> None:
        super().__init__(entry.producer.id, named, len(entry.body))
        self._entry = entry
        self._clock = clock
        self._done = done

    def take(self) -> None:
        _publish(self._entry, self._clock.now_ms(), self._done)

    def refuse(self, error: DanubeError) -> None:
        self._done(error)


class HeldEntry(HeldPublish):
    """A publish of `Broker.publish_entry`."""

    def __init__(
        self,
        entry: Entry,
        named: NamedPayloads,
        clock: Clock,
        taken: Callable[[int, int], None],
        done: PublishDone,
    ) -> None:
        super().__init__(entry.producer.id, named, len(entry.body))
        self._entry = entry
        self._clock = clock
        self._taken = taken
        self._done = done

    def take(self) -> None:
        self._taken(_publish(self._entry, self._clock.now_ms(), self._done), self._entry.messages)

    def refuse(self, error: DanubeError) -> None:
        self._entry.producer.topic.refused[error.status.name] += 1
        self._done(error)


def _publish(entry: Entry, now_ms: int, done: PublishDone) -> int:
    """Much may have happened since the entry came: a newer session, the end of the topic."""
    producer, topic = entry.producer, entry.producer.topic
    producer.check_session(entry.epoch, entry.sequence)
    topic.admit(entry.payload_bytes, entry.messages, now_ms)
    offset = topic.publish(entry.body, entry.messages, producer, entry.sequence, entry.is_timed, now_ms, done)
    producer.sent += entry.messages
    return offset
