"""Bounds and refusals of reliable subscriptions; what they decide is in tests/scenarios."""

import pytest

from pydanube.dispatch import Deliver, ReliableSubscription, reliable_subscription
from pydanube.dispatch.key_ownership import KEYS_REMEMBERED_MAX
from pydanube.dispatch.key_shared import HELD_MAX, OUTSTANDING_PER_CONSUMER_MAX, KeySharedSubscription
from pydanube.dispatch.single_active import FailoverSubscription
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.policies import FailurePolicy, SubscriptionType

ALL_BUT_KEY_SHARED = [SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED]


def connect(subscription: ReliableSubscription, *consumers: int, credit: int = 1 << 30) -> None:
    for consumer in consumers:
        subscription.join(consumer)
        subscription.attach(consumer, 0)
        subscription.grant(consumer, credit)


def offer(subscription: ReliableSubscription, *keys: str) -> None:
    for key in keys:
        subscription.offer(subscription.next_offset, b"message", key)


def sent(subscription: ReliableSubscription, now_ms: int = 0) -> list[int]:
    return [action.offset for action in subscription.actions(now_ms) if isinstance(action, Deliver)]


def test_exclusive_refuses_a_second_consumer() -> None:
    subscription = reliable_subscription(SubscriptionType.EXCLUSIVE)
    subscription.join(1)
    subscription.join(1)
    with pytest.raises(Conflict, match="already has consumer 1") as refused:
        subscription.join(2)
    assert refused.value.code is ErrorCode.CONSUMER_EXCLUSIVE
    subscription.leave(1)
    subscription.join(2)


def test_failover_tells_who_is_active() -> None:
    subscription = reliable_subscription(SubscriptionType.FAILOVER)
    assert isinstance(subscription, FailoverSubscription)
    assert subscription.active_consumer_id is None
    connect(subscription, 5, 6)
    assert subscription.active_consumer_id == 5
    subscription.leave(5)
    assert subscription.active_consumer_id == 6


@pytest.mark.parametrize("kind", SubscriptionType)
def test_events_of_unknown_consumers_and_offsets(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind)
    subscription.leave(9)
    subscription.detach(9, 0)
    subscription.grant(9, 5)
    subscription.ack(3, 0)
    subscription.nack(3, 0)
    subscription.dead_lettered(3, ok=True)
    subscription.skip_to(0)
    assert subscription.cursor == -1
    assert subscription.actions(0) == []
    with pytest.raises(Rejected, match="consumer 9 is not registered"):
        subscription.attach(9, 0)


@pytest.mark.parametrize("kind", SubscriptionType)
def test_nothing_is_read_without_a_stream(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind)
    assert subscription.room() == 0
    subscription.join(1)
    assert subscription.room() == 0
    subscription.attach(1, 0)
    assert subscription.room() == 10
    subscription.detach(1, 0)
    assert subscription.room() == 0


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_stream_that_took_too_much_is_full_not_in_debt(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind)
    connect(subscription, 1, credit=-3)
    offer(subscription, "a", "b")
    assert sent(subscription) == []
    subscription.validate()
    subscription.grant(1, 1)
    assert sent(subscription) == [0]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_an_offset_out_of_turn_is_a_bug_of_the_driver(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, cursor=4)
    connect(subscription, 1)
    with pytest.raises(AssertionError, match="offered 6, expected 5"):
        subscription.offer(6, b"", "k")


@pytest.mark.parametrize("kind", SubscriptionType)
def test_settled_offsets_behind_an_unsettled_one_take_no_memory(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, window=4)
    connect(subscription, 1)
    offer(subscription, "stuck")
    assert sent(subscription) == [0]
    for offset in range(1, 5_000):
        offer(subscription, "moving")
        assert sent(subscription) == [offset]
        subscription.ack(offset, 0)
    subscription.validate()
    assert subscription.cursor == -1
    assert subscription.messages_held == 1
    assert len(subscription._log) < 200
    subscription.ack(0, 0)
    assert subscription.cursor == 4_999
    subscription.validate()


