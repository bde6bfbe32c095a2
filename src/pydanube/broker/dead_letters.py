"""Copies of messages that failed too often, published to the topic their subscription names."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from pydanube.broker.facts import ProducerFacts
from pydanube.broker.sessions import Producer
from pydanube.broker.topic import Topic
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.policies import PoisonPolicy
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage

log = structlog.get_logger("pydanube.broker")

PRODUCER_NAME = "danube-dead-letters"
REASON_CHARACTERS_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message some subscription gave up on."""

    target: str
    topic: str
    subscription: str
    offset: int
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
        def published(error: DanubeError | None) -> None:
            if error is not None:
                log.warning("dead letter not published", target=letter.target, error=error.text)
            done(error is None)

        try:
            topic = await self._find_or_create(letter.target)
            producer = self._producer(topic)
            now = self._clock.now_ms()
            topic.publish(self._copy(letter, topic, producer, now), producer, now, published)
        except DanubeError as error:
            published(error)

    def _producer(self, topic: Topic) -> Producer:
        producer = self._producers.get(topic.text)
        if producer is None or producer.topic is not topic:
            producer = Producer(ProducerFacts(id=self._dice.new_id(), name=PRODUCER_NAME), topic, 0)
            self._producers[topic.text] = producer
        return producer

    def _copy(self, letter: DeadLetter, topic: Topic, producer: Producer, now_ms: int) -> bytes:
        copy = StreamMessage.FromString(letter.message)
        copy.attributes.update(
            {
                "x-original-topic": letter.topic,
                "x-original-subscription": letter.subscription,
                "x-original-topic-offset": str(letter.offset),
                "x-original-producer-id": str(copy.msg_id.producer_id),
                "x-original-broker-addr": copy.msg_id.broker_addr,
                "x-poison-policy": PoisonPolicy.DEAD_LETTER.value,
                "x-delivery-attempt": str(letter.attempts),
            }
        )
        if letter.reason is not None:
            copy.attributes["x-failure-reason"] = letter.reason[:REASON_CHARACTERS_MAX]
        copy.msg_id.CopyFrom(MsgID(producer_id=producer.id, topic_name=topic.text))
        copy.producer_name = PRODUCER_NAME
        copy.publish_time = now_ms
        return copy.SerializeToString()
