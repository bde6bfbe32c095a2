"""Who is connected: producers and consumers by name and id, and the stream a consumer reads from.

Ids outlive connections and restarts. No client says goodbye, so being alive is inferred: a producer
lives while it sends or pings, a consumer while a stream is open or may still be about to be opened.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from mypy_extensions import mypyc_attr

from pydanube.broker.facts import ConsumerFacts, ProducerFacts
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected

if TYPE_CHECKING:
    from pydanube.broker.subscription import Subscription
    from pydanube.broker.topic import Topic

OPENING_GRACE_MS = 30_000
"""How long a subscribed consumer may take to open its stream before it counts as gone."""

REOPENING_GRACE_MS = 5_000
"""How long a consumer that lost its stream keeps its place in an exclusive subscription."""

PRODUCER_GRACE_MS = 60_000
"""How long after its last send or ping a producer counts towards limits."""

TAKEOVERS_PER_SECOND_MAX = 3
"""Two processes with one consumer name steal the stream from each other; beyond this they wait."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Outlet(ABC):
    """One open stream to one client. Implemented by the front doors, compiled or not.

    A base class, not a Protocol: compiled callers reach its methods directly, once per message.
    """

    takes_batches = False
    """Whether a batch may be sent whole. If not, it is taken apart before it is dispatched."""
    merged_max = 0
    """Messages that came by themselves and may be sent to it as one batch with the columns of merged ones; 0: none."""
    unacked_max = 0
    """Messages this client may hold unacknowledged beside the subscription's window; 0: it lives within that."""

    @abstractmethod
    def room(self) -> int:
        """How many more messages the stream takes now; 0 while its reader is not draining it."""

    @abstractmethod
    def room_bytes(self) -> int:
        """How many more bytes it takes now; the last entry sent may exceed that."""

    @abstractmethod
    def send(self, base: int, append_ms: int, skip: int, count: int, attempt: int, body: bytes) -> None:  # noqa: PLR0917
        """Queue `count` messages: those behind the first `skip` of an entry body that begins at offset `base`."""

    @abstractmethod
    def end(self, error: DanubeError | None = None) -> None:
        """End the stream, with OK or with an error. Nothing may be sent after."""

    @abstractmethod
    def seeked(self, next_offset: int) -> bool:
        """The subscription was moved: nothing sent before counts. False if the client cannot be told but by an end."""


class Producer:
    """One producer name on one topic."""

    __slots__ = ("_sent_before", "channels", "epoch", "exclusive", "id", "name", "seen_ms", "sent", "topic")

    def __init__(self, facts: ProducerFacts, topic: "Topic", now_ms: int) -> None:
        self.id = facts.id
        self.name = facts.name
        self.exclusive = facts.exclusive
        self.epoch = facts.epoch
        """Which session of an idempotent producer may publish: each new one ends those before. 0: not idempotent."""
        self.channels = 0
        """How many connections have it open; only the native protocol says so."""
        self.topic = topic
        self.seen_ms = now_ms
        self.sent = 0
        self._sent_before = 0

    def idle_ms(self, now_ms: int) -> int:
        """How long ago it was last seen. Sends only count up; reading this turns them into a time."""
        if self.sent != self._sent_before or self.channels:
            self._sent_before = self.sent
            self.seen_ms = now_ms
        return now_ms - self.seen_ms

    def left(self, now_ms: int) -> None:
        """A connection said goodbye to it: if that was the last one, its place is free at once."""
        if not self.channels:
            self._sent_before = self.sent
            self.seen_ms = now_ms - PRODUCER_GRACE_MS

    def is_live(self, now_ms: int) -> bool:
        return self.idle_ms(now_ms) < PRODUCER_GRACE_MS

    def check_sender(self, named: int) -> None:
        """Refuse a message that names another producer."""
        if named != self.id:
            raise Rejected(
                f"the message names producer {named}, the channel belongs to producer {self.id} of topic {self.topic.text}",
                ErrorCode.PRODUCER_UNKNOWN,
            )

    def check_session(self, epoch: int, sequence: int) -> None:
        """Refuse what comes from a session before the present one, or counts as its kind of producer does not."""
        if epoch and epoch != self.epoch:
            raise fenced(f"producer {self.name!r} of topic {self.topic.text} has a newer session")
        if (sequence == 0) != (epoch == 0):
            raise Rejected(
                f"sequence {sequence} from a producer that is {'not ' if epoch == 0 else ''}idempotent: such a "
                "one counts its messages from 1, others say 0"
            )

    @property
    def facts(self) -> ProducerFacts:
        return ProducerFacts(id=self.id, name=self.name, exclusive=self.exclusive, epoch=self.epoch)


class ProducerSession(NamedTuple):
    """What an opening got: the producer, its session's epoch, the highest sequence the topic has; 0 if not idempotent.

    Decided together: a newer session may have begun by the time the answer is written.
    """

    producer: Producer
    epoch: int
    last_sequence: int


class Session:
    """One stream of one consumer; a later session of the same consumer makes this one history."""

    __slots__ = ("consumer", "outlet")

    def __init__(self, consumer: "Consumer", outlet: Outlet) -> None:
        self.consumer = consumer
        self.outlet = outlet


class Consumer:
    """One consumer name on one subscription."""

    __slots__ = (
        "_attaches",
        "awaits_stream",
        "id",
        "idle_since_ms",
        "key_filters",
        "name",
        "session",
        "subscription",
    )

    def __init__(self, facts: ConsumerFacts, subscription: "Subscription", now_ms: int) -> None:
        self.id = facts.id
        self.name = facts.name
        self.key_filters = facts.key_filters
        self.subscription = subscription
        self.session: Session | None = None
        self.idle_since_ms = now_ms
        self.awaits_stream = True
        self._attaches: deque[int] = deque(maxlen=TAKEOVERS_PER_SECOND_MAX)

    @property
    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(id=self.id, name=self.name, key_filters=self.key_filters)

    def is_active(self, now_ms: int) -> bool:
        """Whether a health check may say OK: streaming, or still about to open the stream."""
        if self.session is not None:
            return True
        return self.awaits_stream and now_ms - self.idle_since_ms < OPENING_GRACE_MS

    def holds_place(self, now_ms: int) -> bool:
        """Whether it still counts towards limits and keeps others out of an exclusive subscription."""
        return self.is_active(now_ms) or now_ms - self.idle_since_ms < REOPENING_GRACE_MS

    def note_attach(self, now_ms: int) -> int:
        """Record a stream being opened; return how long to hold it back when names are being fought over."""
        recent = self._attaches
        fought = len(recent) == recent.maxlen and now_ms - recent[0] < 1_000
        recent.append(now_ms)
        return 1_000 if fought else 0


class RecentIds:
    """Ids of sessions that ended here lately; bounded, the oldest are forgotten first."""

    def __init__(self, *, keep_ms: int, count_max: int) -> None:
        self._keep_ms = keep_ms
        self._count_max = count_max
        self._until: OrderedDict[int, int] = OrderedDict()

    def add(self, identifier: int, now_ms: int) -> None:
        self._until[identifier] = now_ms + self._keep_ms
        self._until.move_to_end(identifier)
        if len(self._until) > self._count_max:
            self._until.popitem(last=False)

    def contains(self, identifier: int, now_ms: int) -> bool:
        return self._until.get(identifier, -1) >= now_ms


def fenced(what: str) -> Conflict:
    return Conflict(f"{what}: this one may not publish any more", ErrorCode.PRODUCER_FENCED)
