"""Copies of messages that failed too often, published to the topic their subscription names."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from pydanube.broker.batches import batch_rows
from pydanube.broker.facts import ProducerFacts
from pydanube.broker.sessions import Producer
from pydanube.broker.topic import Topic
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.policies import PoisonPolicy
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native.timing import TIMING_ATTRIBUTES

log = structlog.get_logger("pydanube.broker")

PRODUCER_NAME = "danube-dead-letters"
REASON_CHARACTERS_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Messages some subscription gave up on: `count` of them from `offset` on, in an entry that begins at `base`."""

    target: str
    topic: str
    subscription: str
    offset: int
    count: int
    base: int
    message: bytes
    attempts: int
    reason: str | None


class DeadLetters:
    """Publishes dead letters with the dispatch strategy their topic has; makes a missing topic reliable."""

    def __init__(self, find_or_create: Callable[[str], Awaitable[Topic]], clock: Clock, dice: Dice) -> None:
        self._find_or_create = find_or_create
        self._clock = clock
        self._dice = dice
        self._producers: dict[str, Producer] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def send(self, letter: DeadLetter, done: Callable[[bool], None]) -> None:
        """Publish the copy in the background; `done` tells whether it is safe. Bounded by the senders' windows."""
        task = asyncio.get_running_loop().create_task(self._send(letter, done))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, letter: DeadLetter, done: Callable[[bool], None]) -> None:
        outcomes: list[bool] = []

        def published(error: DanubeError | None) -> None:
            if error is not None:
                log.warning("dead letter not published", target=letter.target, error=error.text)
            outcomes.append(error is None)
            if len(outcomes) == letter.count:
                done(all(outcomes))

        try:
            topic = await self._find_or_create(letter.target)
            producer = self._producer(topic)
            now = self._clock.now_ms()
            copies = self._copies(letter, producer, now)
        except DanubeError as error:
            log.warning("dead letter not published", target=letter.target, error=error.text)
            done(False)
            return
        for copy in copies:
            try:
                topic.publish(copy, 1, producer, 0, False, now, published)
            except DanubeError as error:
                published(error)

    def _producer(self, topic: Topic) -> Producer:
        producer = self._producers.get(topic.text)
        if producer is None or producer.topic is not topic:
            producer = Producer(ProducerFacts(id=self._dice.new_id(), name=PRODUCER_NAME), topic, 0)
            self._producers[topic.text] = producer
        return producer

    def _copies(self, letter: DeadLetter, producer: Producer, now_ms: int) -> list[bytes]:
        if letter.message[0] == 0:
            rows = batch_rows(letter.message, letter.topic, letter.offset - letter.base, letter.count)
        else:
            rows = [letter.message]
        return [
            _copy(row, letter, letter.offset + number, producer, now_ms) for number, row in enumerate(rows)
        ]


def _copy(row: bytes, letter: DeadLetter, offset: int, producer: Producer, now_ms: int) -> bytes:
    copy = StreamMessage.FromString(row)
    for name in TIMING_ATTRIBUTES:
        copy.attributes.pop(name, None)  # a copy neither waits nor expires
    copy.attributes.update(
        {
            "x-original-topic": letter.topic,
            "x-original-subscription": letter.subscription,
            "x-original-topic-offset": str(offset),
            "x-original-producer-id": str(copy.msg_id.producer_id),
            "x-original-broker-addr": copy.msg_id.broker_addr,
            "x-poison-policy": PoisonPolicy.DEAD_LETTER.value,
            "x-delivery-attempt": str(letter.attempts),
        }
    )
    if letter.reason is not None:
        copy.attributes["x-failure-reason"] = letter.reason[:REASON_CHARACTERS_MAX]
    copy.msg_id.CopyFrom(MsgID(producer_id=producer.id, topic_name=producer.topic.text))
    copy.producer_name = PRODUCER_NAME
    copy.publish_time = now_ms
    return copy.SerializeToString()
