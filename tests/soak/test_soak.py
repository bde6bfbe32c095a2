"""A short slice of `python -m tests.soak`, and canaries of its judge."""

from pathlib import Path

import pytest

from tests.soak.load import GROWTH_MIB, HIGHEST_MIB, Sample, Soak, judge

SECONDS = 20


@pytest.mark.timeout(90)
async def test_memory_stays_flat_under_load(tmp_path: Path) -> None:
    samples: list[Sample] = []
    verdict = await Soak(tmp_path, rate=None, away_seconds=2, report=samples.append).run(SECONDS)
    print(verdict, samples[-1])
    assert verdict.problems == []
    assert samples[-1].published > samples[-1].consumed > 0


def _samples(*resident_mib: float) -> list[Sample]:
    return [Sample(second, mib, 1, 1, True) for second, mib in enumerate(resident_mib)]


def test_noise_and_a_warm_up_pass() -> None:
    warm_up, flat = [40.0 + 3 * second for second in range(10)], [70.0, 75.0, 68.0] * 10
    assert judge(_samples(*warm_up, *flat), 40.0).problems == []


def test_canary_a_leak() -> None:
    grows = [70.0 + second * (GROWTH_MIB + 8) / 20 for second in range(60)]
    assert "grew" in judge(_samples(*grows), 60.0).problems[0]


def test_canary_a_peak() -> None:
    peak = [70.0] * 20 + [71.0 + HIGHEST_MIB] + [70.0] * 20
    assert "once" in judge(_samples(*peak), 70.0).problems[0]
