"""Any interleaving of events on a reliable subscription: nothing lost, doubled or out of order."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pydanube.dispatch import DeadLetter, Deliver, ReliableSubscription, reliable_subscription
from pydanube.dispatch.key_filter import KeyFilters
from pydanube.dispatch.key_shared import KeySharedSubscription
from pydanube.kernel.policies import BackoffStrategy, FailurePolicy, PoisonPolicy, SubscriptionType

CONSUMERS = st.integers(1, 4)
KEYS = st.sampled_from(["a1", "a2", "a3", "b", "c"])
FILTERS = st.sampled_from([(), (), ("a*",), ("?", "zz"), ("a1", "b*")])
BYTES_MAX = 400
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


class Model(RuleBasedStateMachine):
    """The log, the consumers and a driver around one subscription, and what they know from outside."""

    kind: SubscriptionType

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log: list[tuple[bytes, str]] = []
        self.trimmed: set[int] = set()
        self.acked: set[int] = set()
        self.filters: dict[int, KeyFilters] = {}
        self.credit: dict[int, int] = {}  # of the attached ones
        self.dead_letters: set[int] = set()
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
            self.attach(consumer, 3)
        self.publish(keys, 10)

    def start(self, cursor: int) -> None:
        self.subscription = reliable_subscription(
            self.kind,
            cursor=cursor,
            window=self.window,
            window_bytes=BYTES_MAX,
            policy=self.policy,
            dispatch_rate=self.rate,
        )
        self.loaded_at = cursor
        self.outstanding: dict[int, tuple[int, int]] = {}  # offset: consumer, ack deadline
        self.newest = -1
        self.newest_of_key: dict[str, int] = {}
        self.dead_letters.clear()
        self.filters.clear()
        self.credit.clear()

    # The driver.

    def dispatch(self) -> None:
        subscription = self.subscription
        room = subscription.room()
        while room > 0 and subscription.next_offset < len(self.log):
            message, key = self.log[subscription.next_offset]
            room = subscription.offer(subscription.next_offset, message, key)
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
        offset = action.offset
        message, key = self.log[offset]
        assert action.message == message
        assert offset not in self.outstanding, "delivered twice at once"
        assert offset not in self.acked, "delivered after its ack"
        assert self.credit[action.consumer_id] > 0, "delivered without credit, or to one not connected"
        self.credit[action.consumer_id] -= 1
        if self.kind is SubscriptionType.KEY_SHARED:
            assert self.filters[action.consumer_id].accept(key)
            assert all(self.log[other][1] != key for other in self.outstanding), "two of a key outstanding"
            assert offset >= self.newest_of_key.get(key, 0), "out of order within its key"
            self.newest_of_key[key] = offset
        elif offset > self.newest:
            assert all(o <= self.newest for o in self.outstanding)
            self.newest = offset
        if self.kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER):
            assert all(consumer == action.consumer_id for consumer, _ in self.outstanding.values())
        self.outstanding[offset] = (action.consumer_id, self.now_ms + self.policy.ack_timeout_ms)

    def dead_letter_asked(self, action: DeadLetter) -> None:
        assert action.offset not in self.outstanding
        assert action.offset not in self.dead_letters, "asked twice at once"
        assert action.attempts > self.policy.max_redelivery_count
        assert action.topic == self.policy.dead_letter_topic
        self.dead_letters.add(action.offset)

    # Events.

    @rule(keys=st.lists(KEYS, min_size=1, max_size=6), size=st.integers(1, 300))
    def publish(self, keys: list[str], size: int) -> None:
        self.log += [(bytes([len(self.log) % 256]) * size, key) for key in keys]
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

    @rule(consumer=CONSUMERS, credit=st.integers(0, 5))
    def attach(self, consumer: int, credit: int) -> None:
        if consumer not in self.filters:
            return
        self.lose(consumer)
        self.subscription.attach(consumer, self.now_ms)
        self.subscription.grant(consumer, credit)
        self.credit[consumer] = credit
        self.dispatch()

    @rule(consumer=CONSUMERS)
    def detach(self, consumer: int) -> None:
        self.subscription.detach(consumer, self.now_ms)
        self.lose(consumer)
        self.dispatch()

    def lose(self, consumer: int) -> None:
        self.credit.pop(consumer, None)
        self.outstanding = {o: (c, due) for o, (c, due) in self.outstanding.items() if c != consumer}

    @rule(consumer=CONSUMERS, credit=st.integers(0, 5))
    def grant(self, consumer: int, credit: int) -> None:
        self.subscription.grant(consumer, credit)
        if consumer in self.credit:
            self.credit[consumer] = credit
        self.dispatch()

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 100))
    def ack(self, pick: int) -> None:
        self.acknowledge(self.pick_outstanding(pick))
        self.dispatch()

    def pick_outstanding(self, pick: int) -> int:
        return sorted(self.outstanding)[pick % len(self.outstanding)]

    def acknowledge(self, offset: int) -> None:
        self.subscription.ack(offset, self.now_ms)
        del self.outstanding[offset]
        self.acked.add(offset)

    @rule(offset=st.integers(0, 40))
    def stray_ack(self, offset: int) -> None:
        """Late, repeated or never sent: changes nothing."""
        if offset not in self.outstanding:
            before = (self.subscription.cursor, self.subscription.messages_held)
            self.subscription.ack(offset, self.now_ms)
            assert before == (self.subscription.cursor, self.subscription.messages_held)

    @precondition(lambda self: self.outstanding)
    @rule(pick=st.integers(0, 100), delay_ms=st.sampled_from([0, 10, 10_000]))
    def nack(self, pick: int, delay_ms: int) -> None:
        self.stray_nack(self.pick_outstanding(pick), delay_ms)

    @rule(offset=st.integers(0, 40), delay_ms=st.sampled_from([0, 10, 10_000]))
    def stray_nack(self, offset: int, delay_ms: int) -> None:
        self.subscription.nack(offset, self.now_ms, delay_ms=delay_ms, reason="no")
        self.outstanding.pop(offset, None)
        self.dispatch()

    @precondition(lambda self: self.dead_letters)
    @rule(ok=st.booleans())
    def dead_lettered(self, ok: bool) -> None:
        offset = min(self.dead_letters)
        self.dead_letters.discard(offset)
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

    @rule()
    def restart(self) -> None:
        self.acked = {offset for offset in self.acked if offset <= self.subscription.cursor}
        # A later start of the log is found out again from the log itself; here the tail was only skipped.
        self.trimmed = {offset for offset in self.trimmed if offset <= self.subscription.cursor}
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
        unsettled = self.outstanding.keys() | self.dead_letters
        assert all(offset > subscription.cursor for offset in unsettled)
        counters = subscription.counters
        skipped = counters.dropped + counters.dead_lettered + counters.filtered
        passed = set(range(self.loaded_at + 1, subscription.cursor + 1)) - self.acked - self.trimmed
        assert len(passed) <= skipped, "the cursor passed an offset nobody acked or skipped"
        assert subscription.cursor >= self.cursor_before, "the cursor moved back"
        self.cursor_before = subscription.cursor

    @invariant()
    def the_window_is_bounded(self) -> None:
        if not hasattr(self, "subscription"):
            return
        subscription = self.subscription
        if not isinstance(subscription, KeySharedSubscription):
            assert subscription.messages_held <= self.window_max
        assert len(self.outstanding) <= self.window_max
        assert subscription.bytes_held < BYTES_MAX + 300

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
        for _ in range(20 * len(self.log) + 50):
            for consumer in self.filters:
                subscription.grant(consumer, 5)
                self.credit[consumer] = 5
            self.dispatch()
            for offset in sorted(self.dead_letters):
                subscription.dead_lettered(offset, True)
            self.dead_letters.clear()
            busy = bool(self.outstanding)
            for offset in sorted(self.outstanding):
                self.acknowledge(offset)
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