@pytest.mark.parametrize("kind", ALL_BUT_KEY_SHARED)
def test_a_block_holds_back_what_was_read_but_not_sent(kind: SubscriptionType) -> None:
    subscription = reliable_subscription(kind, policy=FailurePolicy(max_redelivery_count=0))
    connect(subscription, 1, credit=1)
    offer(subscription, "k", "k", "k")
    assert sent(subscription) == [0]
    subscription.nack(0, 0)
    subscription.grant(1, 5)
    assert sent(subscription) == []
    assert subscription.room() == 0
    assert subscription.blocked == 1
    subscription.set_policy(FailurePolicy())
    assert sent(subscription) == [0, 1, 2]


def test_a_large_window_spaces_its_scans_but_misses_no_deadline() -> None:
    policy = FailurePolicy(ack_timeout_ms=2_000, base_redelivery_delay_ms=0)
    subscription = reliable_subscription(SubscriptionType.SHARED, window=1_280, policy=policy)
    connect(subscription, 1)
    for offset in range(1_280):
        offer(subscription, "k")
        assert sent(subscription, offset) == [offset]
    resent: list[int] = []
    wakes = 0
    while len(resent) < 1_280:
        wake_ms = subscription.next_wake_ms()
        assert wake_ms is not None
        resent += sent(subscription, wake_ms)
        wakes += 1
        subscription.validate()
    assert sorted(resent) == list(range(1_280))
    assert wakes < 200


def test_key_shared_limits_what_is_outstanding_at_one_consumer() -> None:
    subscription = reliable_subscription(SubscriptionType.KEY_SHARED, window=10_000)
    connect(subscription, 1)
    offer(subscription, *(f"key-{i}" for i in range(OUTSTANDING_PER_CONSUMER_MAX + 5)))
    assert len(sent(subscription)) == OUTSTANDING_PER_CONSUMER_MAX
    subscription.ack(0, 0)
    assert sent(subscription) == [OUTSTANDING_PER_CONSUMER_MAX]
    subscription.validate()


def test_key_shared_remembers_a_bounded_number_of_keys() -> None:
    subscription = reliable_subscription(SubscriptionType.KEY_SHARED, window=1)
    assert isinstance(subscription, KeySharedSubscription)
    connect(subscription, 1, 2)
    for number in range(2 * KEYS_REMEMBERED_MAX):
        offer(subscription, f"key-{number}")
        subscription.ack(sent(subscription)[0], 0)
    assert len(subscription._keys) <= KEYS_REMEMBERED_MAX + 1
    offer(subscription, "long" * 100)
    subscription.ack(sent(subscription)[0], 0)
    assert "long" * 100 not in subscription._keys
    subscription.validate()


def test_key_shared_holds_a_bounded_number_behind_a_blocked_key() -> None:
    policy = FailurePolicy(max_redelivery_count=0)
    subscription = reliable_subscription(SubscriptionType.KEY_SHARED, window=3, policy=policy)
    connect(subscription, 1)
    offer(subscription, "stuck")
    sent(subscription)
    subscription.nack(0, 0)
    while subscription.room() > 0:
        offer(subscription, "stuck")
    assert subscription.messages_held == HELD_MAX + 3
    subscription.validate()


def test_key_shared_moves_only_a_fair_share_to_a_newcomer() -> None:
    subscription = reliable_subscription(SubscriptionType.KEY_SHARED, window=1_000)
    keys = [f"key-{i}" for i in range(120)]

    def owners() -> list[int]:
        offer(subscription, *keys)
        chosen = {a.offset: a.consumer_id for a in subscription.actions(0) if isinstance(a, Deliver)}
        for offset in chosen:
            subscription.ack(offset, 0)
        return [chosen[offset] for offset in sorted(chosen)]

    connect(subscription, 1)
    before = owners()
    for newcomer in (2, 3, 4):
        connect(subscription, newcomer)
        after = owners()
        assert [after.count(consumer) for consumer in range(1, newcomer + 1)] == [120 // newcomer] * newcomer
        assert all(new in (old, newcomer) for old, new in zip(before, after, strict=True))
        before = after
    subscription.leave(4)
    assert owners().count(4) == 0
