"""What was measured, and what was not and why."""

from dataclasses import dataclass

from bench.results import Sample


@dataclass(frozen=True, slots=True)
class LoadSample(Sample):
    """One slice of load on one contestant, with what only this comparison asks for."""

    size: int = 0
    rate_asked: int = 0
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    start_seconds: float = 0.0
    command: str = ""


@dataclass(frozen=True, slots=True)
class Absence:
    """A figure that is missing; no contestant leaves a table silently."""

    workload: str
    case: str
    """Empty: all cases of the workload."""
    contestant: str
    reason: str


def of(sample: Sample) -> LoadSample:
    """Results hold samples of any kind; here they are of this one."""
    assert isinstance(sample, LoadSample)
    return sample


def rate(sample: Sample) -> float:
    return sample.rate


def bytes_rate(sample: Sample) -> float:
    return sample.rate * of(sample).size


def cpu_us(sample: Sample) -> float:
    return sample.cpu_us


def rss_bytes(sample: Sample) -> float:
    return sample.rss_bytes


def start_seconds(sample: Sample) -> float:
    return of(sample).start_seconds


def p50_us(sample: Sample) -> float:
    return of(sample).p50_us


def p99_us(sample: Sample) -> float:
    return of(sample).p99_us


def p999_us(sample: Sample) -> float:
    return of(sample).p999_us
