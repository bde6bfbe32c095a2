"""What this project wants to reach next to its peers, and how far one run reaches it."""

from collections.abc import Callable, Iterator, Mapping

from bench.aims import CPU_WAIT_SHARE_MAX, Verdict
from bench.compare import samples
from bench.compare.contestants.contestant import Contestant, Durability
from bench.compare.contestants.danube import OURS
from bench.compare.disk import C_LOOP, DISK, WRITES
from bench.compare.workloads import (
    COMMON_CASE,
    CROWDED,
    LARGE,
    MANY_TOPICS,
    ONE_TOPIC,
    PRODUCERS,
    SHARE_CASE,
    SMALL,
    catch_up_case,
    publish_case,
)
from bench.results import Results, Sample, Series

Figure = Callable[[Sample], float]

PUBLISH_FACTOR = 5.0
DISK_SHARE = 0.7
CATCH_UP_FACTOR = 3.0
CATCH_UP_CPU_US = 0.5
TOPICS_FACTOR = 1.5
CROWDED_MEGABYTES = 500.0


def judge(results: Results, contestants: Mapping[str, Contestant]) -> list[Verdict]:
    """Every aim for which both sides were measured."""
    return [
        *_publish(results, contestants),
        *_against_disk(results),
        *_catch_up(results, contestants),
        *_latency(results, contestants),
        *_topics(results),
        *_memory(results),
    ]


def _publish(results: Results, contestants: Mapping[str, Contestant]) -> Iterator[Verdict]:
    for size, figure, unit in ((SMALL, samples.rate, "messages"), (LARGE, samples.bytes_rate, "bytes")):
        for producers in PRODUCERS:
            case = publish_case(size, producers)
            for durability, limit in ((Durability.SYNCED, PUBLISH_FACTOR), (Durability.DEFAULT, 1.0)):
                rivals = _rivals(results, "publish", case, contestants, durability)
                what = f"publish, {case}: {unit} a second of ours ÷"
                ours = results.find("publish", case, OURS)
                yield from _against_best(ours, rivals, figure, limit=limit, what=what, higher=True)


def _against_disk(results: Results) -> Iterator[Verdict]:
    """The best of the sizes of writes is what the disk can do."""
    disks = [series for case in WRITES if (series := results.find(DISK, case, C_LOOP))]
    ours = [series for n in PRODUCERS if (series := results.find("publish", publish_case(LARGE, n), OURS))]
    if not disks or not ours:
        return
    disk = max(disks, key=lambda series: series.median(samples.bytes_rate))
    best = max(ours, key=lambda series: series.median(samples.bytes_rate))
    starved = disk.median(lambda sample: sample.cpu_wait_seconds / sample.seconds)
    doubt = f"the C loop waited {starved:.0%} of its time for a CPU" if starved > CPU_WAIT_SHARE_MAX else ""
    yield Verdict(
        aim=f"publish, {best.case}: bytes a second of ours ÷ the disk's, {disk.case} a sync",
        limit=DISK_SHARE,
        measured=best.median(samples.bytes_rate) / disk.median(samples.bytes_rate),
        at_best=best.most(samples.bytes_rate) / disk.most(samples.bytes_rate),
        higher_is_better=True,
        doubt=doubt,
    )


def _catch_up(results: Results, contestants: Mapping[str, Contestant]) -> Iterator[Verdict]:
    case = catch_up_case(SMALL)
    ours = results.find("catchup", case, OURS)
    rivals = _rivals(results, "catchup", case, contestants)
    what = f"catch-up, {case}: messages a second of ours ÷"
    yield from _against_best(ours, rivals, samples.rate, limit=CATCH_UP_FACTOR, what=what, higher=True)
    if ours:
        yield Verdict(
            aim=f"catch-up, {case}: CPU µs of our broker a message",
            limit=CATCH_UP_CPU_US,
            measured=ours.median(samples.cpu_us),
            at_best=ours.least(samples.cpu_us),
        )


def _latency(results: Results, contestants: Mapping[str, Contestant]) -> Iterator[Verdict]:
    for case in (SHARE_CASE, COMMON_CASE):
        ours = results.find("latency", case, OURS)
        rivals = _rivals(results, "latency", case, contestants, Durability.SYNCED)
        what = f"latency, {case}: p99 of ours ÷"
        yield from _against_best(ours, rivals, samples.p99_us, limit=1.0, what=what, higher=False)


def _topics(results: Results) -> Iterator[Verdict]:
    one, many = results.find("topics", ONE_TOPIC, OURS), results.find("topics", MANY_TOPICS, OURS)
    if one and many:
        yield Verdict(
            aim=f"CPU a message of ours: {MANY_TOPICS} ÷ {ONE_TOPIC}",
            limit=TOPICS_FACTOR,
            measured=many.median(samples.cpu_us) / one.median(samples.cpu_us),
            at_best=many.least(samples.cpu_us) / one.least(samples.cpu_us),
        )


def _memory(results: Results) -> Iterator[Verdict]:
    if crowded := results.find("idle", CROWDED, OURS):
        yield Verdict(
            aim=f"resident megabytes of our broker with {CROWDED}",
            limit=CROWDED_MEGABYTES,
            measured=crowded.median(samples.rss_bytes) / 1e6,
            at_best=crowded.least(samples.rss_bytes) / 1e6,
        )


def _rivals(
    results: Results,
    workload: str,
    case: str,
    contestants: Mapping[str, Contestant],
    durability: Durability | None = None,
) -> list[Series]:
    """The peers measured in a case, all of them or those of one durability."""
    return [
        series
        for series in results.scenario(workload)
        if series.case == case
        and contestants[series.contestant].peer != "danube"
        and durability in (None, contestants[series.contestant].durability)
    ]


def _against_best(
    ours: Series | None, rivals: list[Series], figure: Figure, *, limit: float, what: str, higher: bool
) -> Iterator[Verdict]:
    if ours is None or not rivals:
        return
    best = (max if higher else min)(rivals, key=lambda series: series.median(figure))
    extreme = (ours.most(figure), best.most(figure)) if higher else (ours.least(figure), best.least(figure))
    yield Verdict(
        aim=f"{what} {best.contestant}",
        limit=limit,
        measured=ours.median(figure) / best.median(figure),
        at_best=extreme[0] / extreme[1],
        higher_is_better=higher,
    )
