"""The token bucket of the dispatch rate."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.dispatch.pacing import UNLIMITED, Pacer


def test_starts_full_and_refills_continuously() -> None:
    pacer = Pacer(10)
    assert pacer.allowance(1_000) == 10
    pacer.spend(10)
    assert pacer.allowance(1_099) == 0
    assert pacer.next_token_ms() == 1_100
    assert pacer.allowance(1_100) == 1
    assert pacer.allowance(1_000_000) == 10


def test_rate_zero_is_no_limit() -> None:
    pacer = Pacer(0)
    assert pacer.allowance(0) == UNLIMITED
    pacer.spend(1_000_000)
    assert pacer.allowance(0) == UNLIMITED


def test_a_new_rate_keeps_no_more_than_its_own_capacity() -> None:
    pacer = Pacer(100)
    pacer.set_rate(3)
    assert pacer.allowance(0) == 3
    pacer.spend(3)
    pacer.set_rate(50)
    assert pacer.allowance(0) == 0
    assert pacer.allowance(1_000) == 50


def test_a_limit_on_an_unlimited_subscription_starts_full() -> None:
    pacer = Pacer(0)
    pacer.set_rate(5)
    assert pacer.allowance(0) == 5


def test_a_clock_that_stands_still_or_steps_back_gives_nothing() -> None:
    pacer = Pacer(5)
    pacer.allowance(1_000)
    pacer.spend(5)
    assert pacer.allowance(1_000) == 0
    assert pacer.allowance(500) == 0
    assert pacer.allowance(1_200) == 1


@given(rate=st.integers(1, 5_000), steps=st.lists(st.integers(0, 700), max_size=30))
def test_never_more_than_the_rate_and_always_at_the_promised_moment(rate: int, steps: list[int]) -> None:
    pacer = Pacer(rate)
    now_ms = sent = 0
    for step in steps:
        now_ms += step
        allowed = pacer.allowance(now_ms)
        pacer.spend(allowed)
        sent += allowed
        assert sent <= rate + now_ms * rate / 1_000
        assert pacer.allowance(pacer.next_token_ms()) >= 1
        now_ms = max(now_ms, pacer.next_token_ms())
