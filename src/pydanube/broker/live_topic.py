"""A non-reliable topic: memory only, no offsets, no acks; what nobody can take now is gone."""

from pydanube.broker.batches import batch_rows
from pydanube.broker.facts import StoredSubscription, StoredTopic
from pydanube.broker.live_subscription import LiveSubscription
from pydanube.broker.sessions import Producer
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import PublishDone, Topic
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.kernel.policies import DispatchStrategy, Policies, SubscriptionType
from pydanube.kernel.positions import Position, PositionKind
from pydanube.protocol.messages import routing_key
from pydanube.protocol.native.bodies import NO_OFFSET


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
        """Offer the messages to every subscription, then answer: also when nobody took them."""
        if self._live:
            now = self._clock.monotonic_ms()
            if count == 1 and body[0] != 0:
                self._offer_row(body, now_ms, now)
            else:
                self._offer_batch(body, count, now_ms, now)
        self._count_in(count, len(body))
        done(None)
        return NO_OFFSET

    def _offer_row(self, body: bytes, append_ms: int, now_ms: int) -> None:
        key: bytes | None = None
        for subscription in self._live:
            if key is None and subscription.needs_key:
                key = routing_key(body)
            subscription.deliver(body, 1, key or b"", append_ms, now_ms)

    def _offer_batch(self, body: bytes, count: int, append_ms: int, now_ms: int) -> None:
        """Whole to those who can take it whole, one by one to those who choose by key or know rows only."""
        rows: list[bytes] | None = None
        for subscription in self._live:
            if not subscription.takes_rows_only:
                subscription.deliver(body, count, b"", append_ms, now_ms)
                continue
            if rows is None:
                rows = batch_rows(body, self.text, 0, count)
            for row in rows:
                key = routing_key(row) if subscription.needs_key else b""
                subscription.deliver(row, 1, key, append_ms, now_ms)

    async def find(self, position: Position) -> int:
        if position.kind in (PositionKind.CURSOR, PositionKind.LATEST):
            return 0
        raise Rejected(
            f"topic {self.text} is non-reliable and keeps nothing: only its present end can be a start, not "
            f"{position.kind.name.lower()}"
        )

    def new_subscription(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription, next_offset: int | None = None
    ) -> Subscription:
        subscription = LiveSubscription(name, kind, self.name)
        self.subscriptions[name] = subscription
        self._live.append(subscription)
        return subscription

    def remove_subscription(self, subscription: Subscription) -> None:
        assert isinstance(subscription, LiveSubscription)
        self._live.remove(subscription)
        del self.subscriptions[subscription.name]

    def idle_subscriptions(self, now_ms: int) -> list[LiveSubscription]:
        """Those whose messages have found no consumer for too long."""
        if self._is_deleted:
            return []
        return [subscription for subscription in self._live if subscription.machine.is_removable(now_ms)]
