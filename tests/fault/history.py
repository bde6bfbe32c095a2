"""What clients saw, and whether a broker that keeps its promises can have shown it. Pure.

Every publish ends ok, fail (refused: not taken) or unknown (nobody can say). The judge never asks the broker;
it compares what was attempted with what was delivered. Time is logical: a counter that grows with each record.

    lost       acknowledged, and not in the log up to a later message           acknowledged - read
    phantom    in the log, and never attempted, or attempted and refused        read - attempted
    twice      one attempt in two places
    rewritten  one offset that carried two messages
    hole       an offset that was never delivered below one that was
    reordered  in the log before something that was acknowledged before it was even sent, or before something that
               the same producer sent earlier, if it is one that keeps its order
    misplaced  acknowledged with another offset than the one it is at
    fenced     sent in a session that was over, and taken all the same

A subscription is owed every offset for which it never sent an ack, again in each life of the broker (skipped
if it does not come: the cursor was ahead). What it had acknowledged without a gap before a clean stop must not
come again (unsettled).
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tests.fault.messages import Message

PROBLEMS_MAX = 100


class End(Enum):
    """How an attempt ended for the client."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Rule(Enum):
    """What a broker may never do."""

    LOST = "lost"
    PHANTOM = "phantom"
    GARBLED = "garbled"
    TWICE = "twice"
    REWRITTEN = "rewritten"
    HOLE = "hole"
    REORDERED = "reordered"
    MISPLACED = "misplaced"
    FENCED = "fenced"
    OUT_OF_ORDER = "out of order"
    SKIPPED = "skipped"
    UNSETTLED = "unsettled"
    FORGOTTEN = "forgotten"
    STUCK = "stuck"
    UNCLEAN = "unclean"


class Order(Enum):
    """What a subscription promises about the order within one stream."""

    NONE = "none"
    LOG = "log"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class Problem:
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.rule.value.upper()}: {self.text}"


@dataclass(slots=True)
class Attempt:
    """One publish. It can have taken effect between `started` and `ended` only."""

    message: Message
    key: str
    started: int
    end: End | None = None
    ended: float = math.inf
    offset: int | None = None
    """Where the broker said it is."""


@dataclass(slots=True)
class TopicHistory:
    name: str
    attempts: dict[Message, Attempt] = field(default_factory=dict)
    log: dict[int, Message] = field(default_factory=dict)
    offsets: dict[Message, int] = field(default_factory=dict)
    highest: int = -1
    """The highest offset anybody was given."""
    in_order: set[str] = field(default_factory=set)
    """Producers whose messages must be in the log in the order of their numbers."""
    taken: dict[str, int] = field(default_factory=dict)
    """Of producers whose session is over: how many messages the broker had taken when it ended."""


@dataclass(slots=True, eq=False)
class SubscriptionHistory:
    topic: TopicHistory
    name: str
    order: Order = Order.NONE
    owed_from: int = 0
    """The first offset it is owed; an ack of it may have ended that."""
    maybe_acked: set[int] = field(default_factory=set)
    """An ack was sent, whatever became of it: the broker may regard these as settled."""
    acked: set[int] = field(default_factory=set)
    """Confirmed in this life of the broker, on the stream that delivered them: it must regard them as settled."""
    delivered: set[int] = field(default_factory=set)
    """In this life of the broker."""
    highest: int = -1
    """The highest offset it was given, in any life."""
    settled_below: int = 0
    """Not to be delivered again in any later life."""
    settled_in: int = 0
    """The life of the broker at whose end `settled_below` was promised."""
    begins_lowest: bool = True
    """The first offset of a life is its lowest. Not so where several consumers share and buffer what comes."""
    uncertain: set[int] = field(default_factory=set)
    """The answer to an ack was lost, and nothing came again since."""

    def __str__(self) -> str:
        return f"{self.topic.name} {self.name}"


@dataclass(slots=True, eq=False)
class StreamHistory:
    """One stream of one consumer."""

    subscription: SubscriptionHistory
    life: int
    is_open: bool = True
    seen: set[int] = field(default_factory=set)
    highest: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: -1))


@dataclass(slots=True, eq=False)
class ReaderHistory:
    """One reader, through all its connections: it sees every offset once, in order."""

    topic: TopicHistory
    name: str
    next_offset: int = 0

    def __str__(self) -> str:
        return f"{self.topic.name} reader {self.name}"


