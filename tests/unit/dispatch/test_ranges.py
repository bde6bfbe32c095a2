"""Batches as ranges of offsets: absurd acks, memory, bounds; what is decided is in tests/scenarios."""

import pytest

from pydanube.dispatch import Deliver, ReliableSubscription, reliable_subscription
from pydanube.dispatch.window import DELAYED_MAX
from pydanube.kernel.policies import FailurePolicy, PoisonPolicy, SubscriptionType

LOG_ORDER = [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED]
BATCH = b"x" * 1_000


def connect(subscription: ReliableSubscription, *consumers: int, credit: int = 1 << 30) -> None:
    for consumer in consumers:
        subscription.join(consumer)
        subscription.attach(consumer, 0)
        subscription.grant(consumer, credit)


def sent(subscription: ReliableSubscription, now_ms: int = 0) -> list[tuple[int, int]]:
    """First offset and count of each delivery."""
    return [(a.offset, a.count) for a in subscription.actions(now_ms) if isinstance(a, Deliver)]


def state(subscription: ReliableSubscription) -> tuple[int, ...]:
    return (
        subscription.cursor,
        subscription.messages_held,
        subscription.bytes_held,
        subscription.outstanding,
        subscription.counters.acked,
        subscription.counters.nacked,
    )


@pytest.mark.parametrize("kind", LOG_ORDER)
@pytest.mark.parametrize(
    ("first", "last"),
    [(12, 11), (19, 10), (0, 9), (20, 29), (30, 2**63), (2**63, 2**64), (-(2**64), 9), (-5, -9), (2**64, 0)],
)
def test_ranges_without_anything_outstanding_change_nothing(
    kind: SubscriptionType, first: int, last: int
) -> None:
    subscription = reliable_subscription(kind, window=100)
    connect(subscription, 1)
    subscription.offer(0, BATCH, "", 10)
    subscription.offer(10, BATCH, "", 10)
    assert sent(subscription) == [(0, 10), (10, 10)]
    subscription.ack_range(0, 9, 0)
    subscription.offer(20, BATCH, "", 10)  # not sent
    before = state(subscription)
    subscription.ack_range(first, last, 0)
    subscription.nack_range(first, last, 0, 5, "no")
    assert state(subscription) == before
    subscription.validate()


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_range_over_everything_takes_what_is_outstanding(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, window=100)
    connect(subscription, 1)
    for offset in range(5):
        subscription.offer(offset, b"message", str(offset))
    subscription.offer(5, b"message", "5", 1, -1, 1_000)
    assert len(sent(subscription)) == 5
    subscription.nack_range(0, 2**63, 0, 0, "no")
    assert subscription.counters.nacked == 5
    assert len(sent(subscription, 1_000)) == 6
    subscription.ack_range(-1, 2**63, 1_000)
    assert state(subscription) == (5, 0, 0, 0, 6, 5)
    subscription.validate()


@pytest.mark.parametrize("kind", LOG_ORDER)
def test_a_batch_counts_its_bytes_until_its_last_message_is_settled(kind: SubscriptionType) -> None:
    """Every part keeps the whole batch in memory."""
    subscription = reliable_subscription(kind, window=1_000, window_bytes=2_000)
    connect(subscription, 1)
    assert subscription.offer(0, BATCH, "", 100) == 900
    assert subscription.offer(100, BATCH, "", 100) == 0, "no room by bytes"
    sent(subscription)
    for offset in range(1, 100, 2):
        subscription.ack(offset, 0)
        subscription.validate()
    assert (subscription.messages_held, subscription.bytes_held) == (150, 2_000)
    subscription.ack_range(0, 98, 0)
    assert (subscription.cursor, subscription.bytes_held, subscription.room()) == (99, 1_000, 900)
    subscription.ack_range(150, 150, 0)
    subscription.ack_range(100, 199, 0)
    assert (subscription.cursor, subscription.bytes_held) == (199, 0)
    subscription.validate()


@pytest.mark.parametrize("kind", LOG_ORDER)
def test_single_acks_walk_through_a_batch_in_any_order(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, window=1_000)
    connect(subscription, 1)
    subscription.offer(0, BATCH, "", 101)
    sent(subscription)
    for step in range(101):
        subscription.ack(step * 37 % 101, 0)
        subscription.validate()
    assert (subscription.cursor, subscription.messages_held) == (100, 0)
    assert subscription.counters.acked == 101


