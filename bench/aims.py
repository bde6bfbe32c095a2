"""The aims this project set itself, and how far one run meets them."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import delivery, durable, publish, servers
from bench.load import Shape
from bench.results import Results, Sample, Series

DISK_SPREAD_MAX = 2.0
"""How far the disk's own rate may vary between rounds before ratios to it are noise."""
DISK_RATIO_PLAUSIBLE_MAX = 1.2
CPU_WAIT_SHARE_MAX = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    aim: str
    limit: float
    measured: float
    at_best: float
    higher_is_better: bool = False
    doubt: str = ""
    """Why the figure proves nothing, if it does not."""

    @property
    def outcome(self) -> str:
        if self.doubt:
            return f"inconclusive: {self.doubt}"
        met = self.measured >= self.limit if self.higher_is_better else self.measured <= self.limit
        return "met" if met else "missed"


def judge(results: Results) -> list[Verdict]:
    """Every aim for which both sides were measured."""
    return [
        *_publish_aims(results),
        *_delivery_aims(results),
        *_durable_aims(results),
        *_compiler_gain(results),
    ]


def _publish_aims(results: Results) -> Iterator[Verdict]:
    for payload in publish.PAYLOADS:
        case = publish.case_name(Shape(4, 16), payload)
        for yardstick, limit in ((servers.GRPCIO, 1 / 30), (servers.GRPC_GO, 0.5)):
            ours, theirs = _pair(results, publish.SCENARIO, case, servers.OURS, yardstick)
            if ours and theirs:
                yield _cpu_ratio(f"publish {case}: CPU of ours ÷ {yardstick}", limit, ours, theirs)


def _delivery_aims(results: Results) -> Iterator[Verdict]:
    for case, yardstick_case in (
        (delivery.stream_case(1), delivery.stream_case(1)),
        (delivery.stream_case(4), delivery.stream_case(4)),
        (delivery.CATCH_UP, delivery.stream_case(1)),
    ):
        ours = results.find(delivery.SCENARIO, case, servers.OURS)
        theirs = results.find(delivery.SCENARIO, yardstick_case, servers.GRPC_GO)
        if ours and theirs:
            yield _cpu_ratio(f"delivery, {case}: CPU of ours ÷ {servers.GRPC_GO}", 1.0, ours, theirs)


def _durable_aims(results: Results) -> Iterator[Verdict]:
    for producers in durable.PRODUCERS:
        case = durable.case_name(producers)
        ours, disk = _pair(results, durable.SCENARIO, case, servers.OURS, durable.DISK)
        if ours and disk:
            # Paired by round: the two slices were taken one right after the other.
            ratios = [a.commit_rate / b.commit_rate for a, b in zip(ours.samples, disk.samples, strict=False)]
            yield Verdict(
                aim=f"durable, {case}: commits a second of ours ÷ the disk's",
                limit=0.7 if producers == 1 else 0.9,
                measured=statistics.median(ratios),
                at_best=max(ratios),
                higher_is_better=True,
                doubt=_doubt_about_disk(disk, statistics.median(ratios)),
            )


def _doubt_about_disk(disk: Series, ratio: float) -> str:
    """A yardstick that changes its length, or that a broker standing on it outruns, measures nothing."""
    slowest, fastest = (
        disk.least(lambda sample: sample.commit_rate),
        disk.most(lambda sample: sample.commit_rate),
    )
    starved = disk.median(lambda sample: sample.cpu_wait_seconds / sample.seconds)
    if starved > CPU_WAIT_SHARE_MAX:
        return f"the C loop waited {starved:.0%} of its time for a CPU, so it is no measure of the disk"
    if fastest > DISK_SPREAD_MAX * slowest:
        return f"the disk alone varied from {slowest:,.0f} to {fastest:,.0f} syncs a second"
    if ratio > DISK_RATIO_PLAUSIBLE_MAX:
        return "a broker cannot outrun its disk, so the slices were not alike"
    return ""


def _compiler_gain(results: Results) -> Iterator[Verdict]:
    case = publish.case_name(Shape(4, 16), publish.PAYLOADS[-1])
    ours, interpreted = _pair(results, publish.SCENARIO, case, servers.OURS, servers.OURS_INTERPRETED)
    if ours and interpreted:
        yield _cpu_ratio(f"publish {case}: CPU compiled ÷ interpreted", 1.0, ours, interpreted)


def _pair(
    results: Results, scenario: str, case: str, first: str, second: str
) -> tuple[Series | None, Series | None]:
    return results.find(scenario, case, first), results.find(scenario, case, second)


def _cpu_ratio(aim: str, limit: float, ours: Series, theirs: Series) -> Verdict:
    figure: Callable[[Sample], float] = _cpu_us
    return Verdict(
        aim=aim,
        limit=limit,
        measured=ours.median(figure) / theirs.median(figure),
        at_best=ours.least(figure) / theirs.least(figure),
    )


def _cpu_us(sample: Sample) -> float:
    return sample.cpu_us
