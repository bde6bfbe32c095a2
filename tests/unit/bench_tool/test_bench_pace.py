"""When messages are due."""

import asyncio
import time

import pytest

from pydanube.bench.pace import Pace
from pydanube.bench.ticker import Ticker

SECOND_NS = 1_000_000_000


def all_due(pace: Pace, now_ns: int) -> list[tuple[int, int]]:
    groups = []
    while (group := pace.due(now_ns)) is not None:
        groups.append(group)
    return groups


def test_slow_rates_give_each_message_its_own_moment() -> None:
    pace = Pace(rate=4, begin_ns=100)
    assert pace.due(99) is None
    assert all_due(pace, 100) == [(100, 1)]
    assert pace.next_due_ns == 100 + SECOND_NS // 4
    assert all_due(pace, 100 + SECOND_NS // 2) == [(100 + SECOND_NS // 4, 1), (100 + SECOND_NS // 2, 1)]


@pytest.mark.parametrize("rate", [1, 7, 999, 1000, 1500, 12_345, 1_000_000])
def test_a_second_holds_as_many_as_the_rate_says(rate: int) -> None:
    groups = all_due(Pace(rate=rate, begin_ns=0), SECOND_NS - 1)
    assert sum(count for _, count in groups) == pytest.approx(rate, abs=max(1, rate // 1000))
    assert len(groups) <= 1001


def test_a_late_sender_does_not_move_what_is_due() -> None:
    punctual, late = Pace(rate=2000, begin_ns=0), Pace(rate=2000, begin_ns=0)
    one_by_one = [group for now in range(0, 10_000_000, 100_000) for group in all_due(punctual, now)]
    assert all_due(late, 9_900_000) == one_by_one


async def test_the_ticker_never_rings_early() -> None:
    ticker = Ticker()
    try:
        for wait_ns in (0, 100_000, 2_000_000):
            moment = time.monotonic_ns() + wait_ns
            await ticker.until(moment)
            assert time.monotonic_ns() >= moment
    finally:
        ticker.close()


async def test_a_moment_that_has_passed_still_lets_others_run() -> None:
    ticker = Ticker()
    ran = asyncio.Event()
    asyncio.get_running_loop().call_soon(ran.set)
    try:
        await ticker.until(0)
    finally:
        ticker.close()
    assert ran.is_set()
