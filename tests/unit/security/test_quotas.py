import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import ErrorCode, Status, Unavailable
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.quotas import Quotas, TokenBucket
from pydanube.security.settings import Limits


def user(name: str) -> Principal:
    return Principal(PrincipalKind.USER, name)


ALICE, BOB = user("alice"), user("bob")


def test_connections_are_counted_by_principal() -> None:
    quotas = Quotas(Limits(connections_max=2))
    quotas.connect(ALICE, 0)
    quotas.connect(ALICE, 0)
    quotas.connect(BOB, 0)
    with pytest.raises(Unavailable) as caught:
        quotas.connect(ALICE, 0)
    assert (caught.value.code, caught.value.status) == (
        ErrorCode.CONNECTIONS_EXHAUSTED,
        Status.RESOURCE_EXHAUSTED,
    )
    quotas.disconnect(ALICE)
    quotas.connect(ALICE, 0)


def test_more_goodbyes_than_arrivals_gain_nothing() -> None:
    quotas = Quotas(Limits(connections_max=1))
    quotas.disconnect(ALICE)
    quotas.connect(ALICE, 0)
    quotas.disconnect(ALICE)
    quotas.disconnect(ALICE)
    quotas.connect(ALICE, 0)
    with pytest.raises(Unavailable):
        quotas.connect(ALICE, 0)


def test_zero_is_no_limit() -> None:
    quotas = Quotas(Limits())
    for _ in range(1000):
        quotas.connect(ALICE, 0)
        quotas.request(ALICE, 0)
        assert quotas.publish_wait_ms(ALICE, 1 << 30, 0) == 0


def test_requests_come_back_with_time() -> None:
    quotas = Quotas(Limits(requests_per_second=10))
    for _ in range(10):
        quotas.request(ALICE, 0)
    with pytest.raises(Unavailable, match="try again in 1 ms") as caught:
        quotas.request(ALICE, 0)
    assert (caught.value.code, caught.value.status) == (ErrorCode.RATE_EXCEEDED, Status.RESOURCE_EXHAUSTED)
    quotas.request(BOB, 0)
    quotas.request(ALICE, 100)
    with pytest.raises(Unavailable):
        quotas.request(ALICE, 100)


def test_a_message_larger_than_a_second_passes_and_is_paid_for_later() -> None:
    quotas = Quotas(Limits(publish_bytes_per_second=1000))
    assert quotas.publish_wait_ms(ALICE, 5000, 0) == 0
    wait_ms = quotas.publish_wait_ms(ALICE, 1, 0)
    assert wait_ms == 4001
    assert quotas.publish_wait_ms(ALICE, 1, wait_ms - 2) > 0
    assert quotas.publish_wait_ms(ALICE, 1, wait_ms) == 0


def test_a_principal_can_have_limits_of_its_own() -> None:
    quotas = Quotas(Limits(connections_max=1), {"bob": Limits(connections_max=2)})
    quotas.connect(BOB, 0)
    quotas.connect(BOB, 0)
    quotas.connect(ALICE, 0)
    with pytest.raises(Unavailable):
        quotas.connect(ALICE, 0)


def test_the_silent_are_forgotten_the_connected_are_not() -> None:
    quotas = Quotas(Limits(connections_max=1, requests_per_second=1), tracked_max=3)
    quotas.connect(ALICE, 0)
    for number in range(10):
        quotas.request(user(f"u{number}"), 0)
        assert len(quotas) <= 3
    with pytest.raises(Unavailable):
        quotas.connect(ALICE, 0)
    with pytest.raises(Unavailable):
        quotas.request(user("u9"), 0)
    quotas.request(user("u0"), 0)  # forgotten, so it begins anew
    for number in range(20, 22):
        quotas.connect(user(f"u{number}"), 0)
    with pytest.raises(Unavailable, match="3 principals"):
        quotas.connect(user("one too many"), 0)


@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 100)), max_size=60),
)
def test_no_more_than_the_rate_and_one_overdraft_gets_through(
    rate: int, asked: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, 0)
    now_ms = taken = largest = 0
    for pause_ms, amount in asked:
        now_ms += pause_ms
        wait_ms = bucket.take(amount, now_ms)
        if wait_ms == 0:
            taken += amount
            largest = max(largest, amount)
        else:
            # Coming again when told to is never in vain.
            now_ms += wait_ms
            assert bucket.take(amount, now_ms) == 0
            taken += amount
            largest = max(largest, amount)
    assert taken <= rate + rate * now_ms / 1000 + largest + 1e-6


def test_a_clock_that_stands_or_goes_back_fills_nothing() -> None:
    bucket = TokenBucket(1, 1000)
    assert bucket.take(1, 1000) == 0
    assert bucket.take(1, 1000) > 0
    assert bucket.take(1, 0) > 0