class History:
    """Takes records in the order things happened to the clients; objects as soon as it can."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.topics: dict[str, TopicHistory] = {}
        self.subscriptions: list[SubscriptionHistory] = []
        self.streams: set[StreamHistory] = set()
        """Those the clients believe to be open."""
        self.life = 0
        self._is_alive = False
        self._now = 0
        self._unbounded: list[Attempt] = []
        self._promised: Mapping[SubscriptionHistory, int] = {}

    def object(self, rule: Rule, text: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(rule, text))

    # The broker's lives.

    def broker_started(self) -> None:
        """A process is about to be started."""
        self._now += 1
        self.life += 1
        self._is_alive = True
        self._promised = {}
        for subscription in self.subscriptions:
            subscription.delivered.clear()
            subscription.acked.clear()
            subscription.uncertain.clear()

    def stop_asked(self) -> None:
        """From here on acks may come too late to count."""
        self._now += 1
        self._promised = self.settled()

    def broker_ended(self, *, clean: bool = False) -> None:
        """The process is gone: nothing that was sent to it can take effect any more."""
        self._now += 1
        self._is_alive = False
        for attempt in self._unbounded:
            attempt.ended = self._now
        self._unbounded.clear()
        if clean:
            self.hold(self._promised)

    def settled(self) -> dict[SubscriptionHistory, int]:
        """Below which offset each subscription has nothing left to acknowledge, where a client can know that.

        A life begins with the lowest offset that is not settled, so there is nothing to wait for below the first
        one delivered. That does not hold where each key waits for its own consumer.
        """
        found = {}
        for subscription in self.subscriptions:
            if subscription.order is Order.KEY or not subscription.begins_lowest:
                continue
            if subscription.delivered:
                offset = min(subscription.delivered)
                while offset in subscription.acked:
                    offset += 1
                found[subscription] = offset
        return found

    def hold(self, settled: Mapping[SubscriptionHistory, int]) -> None:
        """The broker has had every chance to save these cursors: it must not fall behind them any more."""
        for subscription, offset in settled.items():
            if offset > subscription.settled_below:
                subscription.settled_below = offset
                subscription.settled_in = self.life

    # Publishing.

    def topic(self, name: str) -> TopicHistory:
        return self.topics.setdefault(name, TopicHistory(name))

    def publish_started(self, topic: TopicHistory, message: Message, key: str = "") -> Attempt:
        self._now += 1
        assert message not in topic.attempts, f"{message} was attempted before: give it another sequence"
        attempt = topic.attempts[message] = Attempt(message, key, self._now)
        if message.producer in topic.taken:
            attempt.end, attempt.ended = End.FAIL, self._now
        return attempt

    def publish_ended(
        self, topic: TopicHistory, attempt: Attempt, end: End, offset: int | None = None
    ) -> None:
        """How it went for the client; `offset` if the broker said where the message is."""
        self._now += 1
        taken = topic.taken.get(attempt.message.producer)
        if taken is not None:
            # What the next session heard has decided already; the client must agree.
            self._check_against_session(topic, attempt, end, taken)
        else:
            self._ended(topic, attempt, end)
        if end is End.OK and offset is not None:
            attempt.offset = offset
            self._check_place(topic, attempt)

    def session_ended(self, topic: TopicHistory, producer: str, taken: int) -> None:
        """A newer session of the producer was told how many messages the broker has of it: it can take no more."""
        self._now += 1
        topic.taken[producer] = taken
        for number in itertools.count():
            attempt = topic.attempts.get(Message(producer, number))
            if attempt is None:
                return
            if attempt.end in (End.OK, End.FAIL):
                self._check_against_session(topic, attempt, attempt.end, taken)
            else:
                attempt.end, attempt.ended = End.OK if number < taken else End.FAIL, self._now
                if attempt in self._unbounded:
                    self._unbounded.remove(attempt)
                if attempt.end is End.FAIL and attempt.message in topic.offsets:
                    self._object_to_refused(topic, attempt.message)

    def _check_against_session(self, topic: TopicHistory, attempt: Attempt, end: End, taken: int) -> None:
        number = attempt.message.sequence
        if end is End.OK and number >= taken:
            self.object(
                Rule.FENCED,
                f"{topic.name} {attempt.message} was acknowledged, but its session ended with {taken} messages",
            )
        elif end is End.FAIL and number < taken:
            self.object(
                Rule.PHANTOM,
                f"{topic.name} {attempt.message} was refused, but its session ended with {taken} messages",
            )

    def _ended(self, topic: TopicHistory, attempt: Attempt, end: End) -> None:
        attempt.end = end
        if end is End.UNKNOWN and self._is_alive:
            self._unbounded.append(attempt)  # It may still lie in some buffer of the broker.
        else:
            attempt.ended = self._now
        if end is End.FAIL and attempt.message in topic.offsets:
            self._object_to_refused(topic, attempt.message)

    def _check_place(self, topic: TopicHistory, attempt: Attempt) -> None:
        at = topic.offsets.get(attempt.message, attempt.offset)
        there = topic.log.get(attempt.offset, attempt.message) if attempt.offset is not None else None
        if at != attempt.offset or there != attempt.message:
            self.object(
                Rule.MISPLACED,
                f"{topic.name} {attempt.message} was acknowledged with offset {attempt.offset}, where {there} is; "
                f"it is at {at}",
            )

    # Consuming.

    def subscribed(
        self, topic: TopicHistory, name: str, order: Order = Order.NONE, *, owed_from: int = 0
    ) -> SubscriptionHistory:
        subscription = SubscriptionHistory(topic, name, order, owed_from)
        self.subscriptions.append(subscription)
        return subscription

    def stream_opened(self, subscription: SubscriptionHistory) -> StreamHistory:
        stream = StreamHistory(subscription, self.life)
        self.streams.add(stream)
        return stream

    def stream_ended(self, stream: StreamHistory) -> None:
        stream.is_open = False
        self.streams.discard(stream)

    def delivered(self, stream: StreamHistory, offset: int, message: Message, key: str = "") -> None:
        self._now += 1
        subscription = stream.subscription
        self._read(subscription.topic, offset, message, key)
        if stream.life != self.life:
            return  # Left over in the client from before a restart.
        subscription.delivered.add(offset)
        subscription.highest = max(subscription.highest, offset)
        subscription.acked.discard(offset)
        subscription.uncertain.discard(offset)
        if offset < subscription.settled_below and subscription.settled_in < self.life:
            self.object(
                Rule.UNSETTLED,
                f"{subscription} got offset {offset} in life {self.life}, although everything below "
                f"{subscription.settled_below} was acknowledged in life {subscription.settled_in}",
            )
        self._check_order(stream, offset, key)

    def garbled(self, stream: StreamHistory, offset: int, why: str) -> None:
        self.object(Rule.GARBLED, f"{stream.subscription} offset {offset}: {why}")

    def ack_started(self, stream: StreamHistory, offset: int) -> None:
        self._now += 1
        stream.subscription.maybe_acked.add(offset)

    def ack_confirmed(self, stream: StreamHistory, offset: int) -> None:
        self._now += 1
        # The broker says ok to acks that came too late, so only those on a living stream count.
        if stream.is_open and stream.life == self.life and self._is_alive and not self._promised:
            stream.subscription.acked.add(offset)

    def ack_lost(self, stream: StreamHistory, offset: int) -> None:
        """No answer came, so it may have counted or not. If not, the message comes again."""
        self._now += 1
        if stream.life == self.life and offset not in stream.subscription.acked:
            stream.subscription.uncertain.add(offset)

    def unanswered(self, subscription: SubscriptionHistory) -> list[int]:
        """Delivered in this life, and neither acknowledged nor perhaps acknowledged."""
        return sorted(subscription.delivered - subscription.acked - subscription.uncertain)

    # Reading.

    def reader_opened(self, topic: TopicHistory, name: str) -> ReaderHistory:
        """A reader from the first offset on."""
        return ReaderHistory(topic, name)

    def read(self, reader: ReaderHistory, offset: int, message: Message, key: str = "") -> None:
        self._now += 1
        if offset != reader.next_offset:
            self.object(Rule.HOLE, f"{reader} got offset {offset} when {reader.next_offset} was next")
        reader.next_offset = offset + 1
        self._read(reader.topic, offset, message, key)

    def missing(self, subscription: SubscriptionHistory, fence: Message) -> list[int]:
        """Offsets up to the fence that the subscription is owed in this life and has not got yet.

        [-1] if it is not even known yet where the fence is.
        """
        end = subscription.topic.offsets.get(fence)
        if end is None:
            return [-1]
        while subscription.owed_from in subscription.maybe_acked:
            subscription.owed_from += 1
        maybe_acked, delivered = subscription.maybe_acked, subscription.delivered
        return [
            offset
            for offset in range(subscription.owed_from, end + 1)
            if offset not in maybe_acked and offset not in delivered
        ]

    # Judging.

    def judge(self, topic: TopicHistory, fence: Message) -> None:
        """Look at a topic after some subscription has read it up to the fence, an acknowledged message."""
        end = topic.offsets.get(fence)
        if end is None:
            self.object(Rule.LOST, f"{topic.name} {fence} was acknowledged, but nobody was given it")
            return
        holes = [offset for offset in range(end) if offset not in topic.log]
        if holes:
            self.object(
                Rule.HOLE,
                f"{topic.name} was read up to offset {end}, but nobody was given {_some(holes)}",
            )
        fence_started = topic.attempts[fence].started
        lost = [
            attempt.message
            for attempt in topic.attempts.values()
            if attempt.end is End.OK
            and attempt.ended < fence_started
            and topic.offsets.get(attempt.message, end) >= end
        ]
        if lost:
            self.object(
                Rule.LOST,
                f"{topic.name} {_some(lost)}: acknowledged before {fence} was sent, but not in the log below its "
                f"offset {end}",
            )
        self._judge_order(topic)
        self._judge_producers(topic)

    def _judge_producers(self, topic: TopicHistory) -> None:
        last: dict[str, int] = {}
        for offset in sorted(topic.log):
            producer, number = topic.log[offset]
            if producer in topic.in_order:
                if number < last.get(producer, -1):
                    self.object(
                        Rule.REORDERED,
                        f"{topic.name} offset {offset} is {topic.log[offset]}, behind {producer}#{last[producer]}",
                    )
                    return
                last[producer] = number

    def _judge_order(self, topic: TopicHistory) -> None:
        earliest_end = math.inf
        earliest: Message | None = None
        for offset in sorted(topic.log, reverse=True):
            attempt = topic.attempts.get(topic.log[offset])
            if attempt is None:
                continue
            if earliest_end < attempt.started:
                self.object(
                    Rule.REORDERED,
                    f"{topic.name} offset {offset} is {attempt.message}, which was sent after {earliest} had ended; "
                    f"that one came out behind it, at offset {topic.offsets[earliest] if earliest else '?'}",
                )
                return
            if attempt.ended < earliest_end:
                earliest_end, earliest = attempt.ended, attempt.message

    def _read(self, topic: TopicHistory, offset: int, message: Message, key: str) -> None:
        known = topic.log.get(offset)
        if known is not None:
            if known != message:
                self.object(Rule.REWRITTEN, f"{topic.name} offset {offset} was {known}, now it is {message}")
            return
        topic.log[offset] = message
        topic.highest = max(topic.highest, offset)
        attempt = topic.attempts.get(message)
        if attempt is None:
            self.object(Rule.PHANTOM, f"{topic.name} offset {offset} is {message}, which nobody sent there")
            return
        if attempt.key != key:
            self.object(
                Rule.GARBLED, f"{topic.name} {message} was sent with key {attempt.key!r}, got {key!r}"
            )
        if message in topic.offsets:
            self.object(
                Rule.TWICE, f"{topic.name} {message} is at offset {topic.offsets[message]} and at {offset}"
            )
            return
        topic.offsets[message] = offset
        if attempt.offset is not None:
            self._check_place(topic, attempt)
        if attempt.end is End.FAIL:
            self._object_to_refused(topic, message)

    def _object_to_refused(self, topic: TopicHistory, message: Message) -> None:
        self.object(
            Rule.PHANTOM,
            f"{topic.name} offset {topic.offsets[message]} is {message}, which the broker said it had refused",
        )

    def _check_order(self, stream: StreamHistory, offset: int, key: str) -> None:
        if stream.subscription.order is Order.NONE or offset in stream.seen:
            return
        stream.seen.add(offset)
        lane = key if stream.subscription.order is Order.KEY else ""
        if offset < stream.highest[lane]:
            self.object(
                Rule.OUT_OF_ORDER,
                f"{stream.subscription} got offset {offset} for the first time after {stream.highest[lane]} "
                f"on one stream in life {stream.life}",
            )
        stream.highest[lane] = max(stream.highest[lane], offset)


def _some(things: list[int] | list[Message]) -> str:
    shown = ", ".join(str(thing) for thing in things[:5])
    return shown if len(things) <= 5 else f"{shown} and {len(things) - 5} more"
