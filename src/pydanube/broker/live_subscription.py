"""A subscription of a non-reliable topic: a message goes to a connected consumer at once, or is dropped and counted."""

from pydanube.broker.sessions import Consumer, Session
from pydanube.broker.subscription import Subscription
from pydanube.dispatch import NOBODY, live_subscription
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import SubscriptionType
from pydanube.protocol.native.bodies import NO_OFFSET


class LiveSubscription(Subscription):
    """Driver of one `dispatch.LiveSubscription`. Acks mean nothing here and are accepted."""

    def __init__(self, name: str, kind: SubscriptionType, topic_name: TopicName) -> None:
        super().__init__(name, kind, topic_name, initial_cursor=-1)
        self.machine = live_subscription(kind)
        self.needs_key = kind is SubscriptionType.KEY_SHARED
        self._sessions: dict[int, Session] = {}

    @property
    def next_offset(self) -> int:
        return 0

    @property
    def takes_rows_only(self) -> bool:
        """Whether a batch has to be taken apart before it is delivered here."""
        return self.needs_key or not all(session.outlet.takes_batches for session in self._sessions.values())

    def deliver(self, body: bytes, count: int, key: bytes, append_ms: int, now_ms: int) -> None:
        """Hand the messages of one entry body to whoever is to have them now."""
        consumer_id = self.machine.choose(key, now_ms, count)
        if consumer_id == NOBODY:
            return
        outlet = self._sessions[consumer_id].outlet
        outlet.send(NO_OFFSET, append_ms, 0, count, 1, body)
        self.machine.grant(consumer_id, outlet.room())
        self.messages_out += count
        self.bytes_out += len(body)

    def drained(self, session: Session) -> None:
        if self._sessions.get(session.consumer.id) is session:
            self.machine.grant(session.consumer.id, session.outlet.room())

    def ack(self, first: int, last: int) -> None:
        pass

    def nack(self, first: int, last: int, *, delay_ms: int, reason: str | None) -> None:
        pass

    def _joined(self, consumer: Consumer) -> None:
        self.machine.join(consumer.id, filters=consumer.key_filters)

    def _left(self, consumer: Consumer) -> None:
        self.machine.leave(consumer.id)

    def _attached(self, session: Session, now_ms: int) -> None:
        consumer_id = session.consumer.id
        self._sessions[consumer_id] = session
        self.machine.attach(consumer_id, now_ms)
        self.machine.grant(consumer_id, session.outlet.room())

    def _detached(self, consumer: Consumer, now_ms: int) -> None:
        if self._sessions.pop(consumer.id, None) is not None:
            self.machine.detach(consumer.id, now_ms)
