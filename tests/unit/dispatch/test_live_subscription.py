"""Subscriptions of non-reliable topics: who gets a message, what is dropped, when one is idle."""

from collections import Counter

import pytest

from pydanube.dispatch import NOBODY, LiveSubscription, live_subscription
from pydanube.dispatch.key_ownership import KEYS_REMEMBERED_MAX
from pydanube.kernel.errors import Conflict, Rejected
from pydanube.kernel.policies import SubscriptionType


def connect(
    subscription: LiveSubscription, *consumers: int, credit: int = 1_000, filters: tuple[str, ...] = ()
) -> None:
    for consumer in consumers:
        subscription.join(consumer, filters=filters)
        subscription.attach(consumer, 0)
        subscription.grant(consumer, credit)


def choices(subscription: LiveSubscription, *keys: str) -> list[int]:
    return [subscription.choose(key, 0) for key in keys]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_without_a_stream_or_credit_messages_are_dropped_and_counted(kind: SubscriptionType) -> None:
    subscription = live_subscription(kind)
    subscription.join(7)
    assert choices(subscription, "k") == [NOBODY]
    subscription.attach(7, 0)
    assert choices(subscription, "k") == [NOBODY]
    subscription.grant(7, 2)
    assert choices(subscription, "k", "k", "k") == [7, 7, NOBODY]
    subscription.grant(7, 5)
    subscription.detach(7, 0)
    assert choices(subscription, "k") == [NOBODY]
    assert (subscription.delivered, subscription.dropped) == (2, 4)


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_batch_goes_whole_to_one_consumer_and_counts_its_messages(kind: SubscriptionType) -> None:
    subscription = live_subscription(kind)
    connect(subscription, 7, credit=5, filters=("k",) if kind is SubscriptionType.KEY_SHARED else ())
    assert subscription.choose("k", 0, 4) == 7
    assert subscription.choose("k", 0, 100) == 7, "more than the credit, once"
    assert subscription.choose("k", 0, 3) == NOBODY
    assert (subscription.delivered, subscription.dropped, subscription.filtered) == (104, 3, 0)
    if kind is SubscriptionType.KEY_SHARED:
        assert subscription.choose("other", 0, 2) == NOBODY
        assert subscription.filtered == 2


@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_new_stream_starts_without_credit(kind: SubscriptionType) -> None:
    subscription = live_subscription(kind)
    connect(subscription, 7)
    subscription.attach(7, 0)
    assert choices(subscription, "k") == [NOBODY]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_events_of_unknown_consumers(kind: SubscriptionType) -> None:
    subscription = live_subscription(kind)
    subscription.grant(1, 5)
    subscription.detach(1, 0)
    subscription.leave(1)
    with pytest.raises(Rejected, match="consumer 1 is not registered"):
        subscription.attach(1, 0)


def test_exclusive_refuses_a_second_name_but_not_the_same_again() -> None:
    subscription = live_subscription(SubscriptionType.EXCLUSIVE)
    connect(subscription, 1)
    subscription.join(1)
    with pytest.raises(Conflict, match="already has consumer 1"):
        subscription.join(2)
    subscription.leave(1)
    connect(subscription, 2)
    assert choices(subscription, "k") == [2]


def test_failover_switches_to_a_connected_standby_and_does_not_switch_back() -> None:
    subscription = live_subscription(SubscriptionType.FAILOVER)
    connect(subscription, 1)
    subscription.join(2)
    connect(subscription, 3)
    assert choices(subscription, "k") == [1]
    subscription.detach(1, 0)
    assert choices(subscription, "k") == [3]
    connect(subscription, 1, 2)
    assert choices(subscription, "k") == [3]
    subscription.leave(3)
    assert choices(subscription, "k") == [1]


def test_a_full_active_consumer_drops_rather_than_switches() -> None:
    subscription = live_subscription(SubscriptionType.FAILOVER)
    connect(subscription, 1, credit=1)
    connect(subscription, 2)
    assert choices(subscription, "k", "k") == [1, NOBODY]


