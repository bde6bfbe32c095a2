"""What is recorded, added up and told."""

import json
from pathlib import Path

import pytest

from pydanube.bench.crew import Ending
from pydanube.bench.plan import Plan
from pydanube.bench.plot import check_plot, plot
from pydanube.bench.recorder import LATENCY_NS_MAX, SLOT_NS, Measured, Recorder
from pydanube.bench.report import Report
from pydanube.bench.run import Result
from pydanube.bench.sequences import Verdict
from pydanube.bench.worker import Outcome
from pydanube.kernel.errors import Rejected

MS_NS = 1_000_000
BEGIN_NS = 5_000_000_000


def recorded(*, messages: int = 100, latency_ms: int = 2, after_ms: int = 500) -> Measured:
    recorder = Recorder(BEGIN_NS)
    recorder.record(BEGIN_NS + after_ms * MS_NS, latency_ms * MS_NS, messages, messages * 10)
    return recorder.measured(cpu_seconds=0.001)


def report(
    outcome: Outcome,
    *,
    ending: Ending = Ending.COMPLETE,
    broker_cpu_seconds: float | None = 0.0005,
    unanswered: int = 0,
) -> Report:
    result = Result(outcome=outcome, broker_cpu_seconds=broker_cpu_seconds, ending=ending)
    count = outcome.measured.messages + outcome.measured.errors + unanswered
    return Report("publish", Plan(run="r", token="hush", size=10, count=count), result)


def test_a_report_has_the_promised_fields() -> None:
    fields = report(Outcome(measured=recorded())).fields()
    assert fields["messages_per_second"] == 200.0
    assert fields["bytes_per_second"] == 2000.0
    assert fields["p50_us"] == fields["p99_us"] == fields["max_us"] == pytest.approx(2000, rel=0.001)
    assert fields["client_cpu_us_per_message"] == 10.0
    assert fields["broker_cpu_us_per_message"] == 5.0
    assert (fields["messages"], fields["bytes"], fields["seconds"], fields["errors"]) == (100, 1000, 0.5, 0)
    assert "hush" not in json.dumps(fields)


def test_a_broker_elsewhere_has_no_cpu_figure() -> None:
    assert (
        "broker_cpu_us_per_message"
        not in report(Outcome(measured=recorded()), broker_cpu_seconds=None).fields()
    )


def test_processes_add_up() -> None:
    both = recorded(messages=300, latency_ms=1, after_ms=100) + recorded(
        messages=100, latency_ms=9, after_ms=500
    )
    fields = report(Outcome(measured=both)).fields()
    assert fields["messages"] == 400
    assert fields["seconds"] == 0.5
    assert fields["messages_per_second"] == 800.0
    assert fields["p50_us"] == pytest.approx(1000, rel=0.001)
    assert fields["p99_us"] == pytest.approx(9000, rel=0.001)
    assert both.messages_per_second() == [(0.0, 3000.0), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.4, 1000.0)]


def test_a_run_that_breaks_off_leaves_no_fewer_than_no_messages_unanswered() -> None:
    recorder = Recorder(BEGIN_NS)
    recorder.fail("refused", 100)
    recorder.fail("the run broke off")
    fields = report(Outcome(measured=recorder.measured(cpu_seconds=0.0)), unanswered=-1).fields()
    assert (fields["failed"], fields["unanswered"]) == (101, 0)
    assert fields["error_texts"] == ["refused", "the run broke off"]


def test_nothing_measured_is_all_zero() -> None:
    fields = report(Outcome(measured=Recorder(BEGIN_NS).measured(cpu_seconds=0.0))).fields()
    assert (fields["messages_per_second"], fields["p99_us"], fields["broker_cpu_us_per_message"]) == (0, 0, 0)
    assert report(Outcome()).lines()


def test_values_outside_the_histogram_count_at_its_ends() -> None:
    recorder = Recorder(BEGIN_NS)
    recorder.record(BEGIN_NS, -5, 1, 1)
    recorder.record(BEGIN_NS, 2 * LATENCY_NS_MAX, 1, 1)
    assert recorder.measured(cpu_seconds=0.0).latency().get_total_count() == 2


def test_errors_are_the_failed_and_the_wrong() -> None:
    recorder = Recorder(BEGIN_NS)
    for _ in range(3):
        recorder.fail("the broker is stopping", 2)
    outcome = Outcome(measured=recorder.measured(cpu_seconds=0.0), verdict=Verdict(lost=4, duplicated=1))
    told = report(outcome)
    assert told.errors == 11
    assert told.error_texts() == ["the broker is stopping", "4 lost, 1 duplicated"]


def test_what_was_not_waited_for_is_not_lost() -> None:
    outcome = Outcome(measured=recorded(), verdict=Verdict(lost=4, duplicated=1))
    stopped = report(outcome, ending=Ending.INTERRUPTED, unanswered=9)
    assert stopped.errors == 1
    assert stopped.fields()["ending"] == "interrupted"


def test_a_missing_receipt_is_an_error() -> None:
    stalled = report(Outcome(measured=recorded()), ending=Ending.STALLED, unanswered=9)
    assert stalled.errors == stalled.fields()["unanswered"] == 9
    assert stalled.error_texts()[0] == "9 messages were not answered"
    assert "--timeout" in stalled.error_texts()[1]


def test_the_table_tells_the_same() -> None:
    lines = dict(report(Outcome(measured=recorded())).lines())
    assert lines["throughput"].startswith("200 messages/s")
    assert lines["latency p50"] == lines["p99"] == "2,001 µs"
    assert lines["broker CPU"] == "5.000 µs a message"
    assert lines["errors"] == "none"


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_drawn_in_the_wanted_form(tmp_path: Path, suffix: str, magic: bytes) -> None:
    path = tmp_path / f"run{suffix}"
    check_plot(path)
    plot(report(Outcome(measured=recorded() + recorded(after_ms=900))), path)
    assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize("name", ["run.pdf", "run", "missing/run.png"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected, match="--plot"):
        check_plot(tmp_path / name)


def test_a_slot_is_a_tenth_of_a_second() -> None:
    assert SLOT_NS == 100 * MS_NS
