"""A topic whose messages are journaled before they are acknowledged, and kept until retention lets them go."""

from pydanube.broker.agenda import Agenda
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.facts import StoredSubscription, StoredTopic
from pydanube.broker.sessions import Producer
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import PublishDone, Topic
from pydanube.kernel.clock import Clock
from pydanube.kernel.policies import DispatchStrategy, Policies, Retention, SubscriptionType
from pydanube.log.topic_log import TopicLog


class ReliableTopic(Topic):
    dispatch = DispatchStrategy.RELIABLE

    def __init__(
        self,
        stored: StoredTopic,
        policies: Policies,
        *,
        topic_log: TopicLog,
        max_unacked_messages: int,
        agenda: Agenda,
        clock: Clock,
        dead_letters: DeadLetters,
    ) -> None:
        assert stored.facts is not None
        super().__init__(stored.name, stored.facts, policies)
        self.log = topic_log
        self.commits = 0
        self._max_unacked_messages = max_unacked_messages
        self._agenda = agenda
        self._clock = clock
        self._dead_letters = dead_letters
        self.durable: list[DurableSubscription] = []
        topic_log.on_committed = self._committed
        for held in stored.subscriptions.values():
            if held.facts is not None:
                subscription = self._open(
                    held.facts.name, held.facts.type, held, initial_cursor=held.facts.initial_cursor
                )
                subscription.restore(held.facts.consumers, clock.monotonic_ms())

    def publish(self, body: bytes, producer: Producer, now_ms: int, done: PublishDone) -> None:
        self.log.append(body, producer_id=producer.id, append_ms=now_ms, done=done)
        self.messages_in += 1
        self.bytes_in += len(body)
        self.message_sizes.record(len(body))

    def new_subscription(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription
    ) -> Subscription:
        # Messages on their way to the disk belong to those who subscribed before: start behind what is safe.
        return self._open(name, kind, settings, initial_cursor=self.log.committed_end - 1)

    def remove_subscription(self, subscription: Subscription) -> None:
        assert isinstance(subscription, DurableSubscription)
        subscription.close()
        self.durable.remove(subscription)
        del self.subscriptions[subscription.name]
        self.log.drop_cursor(subscription.name)

    async def apply_retention(self, retention: Retention, now_ms: int) -> None:
        """Delete the sealed history that policy and subscriptions let go."""
        unconsumed = min((subscription.cursor + 1 for subscription in self.durable), default=None)
        await self.log.retain(retention, unconsumed_from=unconsumed, now_ms=now_ms)

    def close(self) -> None:
        for subscription in self.durable:
            subscription.close()

    def _committed(self) -> None:
        self.commits += 1
        for subscription in self.durable:
            self._agenda.add(subscription)

    def _open(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription, *, initial_cursor: int
    ) -> DurableSubscription:
        subscription = DurableSubscription(
            name,
            kind,
            topic=self.text,
            topic_log=self.log,
            initial_cursor=initial_cursor,
            failure_policy=settings.failure_policy,
            max_unacked_messages=settings.max_unacked_messages or self._max_unacked_messages,
            dispatch_rate=self.policies.max_subscription_dispatch_rate,
            agenda=self._agenda,
            clock=self._clock,
            dead_letters=self._dead_letters,
        )
        self.subscriptions[name] = subscription
        self.durable.append(subscription)
        return subscription
