"""What the project set itself for Spark, and how far one run meets it."""

from collections.abc import Iterator
from typing import NamedTuple

from bench.aims import Verdict
from bench.results import Results, Series
from bench.spark import ingest, reading, writing


class Aim(NamedTuple):
    scenario: str
    case: str | None
    """None: any."""
    ours: str
    limit: float


YARDSTICKS = {reading.SCENARIO: reading.RAW, ingest.SCENARIO: ingest.RATE, writing.SCENARIO: writing.CLIENT}
AIMS = (
    Aim(reading.SCENARIO, reading.FULL, reading.FAST, 0.8),
    Aim(reading.SCENARIO, reading.AGGREGATE, reading.FAST, 0.8),
    Aim(reading.SCENARIO, reading.FULL, reading.SOURCE, 0.4),
    Aim(reading.SCENARIO, reading.AGGREGATE, reading.SOURCE, 0.4),
    Aim(ingest.SCENARIO, None, ingest.SEGMENTS, 0.5),
    Aim(ingest.SCENARIO, None, ingest.BROKER, 0.5),
)


def judge(results: Results) -> Iterator[Verdict]:
    for aim in AIMS:
        for ours in results.scenario(aim.scenario):
            yardstick = results.find(aim.scenario, ours.case, YARDSTICKS[aim.scenario])
            if ours.contestant == aim.ours and aim.case in (None, ours.case) and yardstick:
                yield Verdict(
                    aim=f"{aim.scenario}, {ours.case}: {ours.contestant} ÷ {yardstick.contestant}",
                    limit=aim.limit,
                    measured=speed_ratio(ours, yardstick),
                    at_best=ours.most(lambda sample: sample.rate)
                    / yardstick.most(lambda sample: sample.rate),
                    higher_is_better=True,
                )


def speed_ratio(ours: Series, yardstick: Series) -> float:
    """In rows a second, of the medians; above 1 we are faster."""
    return ours.median(lambda sample: sample.rate) / yardstick.median(lambda sample: sample.rate)


def cpu_ratio(ours: Series, yardstick: Series) -> float:
    """In CPU a row, of the medians; above 1 we take more."""
    return ours.median(lambda sample: sample.cpu_us) / yardstick.median(lambda sample: sample.cpu_us)
