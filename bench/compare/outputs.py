"""What the load generators print, understood. Pure: text in, figures out."""

import csv
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load import LoadError

WARM_SECONDS_MIN = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a load generator measured.

    Where a tool warms up first, `messages` counts everything it sent and `seconds` is how long that would take at
    the rate after the warm-up. Percentiles are those of end-to-end latency, zero where they were not asked for.
    """

    messages: int
    seconds: float
    p50_us: float = 0.0
    p99_us: float = 0.0
    p999_us: float = 0.0
    """Zero where the tool does not know it."""

    @property
    def rate(self) -> float:
        return self.messages / self.seconds


def driver_line(text: str) -> Outcome:
    """The one line of JSON our own drivers print."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
        return Outcome(
            messages=int(found["messages"]),
            seconds=float(found["seconds"]),
            p50_us=float(found["p50_us"]),
            p99_us=float(found["p99_us"]),
            p999_us=float(found["p999_us"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _not_understood("driver", text) from error


def danube_bench(text: str) -> Outcome:
    """`danube bench … --output json`: one object with rates and percentiles."""
    try:
        found = json.loads(text)
        return Outcome(
            messages=int(found["messages"]),
            seconds=int(found["messages"]) / float(found["messages_per_second"]),
            p50_us=float(found["p50_us"]),
            p99_us=float(found["p99_us"]),
            p999_us=float(found["p999_us"]),
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise _not_understood("danube bench", text) from error


def redis_benchmark(text: str, *, requests: int, messages_per_request: int = 1) -> Outcome:
    """`redis-benchmark --csv`: a header, then one line with requests a second."""
    rows = list(csv.DictReader(text.strip().splitlines()))
    try:
        rate = float(rows[-1]["rps"])
        return Outcome(messages=requests * messages_per_request, seconds=requests / rate)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise _not_understood("redis-benchmark", text) from error


def kafka_producer(text: str) -> Outcome:
    """ProducerPerformance's last summary: the steady state if there was a warm-up, else the whole."""
    summary = r"^(\d+) (?:steady state )?records sent, ([\d.]+) records/sec.* 99\.9th\.$"
    lines = re.findall(summary, text, re.MULTILINE)
    if not lines or float(lines[-1][1]) == 0:
        raise _not_understood("ProducerPerformance", text)
    records = int(lines[0][0])
    return Outcome(messages=records, seconds=records / float(lines[-1][1]))


def kafka_consumer(text: str) -> Outcome:
    """ConsumerPerformance's line; the time of fetching, without the time of joining the group."""
    lines = [line.split(",") for line in text.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    try:
        records, fetch_ms = int(lines[-1][4]), float(lines[-1][7])
        if records == 0 or fetch_ms <= 0:
            raise _not_understood("ConsumerPerformance", text)
        return Outcome(messages=records, seconds=fetch_ms / 1000)
    except (IndexError, ValueError) as error:
        raise _not_understood("ConsumerPerformance", text) from error


def perf_test(text: str, *, messages: int, received: bool) -> Outcome:
    """RabbitMQ's PerfTest: the rate of confirms or of deliveries, and the consumers' latency.

    Both are means over the seconds after the first, which belongs to the tool's own warm-up; a run too short for
    that has its overall figures only.
    """
    overall = re.search(rf"{'receiving' if received else 'sending'} rate avg: (\d+) msg/s", text)
    if overall is None:
        raise _not_understood("PerfTest", text)
    each_second = re.findall(rf"{'received' if received else 'confirmed'}: (\d+) msg/s", text)
    rate = _after_warm_up(each_second) or int(overall[1])
    if rate == 0:
        raise _not_understood("PerfTest", text)
    spread = r"[\d.]+/([\d.]+)/[\d.]+/[\d.]+/([\d.]+) µs"
    seconds = re.findall(rf"min/median/75th/95th/99th consumer latency: {spread}", text)
    whole = re.search(rf", consumer latency min/median/75th/95th/99th {spread}", text)
    p50_us, p99_us = map(float, whole.groups()) if whole else (0.0, 0.0)
    return Outcome(
        messages=messages,
        seconds=messages / rate,
        p50_us=_after_warm_up([p50 for p50, _ in seconds]) or p50_us,
        p99_us=_after_warm_up([p99 for _, p99 in seconds]) or p99_us,
    )


def _after_warm_up(each_second: Sequence[str]) -> float:
    """The mean of all but the first; zero if that is too little to go by."""
    warm = [float(figure) for figure in each_second[1:]]
    return statistics.mean(warm) if len(warm) >= WARM_SECONDS_MIN else 0.0


def _not_understood(tool: str, text: str) -> LoadError:
    return LoadError(f"{tool} printed no result: {text.strip()[-300:] or 'nothing at all'}")
