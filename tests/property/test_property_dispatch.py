"""Any interleaving of events on a reliable subscription: nothing lost, doubled or out of order."""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pydanube.dispatch import (
    NO_BYTE_LIMIT,
    DeadLetter,
    Deliver,
    ReliableSubscription,
    reliable_subscription,
)
from pydanube.dispatch.key_filter import KeyFilters
from pydanube.dispatch.key_shared import KeySharedSubscription
from pydanube.kernel.policies import BackoffStrategy, FailurePolicy, PoisonPolicy, SubscriptionType

CONSUMERS = st.integers(1, 4)
KEYS = st.sampled_from(["a1", "a2", "a3", "b", "c"])
FILTERS = st.sampled_from([(), (), ("a*",), ("?", "zz"), ("a1", "b*")])
CREDIT_BYTES = st.sampled_from([NO_BYTE_LIMIT, NO_BYTE_LIMIT, NO_BYTE_LIMIT, 0, 1, 200])
UNACKED = st.sampled_from([0, 0, 0, 2, 5])
WIDTHS = st.sampled_from([1, 1, 1, 2, 3, 2**63])
BYTES_MAX = 400
SIZE_MAX = 300
BATCH_MAX = 6
POLICIES = st.builds(
    FailurePolicy,
    max_redelivery_count=st.integers(0, 2),
    ack_timeout_ms=st.sampled_from([200, 5_000]),
    base_redelivery_delay_ms=st.sampled_from([0, 50, 1_000]),
    max_redelivery_delay_ms=st.just(2_000),
    backoff_strategy=st.sampled_from(BackoffStrategy),
    poison_policy=st.sampled_from(PoisonPolicy),
    dead_letter_topic=st.sampled_from([None, "/default/dlq", "/default/dlq"]),
)


@dataclass
class Logged:
    """An entry of the log: one message, or a batch."""

    base: int
    count: int
    message: bytes
    key: str
    not_before_ms: int
    expires_ms: int