def test_a_batch_may_overshoot_window_and_credit_once() -> None:
    subscription = reliable_subscription(SubscriptionType.SHARED, window=10)
    connect(subscription, 1, credit=1)
    assert subscription.offer(0, BATCH, "", 9) == 1
    assert subscription.offer(9, BATCH, "", 1_000) == 0
    assert sent(subscription) == [(0, 9)]
    subscription.grant(1, 1)
    assert sent(subscription) == [(9, 1_000)]
    subscription.ack_range(0, 1_000, 0)
    assert subscription.room() == 2


@pytest.mark.parametrize("kind", LOG_ORDER)
def test_every_part_of_a_batch_tells_when_it_was_appended(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, policy=FailurePolicy(base_redelivery_delay_ms=0))
    connect(subscription, 1)
    subscription.offer(0, BATCH, "", 5, 0, 0, 0, 1_700_000_000_000)
    sent(subscription)
    subscription.nack_range(2, 3, 0)
    [again] = subscription.actions(0)
    assert isinstance(again, Deliver)
    assert (again.offset, again.count, again.base, again.attempt) == (2, 2, 0, 2)
    assert again.append_ms == 1_700_000_000_000
    assert again.message is BATCH


def test_key_shared_takes_no_batches() -> None:
    subscription = reliable_subscription(SubscriptionType.KEY_SHARED)
    connect(subscription, 1)
    with pytest.raises(AssertionError, match="one by one"):
        subscription.offer(0, BATCH, "key", 2)


def test_a_batch_beyond_the_dispatch_rate_is_paid_back() -> None:
    subscription = reliable_subscription(SubscriptionType.EXCLUSIVE, window=100, dispatch_rate=10)
    connect(subscription, 1)
    subscription.offer(0, BATCH, "", 30)
    subscription.offer(30, BATCH, "", 1)
    assert sent(subscription, 1_000) == [(0, 30)]
    assert subscription.next_wake_ms() == 3_100
    assert sent(subscription, 3_099) == []
    assert sent(subscription, 3_100) == [(30, 1)]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_bounded_number_of_delayed_messages_stands_beside_the_window(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, window=3)
    connect(subscription, 1)
    offset = 0
    while subscription.room() > 0:
        subscription.offer(offset, b"", str(offset % 7), 1, -1, 5_000)
        offset += 1
    assert subscription.delayed == subscription.messages_held == DELAYED_MAX + 3
    assert sent(subscription, 4_999) == []
    assert subscription.next_wake_ms() == 5_000
    subscription.validate()
    for _ in range(5):
        due = sent(subscription, 5_000)
        assert len(due) == 3, "no more than a window at once"
        for first, _ in due:
            subscription.ack(first, 5_000)
    assert subscription.delayed == 0
    subscription.validate()


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_delivery_time_that_has_passed_is_no_delay(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind)
    connect(subscription, 1)
    subscription.tick(1_000)
    subscription.offer(0, b"", "key", 1, -1, 1_000)
    assert subscription.delayed == 0
    assert sent(subscription, 1_000) == [(0, 1)]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_seek_starts_anew_with_the_same_consumers(kind: SubscriptionType) -> None:
    policy = FailurePolicy(max_redelivery_count=0)
    subscription = reliable_subscription(kind, window=4, policy=policy)
    connect(subscription, 1)
    for offset in range(4):
        subscription.offer(offset, b"message", "key")
    subscription.offer(4, b"message", "key", 1, -1, 60_000)
    sent(subscription)
    subscription.nack(0, 0)
    assert subscription.blocked == 1
    subscription.seek(2)
    subscription.validate()
    assert (subscription.cursor, subscription.next_offset, subscription.room()) == (1, 2, 4)
    assert (subscription.blocked, subscription.delayed, subscription.outstanding) == (0, 0, 0)
    subscription.ack_range(0, 100, 0)
    assert subscription.cursor == 1
    subscription.offer(2, b"message", "key")
    assert sent(subscription) == [(2, 1)]
    subscription.ack(2, 0)
    assert subscription.cursor == 2
    assert subscription.counters.seeks == 1
    subscription.validate()


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_seek_takes_back_what_was_to_be_dead_lettered(kind: SubscriptionType) -> None:
    policy = FailurePolicy(
        max_redelivery_count=0, poison_policy=PoisonPolicy.DEAD_LETTER, dead_letter_topic="/default/dlq"
    )
    subscription = reliable_subscription(kind, policy=policy)
    connect(subscription, 1)
    subscription.offer(0, b"message", "key")
    sent(subscription)
    subscription.nack(0, 0)
    subscription.seek(0)
    subscription.validate()
    assert subscription.actions(0) == []
