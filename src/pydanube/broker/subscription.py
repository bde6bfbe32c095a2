"""A subscription as the broker sees it: registered consumers, their streams, what to do when they come and go.

Which consumer gets which message is decided by the machines of `dispatch`; the two kinds of driver are in
`durable_subscription.py` and `live_subscription.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydanube.broker.facts import ConsumerFacts, SubscriptionFacts
from pydanube.broker.sessions import Consumer, Outlet, Session
from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.kernel.names import NAME_CHARACTERS_MAX, TopicName
from pydanube.kernel.policies import SubscriptionType

KEY_FILTERS_MAX = 256
"""Key filters one consumer may have."""


class Subscription(ABC):
    """What both kinds share: the register of consumers and their sessions."""

    def __init__(
        self, name: str, kind: SubscriptionType, topic_name: TopicName, *, initial_cursor: int
    ) -> None:
        self.name = name
        self.topic_name = topic_name
        self.kind = kind
        self.initial_cursor = initial_cursor
        self.consumers: dict[str, Consumer] = {}
        self.messages_out = 0
        self.bytes_out = 0

    @property
    def facts(self) -> SubscriptionFacts:
        """What must survive a restart, so that consumers come back under the ids they know."""
        return SubscriptionFacts(
            name=self.name,
            type=self.kind,
            initial_cursor=self.initial_cursor,
            consumers=tuple(consumer.facts for consumer in self.consumers.values()),
        )

    def restore(self, consumers: Sequence[ConsumerFacts], now_ms: int) -> None:
        """Register the consumers known before a restart; whoever does not come back soon loses its place."""
        for facts in consumers:
            self.register(facts, now_ms).awaits_stream = False

    def register(self, facts: ConsumerFacts, now_ms: int) -> Consumer:
        """Add a consumer under a new name."""
        consumer = Consumer(facts, self, now_ms)
        self.consumers[consumer.name] = consumer
        self._joined(consumer)
        return consumer

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget a consumer for good; what it had not acknowledged goes to the others."""
        self.close_session(consumer, now_ms)
        del self.consumers[consumer.name]
        self._left(consumer)

    def renew(self, consumer: Consumer, key_filters: Sequence[str], now_ms: int) -> None:
        """The same name subscribed again: its old stream ends, its unacknowledged messages are due at once."""
        self.close_session(consumer, now_ms)
        consumer.awaits_stream = True
        consumer.idle_since_ms = now_ms
        if tuple(key_filters) != consumer.key_filters:
            consumer.key_filters = tuple(key_filters)
            # Joining again gives a registered consumer other filters; its place in the order stays.
            self._joined(consumer)

    def attach(self, consumer: Consumer, outlet: Outlet, now_ms: int) -> Session:
        """A stream was opened: it takes over from any earlier one."""
        earlier = consumer.session
        session = Session(consumer, outlet)
        # The machine hears of the new stream only, so that a takeover is no absence a standby would fill.
        self.attach_session(session, now_ms)
        if earlier is not None:
            earlier.outlet.end()
        return session

    def hold_session(self, consumer: Consumer, outlet: Outlet, now_ms: int) -> Session:
        """A stream was opened, but shall wait for `attach_session` before it gets anything."""
        self.close_session(consumer, now_ms)
        session = Session(consumer, outlet)
        consumer.session = session
        return session

    def attach_session(self, session: Session, now_ms: int) -> None:
        consumer = session.consumer
        consumer.session = session
        consumer.awaits_stream = False
        self._attached(session, now_ms)

    def detach(self, session: Session, now_ms: int) -> None:
        """A stream was lost. The late end of a stream that was taken over changes nothing."""
        consumer = session.consumer
        if consumer.session is not session:
            return
        consumer.session = None
        consumer.idle_since_ms = now_ms
        self._detached(consumer, now_ms)

    def close_session(self, consumer: Consumer, now_ms: int, error: DanubeError | None = None) -> None:
        """End the consumer's stream from our side, if it has one."""
        session = consumer.session
        if session is not None:
            self.detach(session, now_ms)
            session.outlet.end(error)

    @property
    @abstractmethod
    def next_offset(self) -> int:
        """The first offset that is not settled."""

    @abstractmethod
    def drained(self, session: Session) -> None:
        """The session's stream has room again."""

    @abstractmethod
    def ack(self, first: int, last: int) -> None:
        """Settle the offsets from `first` to `last`; those not outstanding are ignored."""

    @abstractmethod
    def nack(self, first: int, last: int, *, delay_ms: int, reason: str | None) -> None:
        """Ask for redelivery of the offsets from `first` to `last`."""

    @abstractmethod
    def _joined(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _left(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _attached(self, session: Session, now_ms: int) -> None: ...

    @abstractmethod
    def _detached(self, consumer: Consumer, now_ms: int) -> None: ...


def check_key_filters(key_filters: Sequence[str]) -> None:
    """Any pattern will do, but every new routing key is compared with all of them."""
    if len(key_filters) > KEY_FILTERS_MAX:
        raise Rejected(f"{len(key_filters)} key filters given, {KEY_FILTERS_MAX} at most")
    if any(len(pattern) > NAME_CHARACTERS_MAX for pattern in key_filters):
        raise Rejected(f"a key filter is longer than {NAME_CHARACTERS_MAX} characters")


def subscription_type(kind: int) -> SubscriptionType:
    try:
        return SubscriptionType(kind)
    except ValueError:
        raise Rejected(
            f"unknown subscription type {kind}: 0 exclusive, 1 shared, 2 failover, 3 key-shared"
        ) from None