class Model(RuleBasedStateMachine):
    """The log, the consumers and a driver around one subscription, and what they know from outside."""

    kind: SubscriptionType

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[Logged] = []  # by offset; a batch stands at each of its offsets
        self.trimmed: set[int] = set()
        self.acked: set[int] = set()
        self.filters: dict[int, KeyFilters] = {}
        self.credit: dict[int, tuple[int, int]] = {}  # of the attached ones: messages, bytes
        self.unacked_max: dict[int, int] = {}
        self.dead_letters: dict[int, int] = {}  # offset: count
        self.stale_letters: list[int] = []  # asked for before a seek, not answered yet
        self.cursor_before = -1
        self.subscription: ReliableSubscription

    @initialize(
        window=st.integers(1, 8),
        policy=POLICIES,
        rate=st.sampled_from([0, 0, 0, 3]),
        consumers=st.integers(1, 3),
        keys=st.lists(KEYS, min_size=1, max_size=12),
    )
    def load(self, window: int, policy: FailurePolicy, rate: int, consumers: int, keys: list[str]) -> None:
        """Start in the middle of things: connected consumers and messages to send."""
        self.window, self.policy, self.rate = window, policy, rate
        self.window_max = window
        self.start(-1)
        for consumer in range(1, consumers + 1):
            self.join(consumer, ())
            self.attach(consumer, 3, NO_BYTE_LIMIT, 0)
        self.publish(keys, 10, 1, 0, 0)

    def start(self, cursor: int) -> None:
        self.subscription = reliable_subscription(
            self.kind,
            cursor=cursor,
            window=self.window,
            window_bytes=BYTES_MAX,
            policy=self.policy,
            dispatch_rate=self.rate,
        )
        self.filters.clear()
        self.credit.clear()
        self.unacked_max.clear()
        self.stale_letters.clear()
        self.forget_deliveries(cursor)

    def forget_deliveries(self, cursor: int) -> None:
        self.started_at = cursor
        self.skipped_before = self.skipped()
        self.cursor_before = cursor
        self.outstanding: dict[int, tuple[int, int]] = {}  # offset: consumer, ack deadline
        self.sent: set[int] = set()
        self.newest = -1
        self.newest_of_key: dict[str, int] = {}
        self.dead_letters.clear()
        self.acked = {offset for offset in self.acked if offset <= cursor}
        # A later start of the log is found out again from the log itself; here the tail was only skipped.
        self.trimmed = {offset for offset in self.trimmed if offset <= cursor}

    def skipped(self) -> int:
        counters = self.subscription.counters
        return counters.dropped + counters.dead_lettered + counters.filtered + counters.expired

    # The driver.

    def dispatch(self) -> None:
        subscription = self.subscription
        room = subscription.room()
        while room > 0 and subscription.next_offset < len(self.log):
            offset = subscription.next_offset
            logged = self.log[offset]
            count = logged.base + logged.count - offset
            room = subscription.offer(
                offset,
                logged.message,
                logged.key,
                count,
                logged.base,
                logged.not_before_ms,
                logged.expires_ms,
            )
        self.expire()
        for action in subscription.actions(self.now_ms):
            if isinstance(action, Deliver):
                self.delivered(action)
            else:
                self.dead_letter_asked(action)
        wake_ms = subscription.next_wake_ms()
        assert wake_ms is None or wake_ms > self.now_ms, "wants to be woken though it just decided"

    def expire(self) -> None:
        self.outstanding = {o: (c, due) for o, (c, due) in self.outstanding.items() if due > self.now_ms}

    def delivered(self, action: Deliver) -> None:
        logged = self.log[action.offset]
        offsets = range(action.offset, action.offset + action.count)
        assert action.message is logged.message
        assert action.base == logged.base
        assert all(self.log[offset] is logged for offset in offsets)
        assert self.outstanding.keys().isdisjoint(offsets), "delivered twice at once"
        assert self.acked.isdisjoint(offsets), "delivered after its ack"
        assert logged.not_before_ms <= self.now_ms, "delivered before its time"
        assert logged.expires_ms == 0 or logged.expires_ms > self.now_ms, "delivered too late"
        self.take_credit(action)
        if self.kind is SubscriptionType.KEY_SHARED:
            self.check_key_order(action, logged)
        elif logged.not_before_ms == 0 and action.offset not in self.sent:
            assert action.attempt == 1
            assert action.offset > self.newest, "new messages out of order"
            self.newest = offsets[-1]
        if self.kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
            assert all(consumer == action.consumer_id for consumer, _ in self.outstanding.values())
        self.sent.update(offsets)
        for offset in offsets:
            self.outstanding[offset] = (action.consumer_id, self.now_ms + self.policy.ack_timeout_ms)

    def take_credit(self, action: Deliver) -> None:
        credit, credit_bytes = self.credit[action.consumer_id]
        assert credit > 0, "delivered without credit"
        assert credit_bytes > 0, "delivered without credit for bytes"
        self.credit[action.consumer_id] = (credit - action.count, credit_bytes - len(action.message))
        limit = self.unacked_max[action.consumer_id]
        holders = [action.consumer_id] if limit else [c for c, own in self.unacked_max.items() if not own]
        held = sum(consumer in holders for consumer, _ in self.outstanding.values())
        assert held < (limit or self.window), "more unacked than allowed"

    def check_key_order(self, action: Deliver, logged: Logged) -> None:
        assert self.filters[action.consumer_id].accept(logged.key)
        assert all(self.log[other].key != logged.key for other in self.outstanding), (
            "two of a key outstanding"
        )
        if logged.not_before_ms == 0:
            assert action.offset >= self.newest_of_key.get(logged.key, 0), "out of order within its key"
            self.newest_of_key[logged.key] = action.offset

    def dead_letter_asked(self, action: DeadLetter) -> None:
        offsets = range(action.offset, action.offset + action.count)
        assert action.message is self.log[action.offset].message
        assert action.base == self.log[action.offset].base
        assert self.outstanding.keys().isdisjoint(offsets)
        assert action.offset not in self.dead_letters, "asked twice at once"
        assert action.attempts > self.policy.max_redelivery_count
        assert action.topic == self.policy.dead_letter_topic
        self.dead_letters[action.offset] = action.count

    # Events.

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=4),
        size=st.integers(8, SIZE_MAX),
        count=st.integers(1, BATCH_MAX),
        delay_ms=st.sampled_from([0, 0, 0, 1, 100, 4_000]),
        ttl_ms=st.sampled_from([0, 0, 0, 50, 3_000]),
    )
    def publish(self, keys: list[str], size: int, count: int, delay_ms: int, ttl_ms: int) -> None:
        for key in keys:
            base = len(self.log)
            logged = Logged(
                base,
                1 if self.kind is SubscriptionType.KEY_SHARED else count,
                bytes([base % 256]) * size,
                key,
                self.now_ms + delay_ms if delay_ms else 0,
                self.now_ms + ttl_ms if ttl_ms else 0,
            )
            self.log += [logged] * logged.count
        self.dispatch()

    @rule(consumer=CONSUMERS, filters=FILTERS)
    def join(self, consumer: int, filters: tuple[str, ...]) -> None:
        if self.kind is SubscriptionType.EXCLUSIVE and any(other != consumer for other in self.filters):
            return
        self.subscription.join(consumer, filters=filters)
        self.filters[consumer] = KeyFilters(filters)
        self.dispatch()

    @rule(consumer=CONSUMERS)
    def leave(self, consumer: int) -> None:
        self.subscription.leave(consumer)
        self.filters.pop(consumer, None)
        self.lose(consumer)
        self.dispatch()

    @rule(consumer=CONSUMERS, credit=st.integers(0, 5), credit_bytes=CREDIT_BYTES, unacked_max=UNACKED)
    def attach(self, consumer: int, credit: int, credit_bytes: int, unacked_max: int) -> None:
        if consumer not in self.filters:
            return
        self.lose(consumer)
        self.subscription.attach(consumer, self.now_ms, unacked_max)
        self.subscription.grant(consumer, credit, credit_bytes)
        self.credit[consumer] = (credit, credit_bytes)
        self.unacked_max[consumer] = unacked_max
        self.dispatch()

    @rule(consumer=CONSUMERS)
    def detach(self, consumer: int) -> None:
        self.subscription.detach(consumer, self.now_ms)
        self.lose(consumer)
        self.dispatch()

    def lose(self, consumer: int) -> None:
        self.credit.pop(consumer, None)
        self.unacked_max.pop(consumer, None)
        self.outstanding = {o: (c, due) for o, (c, due) in self.outstanding.items() if c != consumer}

    @rule(consumer=CONSUMERS, credit=st.integers(0, 5), credit_bytes=CREDIT_BYTES)
    def grant(self, consumer: int, credit: int, credit_bytes: int) -> None:
        self.subscription.grant(consumer, credit, credit_bytes)
        if consumer in self.credit:
            self.credit[consumer] = (credit, credit_bytes)
        self.dispatch()

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 100), width=WIDTHS)
    def ack(self, pick: int, width: int) -> None:
        self.acknowledge(self.pick_outstanding(pick), width)
        self.dispatch()

    def pick_outstanding(self, pick: int) -> int:
        return sorted(self.outstanding)[pick % len(self.outstanding)]

    def acknowledge(self, offset: int, width: int) -> None:
        """Of a range, exactly what is outstanding in it counts."""
        before = self.subscription.messages_held
        if width == 1:
            self.subscription.ack(offset, self.now_ms)
        else:
            self.subscription.ack_range(offset, offset + width - 1, self.now_ms)
        settled = {other for other in self.outstanding if offset <= other < offset + width}
        assert self.subscription.messages_held == before - len(settled)
        for other in settled:
            del self.outstanding[other]
        self.acked |= settled

    @rule(offset=st.integers(0, 40))
    def stray_ack(self, offset: int) -> None:
        """Late, repeated or never sent: changes nothing."""
        if offset not in self.outstanding:
            before = (self.subscription.cursor, self.subscription.messages_held)
            self.subscription.ack(offset, self.now_ms)
            assert before == (self.subscription.cursor, self.subscription.messages_held)

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 100), width=WIDTHS, delay_ms=st.sampled_from([0, 10, 10_000]))
    def nack(self, pick: int, width: int, delay_ms: int) -> None:
        self.stray_nack(self.pick_outstanding(pick), width, delay_ms)

    @rule(offset=st.integers(0, 40), width=WIDTHS, delay_ms=st.sampled_from([0, 10, 10_000]))
    def stray_nack(self, offset: int, width: int, delay_ms: int) -> None:
        if width == 1:
            self.subscription.nack(offset, self.now_ms, delay_ms=delay_ms, reason="no")
        else:
            self.subscription.nack_range(offset, offset + width - 1, self.now_ms, delay_ms, "no")
        for other in [other for other in self.outstanding if offset <= other < offset + width]:
            del self.outstanding[other]
        self.dispatch()

    @precondition(lambda self: self.dead_letters)
    @rule(ok=st.booleans())
    def dead_lettered(self, ok: bool) -> None:
        offset = min(self.dead_letters)
        del self.dead_letters[offset]
        self.subscription.dead_lettered(offset, ok)
        self.dispatch()

    @precondition(lambda self: self.stale_letters)
    @rule(ok=st.booleans())
    def dead_lettered_after_a_seek(self, ok: bool) -> None:
        offset = self.stale_letters.pop()
        self.dead_letters.pop(offset, None)
        self.subscription.dead_lettered(offset, ok)
        self.dispatch()

    @rule(elapsed_ms=st.sampled_from([1, 60, 500, 500, 3_000]))
    def tick(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.expire()
        self.subscription.tick(self.now_ms)
        self.dispatch()

    @rule(policy=POLICIES)
    def set_policy(self, policy: FailurePolicy) -> None:
        self.policy = policy
        self.subscription.set_policy(policy)
        self.dispatch()

    @rule(window=st.integers(1, 8))
    def set_window(self, window: int) -> None:
        self.window = window
        self.window_max = max(self.window_max, window)
        self.subscription.set_window(window)
        self.dispatch()

    @rule(rate=st.sampled_from([0, 2, 50]))
    def set_rate(self, rate: int) -> None:
        self.rate = rate
        self.subscription.set_dispatch_rate(rate)
        self.dispatch()

    @rule(ahead=st.integers(0, 3))
    def trim(self, ahead: int) -> None:
        start = min(self.subscription.next_offset + ahead, len(self.log))
        self.trimmed |= set(range(self.subscription.next_offset, start))
        self.subscription.skip_to(start)
        self.dispatch()

    @rule(place=st.integers(0, 100))
    def seek(self, place: int) -> None:
        offset = place * len(self.log) // 100
        self.stale_letters += self.dead_letters
        self.subscription.seek(offset)
        self.forget_deliveries(offset - 1)
        assert self.subscription.messages_held == self.subscription.outstanding == 0
        self.dispatch()

    @rule()
    def restart(self) -> None:
        self.start(self.subscription.cursor)

    # What must hold, always.

    @invariant()
    def holds_its_invariants(self) -> None:
        if hasattr(self, "subscription"):
            self.subscription.validate()

    @invariant()
    def cursor_only_moves_over_settled_offsets(self) -> None:
        if not hasattr(self, "subscription"):
            return
        subscription = self.subscription
        assert subscription.cursor < subscription.next_offset <= len(self.log)
        unsettled = self.outstanding.keys() | self.dead_letters.keys()
        assert all(offset > subscription.cursor for offset in unsettled)
        skipped = self.skipped() - self.skipped_before
        passed = set(range(self.started_at + 1, subscription.cursor + 1)) - self.acked - self.trimmed
        assert len(passed) <= skipped, "the cursor passed an offset nobody acked or skipped"
        assert subscription.cursor >= self.cursor_before, "the cursor moved back"
        self.cursor_before = subscription.cursor

    @invariant()
    def the_window_is_bounded(self) -> None:
        if not hasattr(self, "subscription"):
            return
        subscription = self.subscription
        if not isinstance(subscription, KeySharedSubscription):
            ahead = self.log[subscription.cursor + 1 : subscription.next_offset]
            delayed = sum(logged.not_before_ms > 0 for logged in ahead)
            # Four consumers bring 5 each at most; the last batch may go beyond.
            assert subscription.messages_held < self.window_max + 4 * 5 + delayed + BATCH_MAX
        assert len(self.outstanding) == subscription.outstanding
        assert subscription.bytes_held < BYTES_MAX + SIZE_MAX

    def teardown(self) -> None:
        """Once consumers behave, everything is settled, by waking only when the subscription asks for it."""
        if not hasattr(self, "subscription"):
            return
        subscription = self.subscription
        self.policy = FailurePolicy(max_redelivery_count=1000, dead_letter_topic="/default/dlq")
        subscription.set_policy(self.policy)
        if not self.filters:
            subscription.join(1)
            self.filters[1] = KeyFilters(())
        for consumer in self.filters:
            self.lose(consumer)
            subscription.attach(consumer, self.now_ms)
            self.unacked_max[consumer] = 0
        for _ in range(20 * len(self.log) + 50):
            for consumer in self.filters:
                subscription.grant(consumer, 5)
                self.credit[consumer] = (5, NO_BYTE_LIMIT)
            self.dispatch()
            for offset in sorted(self.dead_letters):
                subscription.dead_lettered(offset, True)
            self.dead_letters.clear()
            busy = bool(self.outstanding)
            for offset in sorted(self.outstanding):
                self.acknowledge(offset, 1)
            subscription.validate()
            if subscription.cursor == len(self.log) - 1:
                return
            if not busy and (subscription.room() == 0 or subscription.next_offset == len(self.log)):
                wake_ms = subscription.next_wake_ms()
                assert wake_ms is not None, "nothing to wait for, yet not done"
                self.now_ms = max(self.now_ms, wake_ms)
        raise AssertionError(f"stuck at {subscription.cursor} of {len(self.log) - 1}")


def suite_for(kind: SubscriptionType) -> Any:
    model = type(f"{kind.name.title()}Model", (Model,), {"kind": kind})
    model.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
    return model.TestCase


TestExclusive = suite_for(SubscriptionType.EXCLUSIVE)
TestFailover = suite_for(SubscriptionType.FAILOVER)
TestShared = suite_for(SubscriptionType.SHARED)
TestKeyShared = suite_for(SubscriptionType.KEY_SHARED)
