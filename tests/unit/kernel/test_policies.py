import pytest

from pydanube.kernel.policies import BackoffStrategy, FailurePolicy


@pytest.mark.parametrize(
    ("attempts", "delay"), [(1, 1_000), (2, 2_000), (3, 4_000), (6, 32_000), (7, 60_000), (10_000, 60_000)]
)
def test_exponential_back_off_doubles_up_to_its_cap(attempts: int, delay: int) -> None:
    assert FailurePolicy().retry_delay_ms(attempts=attempts) == delay


def test_a_fixed_back_off_stays() -> None:
    policy = FailurePolicy(backoff_strategy=BackoffStrategy.FIXED, base_redelivery_delay_ms=50)
    assert [policy.retry_delay_ms(attempts=n) for n in (1, 2, 9)] == [50, 50, 50]


def test_a_client_may_ask_for_more_but_not_for_more_than_the_cap() -> None:
    policy = FailurePolicy(max_redelivery_delay_ms=5_000)
    assert policy.retry_delay_ms(attempts=1, requested_ms=10) == 1_000
    assert policy.retry_delay_ms(attempts=1, requested_ms=3_000) == 3_000
    assert policy.retry_delay_ms(attempts=1, requested_ms=2**63) == 5_000
