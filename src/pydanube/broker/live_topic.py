"""A non-reliable topic: memory only, no offsets, no acks; what nobody can take now is gone."""

from pydanube.broker.facts import StoredSubscription, StoredTopic
from pydanube.broker.live_subscription import LiveSubscription
from pydanube.broker.sessions import Producer
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import PublishDone, Topic
from pydanube.kernel.clock import Clock
from pydanube.kernel.policies import DispatchStrategy, Policies, SubscriptionType
from pydanube.protocol.messages import routing_key


class LiveTopic(Topic):
    dispatch = DispatchStrategy.NON_RELIABLE

    def __init__(self, stored: StoredTopic, policies: Policies, clock: Clock) -> None:
        assert stored.facts is not None
        super().__init__(stored.name, stored.facts, policies)
        self._clock = clock
        self._live: list[LiveSubscription] = []
        for held in stored.subscriptions.values():
            if held.facts is not None:
                subscription = self.new_subscription(held.facts.name, held.facts.type, held)
                subscription.restore(held.facts.consumers, clock.monotonic_ms())

    def publish(self, body: bytes, producer: Producer, now_ms: int, done: PublishDone) -> None:
        """Offer the message to every subscription, then answer: also when nobody took it."""
        if self._live:
            now = self._clock.monotonic_ms()
            key: bytes | None = None
            for subscription in self._live:
                if key is None and subscription.needs_key:
                    key = routing_key(body)
                subscription.deliver(body, key or b"", now)
        self.messages_in += 1
        self.bytes_in += len(body)
        self.message_sizes.record(len(body))
        done(None)

    def new_subscription(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription
    ) -> Subscription:
        subscription = LiveSubscription(name, kind)
        self.subscriptions[name] = subscription
        self._live.append(subscription)
        return subscription

    def remove_subscription(self, subscription: Subscription) -> None:
        assert isinstance(subscription, LiveSubscription)
        self._live.remove(subscription)
        del self.subscriptions[subscription.name]

    def idle_subscriptions(self, now_ms: int) -> list[LiveSubscription]:
        """Those whose messages have found no consumer for too long."""
        return [subscription for subscription in self._live if subscription.machine.is_removable(now_ms)]
