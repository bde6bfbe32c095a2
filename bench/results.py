"""Samples, series of samples, and the figures taken from them."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One slice of load on one contestant."""

    messages: int
    seconds: float
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    commits: int = 0
    commit_bytes: int = 0
    dropped: int = 0
    cpu_wait_seconds: float = 0.0
    """How long the contestant was ready to run but had no CPU; known of the disk probe only."""

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds * 1e6 / self.messages

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def commit_rate(self) -> float:
        return self.commits / self.seconds


@dataclass(slots=True)
class Series:
    """All rounds of one contestant in one case of one scenario."""

    scenario: str
    case: str
    contestant: str
    samples: list[Sample] = field(default_factory=list)

    def median(self, figure: Callable[[Sample], float]) -> float:
        return statistics.median(map(figure, self.samples))

    def least(self, figure: Callable[[Sample], float]) -> float:
        return min(map(figure, self.samples))

    def most(self, figure: Callable[[Sample], float]) -> float:
        return max(map(figure, self.samples))


class Results:
    """Everything one run has measured, in the order it was first seen."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str, str], Series] = {}
        self.notes: list[str] = []

    def add(self, scenario: str, case: str, contestant: str, sample: Sample) -> None:
        key = (scenario, case, contestant)
        self.series.setdefault(key, Series(*key)).samples.append(sample)

    def discard(self, scenario: str, case: str, contestant: str) -> None:
        """Forget a contestant that failed in some round: what it has left is not comparable."""
        self.series.pop((scenario, case, contestant), None)

    def note(self, text: str) -> None:
        """Remember something a reader of the numbers has to know."""
        if text not in self.notes:
            self.notes.append(text)

    def find(self, scenario: str, case: str, contestant: str) -> Series | None:
        return self.series.get((scenario, case, contestant))

    def scenario(self, scenario: str) -> list[Series]:
        return [series for series in self.series.values() if series.scenario == scenario]

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(series) for series in self.series.values()]
