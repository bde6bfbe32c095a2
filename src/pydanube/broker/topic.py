"""What reliable and non-reliable topics have in common: a name, limits, producers, subscriptions, counters."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator

import structlog

from pydanube.broker.facts import ProducerFacts, StoredSubscription, TopicFacts
from pydanube.broker.schema_validation import SchemaJudge
from pydanube.broker.sessions import Consumer, Producer
from pydanube.broker.subscription import Subscription
from pydanube.kernel.distribution import Distribution
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import DispatchStrategy, Policies, SubscriptionType
from pydanube.kernel.positions import Position
from pydanube.schemas.topic_schemas import TopicSchema

log = structlog.get_logger("pydanube.broker")

PublishDone = Callable[[DanubeError | None], None]
"""Called once when a publish is durable, or with the reason why it was not taken."""


class Topic(ABC):
    """One topic served by this broker."""

    dispatch: DispatchStrategy

    def __init__(self, name: TopicName, facts: TopicFacts, policies: Policies) -> None:
        self.name = name
        self.text = str(name)
        self.wire_name = self.text.encode()
        self.facts = facts
        self.policies = policies
        """Read only: change them by `set_policies`."""
        self.has_own_policies = False
        """Whether they are its own, not its namespace's."""
        self.schema = TopicSchema()
        """Read only: `SchemaControl` changes it."""
        self.judge: SchemaJudge | None = None
        """Of the schemas of its messages."""
        self.active_judge: SchemaJudge | None = None
        """The same; None while it would take every message unseen."""
        self.producers: dict[str, Producer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.changing = asyncio.Lock()
        """Held while producers or subscriptions are added: a change is decided, stored, then made."""
        self.messages_in = 0
        self.bytes_in = 0
        self.message_sizes = Distribution()
        self.send_latency_us = Distribution()
        self.refused: Counter[str] = Counter()
        """Publishes that were not taken, by the name of their status."""
        self._draining = False
        self._is_deleted = False
        self._publish_rate = RateNote(policies.max_publish_rate)

    @abstractmethod
    def publish(  # noqa: PLR0917
        self,
        body: bytes,
        count: int,
        producer: Producer,
        sequence: int,
        is_timed: bool,
        now_ms: int,
        done: PublishDone,
    ) -> int:
        """Take one checked entry body of `count` messages and return its first offset, NO_OFFSET if it gets none.

        `done` is called when the messages are as safe as the topic promises. `sequence` is that of the first
        message of an idempotent producer, 0 for others.
        """

    @abstractmethod
    async def find(self, position: Position) -> int:
        """The offset a position means now."""

    @abstractmethod
    def new_subscription(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription, next_offset: int | None
    ) -> Subscription:
        """Make a subscription that starts at `next_offset`, or at the present end of the topic."""

    def last_sequence(self, producer_id: int) -> int:
        """The highest sequence the topic has of an idempotent producer; 0 if there is none."""
        return 0

    async def settle(self) -> None:  # noqa: B027
        """Wait until everything published so far is safe, or is known not to have been taken."""

    def forget_producer(self, producer_id: int) -> None:  # noqa: B027
        """The producer is not known any more: nor need be what it has sent."""

    @abstractmethod
    def remove_subscription(self, subscription: Subscription) -> None: ...

    def admit(self, payload_bytes: int, count: int, now_ms: int) -> None:
        """Refuse what the topic's state or limits do not allow, before anything is taken.

        `payload_bytes` is the size of the largest payload.
        """
        if self._draining:
            self.check_exists()
            raise Unavailable(
                f"topic {self.text} is being closed here: look it up again", ErrorCode.TOPIC_DRAINING
            )
        limit = self.policies.max_message_size
        if limit and payload_bytes > limit:
            raise Rejected(
                f"payload of {payload_bytes} bytes exceeds max_message_size {limit} of topic {self.text}",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        if self._publish_rate.limit and self._publish_rate.exceeded(count, now_ms):
            log.warning("publish rate exceeded", topic=self.text, max_publish_rate=self._publish_rate.limit)

    def _count_in(self, count: int, size: int) -> None:
        self.messages_in += count
        self.bytes_in += size
        if count == 1:
            self.message_sizes.record(size)
        else:
            self.message_sizes.record_many(size // count, count)

    def add_producer(self, facts: ProducerFacts, now_ms: int) -> Producer:
        producer = Producer(facts, self, now_ms)
        self.producers[producer.name] = producer
        return producer

    def check_new_producer(self, *, exclusive: bool, now_ms: int) -> None:
        """Whether one more producer name may join."""
        live = [producer for producer in self.producers.values() if producer.is_live(now_ms)]
        holder = next(
            (producer for producer in live if producer.exclusive), live[0] if exclusive and live else None
        )
        if holder is not None:
            raise Conflict(
                f"topic {self.text} cannot be shared with producer {holder.name!r}: one of the two asked for exclusive "
                "access",
                ErrorCode.PRODUCER_EXCLUSIVE,
            )
        limit = self.policies.max_producers_per_topic
        if limit and len(live) >= limit:
            raise Rejected(
                f"topic {self.text} has {len(live)} live producers, max_producers_per_topic is {limit}",
                ErrorCode.PRODUCERS_EXHAUSTED,
            )

    def check_new_subscription(self) -> None:
        limit = self.policies.max_subscriptions_per_topic
        if limit and len(self.subscriptions) >= limit:
            raise Rejected(
                f"topic {self.text} has {len(self.subscriptions)} subscriptions, max_subscriptions_per_topic is {limit}",
                ErrorCode.SUBSCRIPTIONS_EXHAUSTED,
            )

    def check_new_consumer(self, subscription: Subscription | None, now_ms: int) -> None:
        """Whether one more consumer name may join the subscription (None: one still to be made)."""
        live = sum(consumer.holds_place(now_ms) for consumer in self.consumers())
        limit = self.policies.max_consumers_per_topic
        if limit and live >= limit:
            raise Rejected(
                f"topic {self.text} has {live} live consumers, max_consumers_per_topic is {limit}",
                ErrorCode.CONSUMERS_EXHAUSTED,
            )
        if subscription is None:
            return
        here = [consumer for consumer in subscription.consumers.values() if consumer.holds_place(now_ms)]
        limit = self.policies.max_consumers_per_subscription
        if limit and len(here) >= limit:
            raise Rejected(
                f"subscription {subscription.name!r} of {self.text} has {len(here)} live consumers, "
                f"max_consumers_per_subscription is {limit}",
                ErrorCode.SUBSCRIPTION_FULL,
            )
        if here and subscription.kind is SubscriptionType.EXCLUSIVE:
            raise Conflict(
                f"permission denied: exclusive subscription {subscription.name!r} of {self.text} is held by consumer "
                f"{here[0].name!r}",
                ErrorCode.CONSUMER_EXCLUSIVE,
            )

    def consumers(self) -> Iterator[Consumer]:
        for subscription in self.subscriptions.values():
            yield from subscription.consumers.values()

    def set_policies(self, policies: Policies) -> None:
        """Have other limits from now on; who is there already stays."""
        self.policies = policies
        if policies.max_publish_rate != self._publish_rate.limit:
            self._publish_rate = RateNote(policies.max_publish_rate)

    def drain(self) -> None:
        """Refuse further publishes; what is being written is still answered."""
        self._draining = True

    def mark_deleted(self) -> None:
        """Refuse everything from now on."""
        self._is_deleted = True
        self._draining = True

    async def discard(self) -> None:  # noqa: B027
        """Delete what the topic has stored. A deletion cut short is finished at the next start."""

    def check_exists(self) -> None:
        """Whoever waited for `changing` may find that the topic was deleted meanwhile."""
        if self._is_deleted:
            raise self.deleted()

    def deleted(self) -> Rejected:
        return Rejected(f"topic {self.text} was deleted", ErrorCode.TOPIC_UNKNOWN)


class RateNote:
    """A token bucket that only tells: a publish rate is watched, never enforced."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._tokens = float(limit)
        self._filled_ms = 0
        self._noted_ms = -10_000

    def exceeded(self, count: int, now_ms: int) -> bool:
        """Count messages; say so at most every ten seconds when the rate is over the limit."""
        self._tokens = min(self.limit, self._tokens + (now_ms - self._filled_ms) * self.limit / 1_000)
        self._filled_ms = now_ms
        if self._tokens >= count:
            self._tokens -= count
            return False
        if now_ms - self._noted_ms < 10_000:
            return False
        self._noted_ms = now_ms
        return True
