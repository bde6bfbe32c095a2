"""A turn sizes its slices by the contestant's own speed, and lets one failed case be one failed case."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.compare.contestants.contestant import Contestant, Durability, Load, NotApplicableError, Service
from bench.compare.outputs import Outcome
from bench.compare.samples import Absence, of
from bench.compare.serving import ServerProcess
from bench.compare.turn import SLICE_BYTES_MAX, SLICE_MESSAGES_MIN, Effort, Findings, Turn
from bench.load import LoadError

EFFORT = Effort(
    rounds=1, seconds=4.0, catch_up_messages=10, idle_topics=1, idle_connections=1, settle_seconds=0
)


class SteadyService(Service):
    """Takes everything at the rates it was given, one after the other; the last one stays."""

    def __init__(self, *rates: float) -> None:
        super().__init__(ServerProcess(pid=os.getpid(), start_seconds=0.25))
        self.rates = list(rates)
        self.loads: list[Load] = []

    def publish(self, load: Load) -> Outcome:
        self.loads.append(load)
        rate = self.rates.pop(0) if len(self.rates) > 1 else self.rates[0]
        self.last_command = f"publish {load.count}"
        return Outcome(load.count, load.count / rate)

    def consume(self, load: Load) -> Outcome:
        raise LoadError("the tool broke off")

    def fan_out(self, load: Load) -> Outcome:
        outcome = self.publish(load)
        return Outcome(load.count * load.consumers, outcome.seconds)

    def latency(self, load: Load) -> Outcome:
        self.loads.append(load)
        return Outcome(load.count, load.count / load.rate, 1.0, 2.0, 3.0)


class Steady(Contestant):
    peer = name = settings = "steady"
    durability = Durability.SYNCED
    reads = True
    pilot_messages = 1_000

    def install(self) -> str:
        return "1"

    @contextmanager
    def serve(self, folder: Path) -> Iterator[Service]:
        yield SteadyService(1.0)


def _turn(service: Service, findings: Findings | None = None) -> Turn:
    findings = findings or Findings()
    return Turn("work", Steady(), service, effort=EFFORT, findings=findings, say=lambda _: None)


LOAD = Load(topic="t", size=100, count=0)


def test_a_slice_lasts_as_long_as_asked() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    _turn(service, findings).slice("case", service.publish, LOAD)
    series = findings.results.find("work", "case", "steady")
    assert series is not None
    assert [sample.messages for sample in series.samples] == [8_000]
    assert of(series.samples[0]).command == "publish 8000"
    assert of(series.samples[0]).size == 100


def test_a_pilot_grows_until_it_says_something() -> None:
    service = SteadyService(100_000.0)
    _turn(service).slice("case", service.publish, LOAD)
    assert [load.count for load in service.loads][:3] == [1_000, 8_000, 64_000]


def test_a_slow_starter_is_warmed_up_before_it_counts() -> None:
    service, findings = SteadyService(1_000.0, 2_000.0, 4_000.0, 8_000.0, 8_000.0), Findings()
    _turn(service, findings).slice("case", service.publish, LOAD)
    assert findings.results.series["work", "case", "steady"].samples[0].messages == 32_000


def test_a_later_round_is_sized_by_the_one_before() -> None:
    findings = Findings()
    _turn(first := SteadyService(2_000.0), findings).slice("case", first.publish, LOAD)
    _turn(second := SteadyService(9_999.0), findings).slice("case", second.publish, LOAD)
    assert [load.count for load in second.loads] == [2_000, 8_000]


def test_one_case_can_have_as_many_messages_as_another() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    turn = _turn(service, findings)
    turn.slice("one", service.publish, LOAD)
    service.rates = [10.0]
    turn.slice("many", service.publish, LOAD, sized_like="one")
    assert findings.results.series["work", "many", "steady"].samples[0].messages == 8_000


def test_slices_are_bounded() -> None:
    for rate, count in ((1.0, SLICE_MESSAGES_MIN), (1e9, SLICE_BYTES_MAX // LOAD.size)):
        service = SteadyService(rate)
        _turn(service).slice("case", service.publish, LOAD)
        assert service.loads[-1].count == count


def test_a_fan_out_counts_deliveries_and_is_sized_by_what_is_published() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    load = Load(topic="t", size=100, count=0, consumers=4)
    for _ in range(2):
        _turn(service, findings).slice("case", service.fan_out, load)
    samples = findings.results.series["work", "case", "steady"].samples
    assert [sample.messages for sample in samples] == [32_000, 32_000]
    assert samples[0].rate == pytest.approx(8_000)


def test_latency_is_asked_for_at_a_share_of_the_publish_rate() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    _turn(service, findings).at_share("case", 0.1, LOAD)
    sample = of(findings.results.series["work", "case", "steady"].samples[0])
    assert (sample.rate_asked, sample.messages, sample.p99_us) == (200, 800, 2.0)


def test_a_failure_is_an_absence_and_other_cases_go_on() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    turn = _turn(service, findings)
    turn.exactly("read", service.consume, LOAD)
    turn.slice("write", service.publish, LOAD)
    assert findings.absences == [Absence("work", "read", "steady", "the tool broke off")]
    assert [series.case for series in findings.results.series.values()] == ["write"]


def test_a_failed_case_is_not_tried_again_and_keeps_no_samples() -> None:
    service, findings = SteadyService(2_000.0), Findings()
    turn = _turn(service, findings)
    turn.exactly("case", service.publish, Load(topic="t", size=1, count=5))
    turn.exactly("case", service.consume, LOAD)
    turn.exactly("case", service.publish, Load(topic="t", size=1, count=5))
    assert len(service.loads) == 1
    assert not findings.results.series
    assert len(findings.absences) == 1


def test_what_a_contestant_does_not_have_is_said_in_its_words() -> None:
    def refuse(_: Load) -> Outcome:
        raise NotApplicableError("no such thing")

    findings = Findings()
    _turn(SteadyService(1.0), findings).unmeasured("case", refuse, LOAD)
    assert findings.absences == [Absence("work", "case", "steady", "no such thing")]


def test_a_server_at_rest_is_weighed() -> None:
    findings = Findings()
    _turn(SteadyService(1.0), findings).rest("empty")
    sample = of(findings.results.series["work", "empty", "steady"].samples[0])
    assert sample.rss_bytes > 0
    assert sample.start_seconds == 0.25