def test_shared_divides_exactly_evenly() -> None:
    subscription = live_subscription(SubscriptionType.SHARED)
    connect(subscription, 1, 2, 3)
    assert Counter(choices(subscription, *"k" * 30)) == {1: 10, 2: 10, 3: 10}


def test_shared_passes_over_the_full_and_the_disconnected() -> None:
    subscription = live_subscription(SubscriptionType.SHARED)
    connect(subscription, 1)
    connect(subscription, 2, credit=1)
    connect(subscription, 3)
    subscription.detach(3, 0)
    assert choices(subscription, *"kkkk") == [1, 2, 1, 1]
    connect(subscription, 3)
    assert choices(subscription, *"kkk") == [3, 1, 3]


def test_key_shared_spreads_keys_evenly_and_keeps_them() -> None:
    subscription = live_subscription(SubscriptionType.KEY_SHARED)
    connect(subscription, 1, 2)
    first = choices(subscription, "a", "b", "c", "d")
    assert Counter(first) == {1: 2, 2: 2}
    assert choices(subscription, "a", "b", "c", "d") == first


def test_key_shared_drops_for_a_full_owner_and_reroutes_for_a_lost_one() -> None:
    subscription = live_subscription(SubscriptionType.KEY_SHARED)
    connect(subscription, 1, credit=1)
    connect(subscription, 2)
    assert choices(subscription, "a", "a") == [1, NOBODY]
    subscription.detach(1, 0)
    assert choices(subscription, "a") == [2]
    connect(subscription, 1)
    assert choices(subscription, "a") == [2]


def test_key_shared_gives_a_newcomer_its_share_and_moves_no_other_key() -> None:
    subscription = live_subscription(SubscriptionType.KEY_SHARED)
    keys = [f"key-{i}" for i in range(100)]
    connect(subscription, 1, 2, 3)
    before = choices(subscription, *keys)
    connect(subscription, 4)
    after = choices(subscription, *keys)
    assert Counter(after) == {1: 25, 2: 25, 3: 25, 4: 25}
    assert all(new in (old, 4) for old, new in zip(before, after, strict=True))


def test_key_shared_counts_what_no_filter_accepts() -> None:
    subscription = live_subscription(SubscriptionType.KEY_SHARED)
    connect(subscription, 1, filters=("eu-*",))
    assert choices(subscription, "eu-1", "us-1") == [1, NOBODY]
    assert (subscription.filtered, subscription.dropped) == (1, 0)
    subscription.join(1, filters=("us-*",))
    assert choices(subscription, "eu-1", "us-1") == [NOBODY, 1]


def test_key_shared_remembers_a_bounded_number_of_keys() -> None:
    subscription = live_subscription(SubscriptionType.KEY_SHARED)
    connect(subscription, 1, 2, credit=10 * KEYS_REMEMBERED_MAX)
    chosen = choices(subscription, *(f"key-{i}" for i in range(2 * KEYS_REMEMBERED_MAX)))
    assert len(subscription._keys) <= KEYS_REMEMBERED_MAX
    assert abs(chosen.count(1) - chosen.count(2)) <= 1
    choices(subscription, "long" * 100)
    assert "long" * 100 not in subscription._keys


@pytest.mark.parametrize("kind", SubscriptionType)
def test_idle_for_more_than_a_minute_is_removable(kind: SubscriptionType) -> None:
    subscription = live_subscription(kind)
    connect(subscription, 1, credit=0)
    subscription.choose("k", 1_000)
    assert not subscription.is_removable(10_000_000), "full is not idle"
    subscription.detach(1, 2_000)
    assert not subscription.is_removable(10_000_000), "no message has missed it yet"
    subscription.choose("k", 5_000)
    subscription.choose("k", 50_000)
    assert not subscription.is_removable(65_000)
    assert subscription.is_removable(65_001)
    subscription.attach(1, 65_002)
    assert not subscription.is_removable(10_000_000)
