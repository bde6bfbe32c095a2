"""What an operator may ask of subscriptions: their settings, moving them, deleting them."""

from dataclasses import dataclass

import structlog

from pydanube.broker import facts
from pydanube.broker.broker import Broker
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.facts import DispatchFacts
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.seeking import move_subscription
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import Topic
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import TopicName, check_name
from pydanube.kernel.policies import FailurePolicy
from pydanube.kernel.positions import LATEST, Position
from pydanube.metadata.store import Delete, MetadataStore

log = structlog.get_logger("pydanube.broker")

WINDOW_MAX = 10_000
"""Largest window an operator may set."""


@dataclass(frozen=True, slots=True)
class Moved:
    next_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class Purged:
    messages: int
    subscriptions: int


class SubscriptionControl:
    def __init__(self, broker: Broker, store: MetadataStore, clock: Clock) -> None:
        self._broker = broker
        self._store = store
        self._clock = clock

    def get(self, topic: Topic, name: str) -> Subscription:
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            raise Rejected(f"topic {topic.text} has no subscription {name!r}", ErrorCode.SUBSCRIPTION_UNKNOWN)
        return subscription

    @unbroken
    async def unsubscribe(self, topic: Topic, name: str) -> None:
        """Forget a subscription nobody listens to: what it has not consumed, its cursor, its settings."""
        async with topic.changing:
            topic.check_exists()
            subscription = self.get(topic, name)
            now = self._clock.monotonic_ms()
            active = [each.name for each in subscription.consumers.values() if each.is_active(now)]
            if active:
                raise Conflict(
                    f"subscription {name!r} of {topic.text} has connected consumers: close {', '.join(active[:5])} "
                    "first",
                    ErrorCode.SUBSCRIPTION_IN_USE,
                )
            keys = (facts.subscription_key, facts.failure_policy_key, facts.dispatch_key)
            await self._store.transact([], [Delete(key(topic.name, name)) for key in keys])
            for consumer in list(subscription.consumers.values()):
                self._broker.remove_consumer(consumer)
            topic.remove_subscription(subscription)
        log.info("subscription deleted", topic=topic.text, subscription=name)

    # Settings. They may be stored before the subscription they are for exists.

    @unbroken
    async def set_failure_policy(self, topic_name: TopicName, name: str, policy: FailurePolicy) -> None:
        check_name(name, what="subscription name")
        topic = self._broker.topics.get(topic_name)
        if not isinstance(topic, ReliableTopic):
            raise Conflict(
                f"topic {topic_name} is no reliable topic of this broker: only those deliver again what failed",
                ErrorCode.DISPATCH_MISMATCH,
            )
        async with topic.changing:
            topic.check_exists()
            await self._store.put(facts.failure_policy_key(topic_name, name), facts.encode(policy))
            subscription = topic.subscriptions.get(name)
            if isinstance(subscription, DurableSubscription):
                subscription.set_failure_policy(policy)
        log.info("failure policy changed", topic=topic.text, subscription=name)

    async def failure_policy(self, topic_name: TopicName, name: str) -> FailurePolicy | None:
        """The one in force, or the one stored for a subscription to come."""
        topic = self._broker.topics.get(topic_name)
        subscription = None if topic is None else topic.subscriptions.get(name)
        if isinstance(subscription, DurableSubscription):
            return subscription.failure_policy
        entry = await self._store.get(facts.failure_policy_key(topic_name, name))
        return None if entry is None else facts.decode(entry, FailurePolicy)

    @unbroken
    async def set_window(self, topic_name: TopicName, name: str, max_unacked_messages: int) -> None:
        """How many messages may be unacknowledged at a time, instead of the broker's default."""
        check_name(name, what="subscription name")
        if not 1 <= max_unacked_messages <= WINDOW_MAX:
            raise Rejected(f"max_unacked_messages is {max_unacked_messages}: expected 1 to {WINDOW_MAX}")
        record = DispatchFacts(max_unacked_messages=max_unacked_messages)
        key = facts.dispatch_key(topic_name, name)
        topic = self._broker.topics.get(topic_name)
        if topic is None:
            await self._store.put(key, facts.encode(record))
            return
        async with topic.changing:
            topic.check_exists()
            await self._store.put(key, facts.encode(record))
            subscription = topic.subscriptions.get(name)
            if isinstance(subscription, DurableSubscription):
                subscription.set_window(max_unacked_messages)
        log.info("dispatch window changed", topic=topic.text, subscription=name, window=max_unacked_messages)

    async def window(self, topic_name: TopicName, name: str) -> int | None:
        """What was set; None while the broker's default is in force."""
        entry = await self._store.get(facts.dispatch_key(topic_name, name))
        return None if entry is None else facts.decode(entry, DispatchFacts).max_unacked_messages

    # Moving.

    @unbroken
    async def move(self, topic: Topic, name: str, position: Position) -> Moved:
        async with topic.changing:
            topic.check_exists()
            subscription = self.get(topic, name)
            next_offset = await move_subscription(topic, subscription, position, self._store)
        log.info("cursor reset", topic=topic.text, subscription=name, next_offset=next_offset)
        return Moved(next_offset, subscription.lag if isinstance(subscription, DurableSubscription) else 0)

    @unbroken
    async def purge(self, topic: Topic, name: str | None) -> Purged:
        """Skip everything that is not consumed: of one subscription, or of all."""
        async with topic.changing:
            topic.check_exists()
            chosen = [self.get(topic, name)] if name else list(topic.subscriptions.values())
            skipped = 0
            for subscription in chosen:
                before = subscription.next_offset
                skipped += await move_subscription(topic, subscription, LATEST, self._store) - before
        log.info("backlog purged", topic=topic.text, subscription=name or "", skipped=skipped)
        return Purged(skipped, len(chosen))
