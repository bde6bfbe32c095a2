"""Quantiles close to the exact ones, whatever was recorded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.distribution import BUCKETS_MAX, QUANTILES, VALUE_MAX, Distribution

values = st.one_of(st.integers(0, 50), st.integers(0, 100_000), st.integers(0, VALUE_MAX))


def exact(recorded: list[int], share: float) -> int:
    ordered = sorted(recorded)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


@given(st.lists(values, min_size=1, max_size=300))
def test_every_quantile_is_within_five_percent(recorded: list[int]) -> None:
    distribution = Distribution(recorded)
    assert (distribution.count, distribution.sum) == (len(recorded), sum(recorded))
    for share, found in zip(QUANTILES, distribution.quantiles(), strict=True):
        assert found == pytest.approx(exact(recorded, share), rel=0.05)


@given(st.lists(st.integers(0, 31), min_size=1))
def test_small_values_are_exact(recorded: list[int]) -> None:
    distribution = Distribution(recorded)
    assert distribution.quantiles() == [exact(recorded, share) for share in QUANTILES]


def test_nothing_recorded_is_zero() -> None:
    empty = Distribution()
    assert (empty.count, empty.sum, empty.quantiles()) == (0, 0, [0.0] * len(QUANTILES))


def test_values_beyond_the_bounds_count_as_the_bounds() -> None:
    distribution = Distribution([-5, VALUE_MAX + 1, 1 << 200])
    assert distribution.count == 3
    assert distribution.quantiles([0, 1]) == [0, pytest.approx(VALUE_MAX, rel=0.05)]
    assert len(distribution._buckets) == BUCKETS_MAX


def test_a_copy_stands_still() -> None:
    distribution = Distribution([1, 2, 3])
    copy = distribution.copy()
    distribution.record(100)
    assert (copy.count, copy.sum, copy.quantiles([1])) == (3, 6, [3.0])
