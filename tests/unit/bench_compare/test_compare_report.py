"""Tables show medians, spreads and ratios, and who is missing; aims are judged against the best rival."""

from bench.compare import aims, chart, document, report
from bench.compare.contestants import everyone
from bench.compare.contestants.contestant import Contestant, Durability
from bench.compare.contestants.danube import OURS
from bench.compare.disk import C_LOOP, DISK
from bench.compare.samples import LoadSample
from bench.compare.turn import Findings
from bench.compare.workloads import (
    CROWDED,
    LARGE,
    MANY_TOPICS,
    ONE_TOPIC,
    SHARE_CASE,
    SMALL,
    WORKLOADS,
    catch_up_case,
    publish_case,
)
from bench.report import Table

CONTESTANTS: dict[str, Contestant] = {who.name: who for who in everyone()}
SYNCED, DEFAULT = "Redis Streams, synced", "Redis Streams, default"
CASE = publish_case(SMALL, 1)


def _findings(*samples: tuple[str, str, str, LoadSample]) -> Findings:
    findings = Findings()
    for workload, case, contestant, sample in samples:
        findings.results.add(workload, case, contestant, sample)
    return findings


def _at(
    rate: int, *, size: int = SMALL, cpu_us: float = 1.0, p99_us: float = 0.0, command: str = ""
) -> LoadSample:
    cpu_seconds = rate * cpu_us / 1e6
    return LoadSample(rate, 1.0, cpu_seconds, size=size, p99_us=p99_us, command=command)


def _table(findings: Findings, title: str) -> Table:
    found = report.tables(findings, CONTESTANTS, lambda text: f"!{text}!")
    return next(table for table in found if table.title == title)


def _verdicts(findings: Findings) -> dict[str, tuple[float, str]]:
    return {v.aim: (v.measured, v.outcome) for v in aims.judge(findings.results, CONTESTANTS)}


def test_every_contestant_has_a_name_of_its_own_and_a_peer_is_there_once_synced_and_once_not() -> None:
    assert len(CONTESTANTS) == len(everyone())
    for peer in ("nats", "redis", "kafka", "rabbitmq"):
        kinds = {who.durability for who in CONTESTANTS.values() if who.peer == peer}
        assert kinds == {Durability.SYNCED, Durability.DEFAULT}


def test_every_workload_has_ours_in_it_and_durability_counts_where_something_is_written() -> None:
    synced = next(who for who in CONTESTANTS.values() if who.name == SYNCED)
    for workload in WORKLOADS:
        assert workload.admits(CONTESTANTS[OURS])
        assert workload.admits(synced) == (workload.name not in {"catchup", "idle"})


def test_a_row_has_median_spread_and_ratio() -> None:
    rows = _table(
        _findings(
            ("publish", CASE, OURS, _at(600)),
            *(("publish", CASE, SYNCED, _at(rate, cpu_us=2)) for rate in (100, 300, 200)),
        ),
        "Publish",
    ).rows
    assert rows[0][2] == "600"
    assert list(rows[1][:6]) == [CASE, SYNCED, "200 (100–300)", "0.0", "3.00", "2.00 (2.00–2.00)"]


def test_who_is_missing_is_flagged_in_its_place() -> None:
    findings = _findings(("publish", CASE, OURS, _at(600)))
    findings.miss("publish", CASE, SYNCED, "the tool | broke\noff")
    findings.miss("", "", DEFAULT, "not installed: no package")
    assert _table(findings, "Publish").rows[1][:3] == [CASE, SYNCED, "!not run: the tool / broke off!"]
    assert [DEFAULT, "!not installed: no package!"] in list(_table(findings, "Contestants").rows)


def test_a_server_that_failed_is_flagged_for_the_whole_workload() -> None:
    findings = Findings()
    findings.miss("idle", "", SYNCED, "server failed: port in use")
    assert _table(findings, "Start-up and idle memory").rows[0][:2] == ["all", SYNCED]


def test_publishing_is_judged_against_the_best_of_each_durability() -> None:
    found = _verdicts(
        _findings(
            ("publish", CASE, OURS, _at(1000)),
            ("publish", CASE, SYNCED, _at(100)),
            ("publish", CASE, "Kafka, synced", _at(50)),
            ("publish", CASE, DEFAULT, _at(2000)),
            ("publish", CASE, "pydanube, gRPC", _at(9999)),
        )
    )
    assert found == {
        f"publish, {CASE}: messages a second of ours ÷ {SYNCED}": (10.0, "met"),
        f"publish, {CASE}: messages a second of ours ÷ {DEFAULT}": (0.5, "missed"),
    }


def test_our_bytes_are_measured_by_the_disk_at_its_best() -> None:
    found = _verdicts(
        _findings(
            ("publish", publish_case(LARGE, 16), OURS, _at(800, size=LARGE)),
            (DISK, "4 KiB", C_LOOP, _at(1, size=LARGE)),
            (DISK, "1 MiB", C_LOOP, _at(1000, size=LARGE)),
        )
    )
    aim = f"publish, {publish_case(LARGE, 16)}: bytes a second of ours ÷ the disk's, 1 MiB a sync"
    assert found == {aim: (0.8, "met")}


def test_a_disk_that_waited_for_a_cpu_proves_nothing() -> None:
    starved = LoadSample(10, 1.0, size=LARGE, cpu_wait_seconds=0.5)
    sample = _at(800, size=LARGE)
    found = _verdicts(
        _findings(("publish", publish_case(LARGE, 1), OURS, sample), (DISK, "1 MiB", C_LOOP, starved))
    )
    assert [outcome.partition(":")[0] for _, outcome in found.values()] == ["inconclusive"]


def test_reading_latency_topics_and_memory_have_their_aims() -> None:
    found = _verdicts(
        _findings(
            ("catchup", catch_up_case(SMALL), OURS, _at(900, cpu_us=0.25)),
            ("catchup", catch_up_case(SMALL), DEFAULT, _at(100)),
            ("latency", SHARE_CASE, OURS, _at(10, p99_us=30)),
            ("latency", SHARE_CASE, SYNCED, _at(10, p99_us=20)),
            ("latency", SHARE_CASE, DEFAULT, _at(10, p99_us=1)),
            ("topics", ONE_TOPIC, OURS, _at(10, cpu_us=1)),
            ("topics", MANY_TOPICS, OURS, _at(10, cpu_us=1.25)),
            ("idle", CROWDED, OURS, LoadSample(0, 0, rss_bytes=600_000_000)),
        )
    )
    assert list(found.values()) == [
        (9.0, "met"),
        (0.25, "met"),
        (1.5, "missed"),
        (1.25, "met"),
        (600.0, "missed"),
    ]


def test_commands_are_shown_without_their_payload() -> None:
    findings = _findings(("publish", CASE, SYNCED, _at(1, command=f"redis-benchmark XADD {'x' * LARGE} | y")))
    assert report.commands(findings.results).rows[0] == [
        "publish",
        SYNCED,
        "`redis-benchmark XADD <1024 × x> \\| y`",
    ]


def test_a_part_is_put_between_its_markers_once() -> None:
    once = document.between_markers("# Title\n", "the old part")
    assert once.startswith("# Title\n\n## Against the peers\n")
    twice = document.between_markers(once + "after\n", "the new part")
    assert "the old part" not in twice
    assert twice.count("## Against the peers") == 1
    assert twice.endswith("the new part\n\n<!-- peers: end -->\nafter\n")


def test_the_picture_has_a_bar_for_everyone_measured() -> None:
    case = publish_case(SMALL, 16)
    findings = _findings(("publish", case, OURS, _at(600)), ("publish", case, SYNCED, _at(100)))
    picture = chart.draw(findings.results, CONTESTANTS)
    assert picture.count("<rect") == 1 + 2
    assert picture.index(OURS) < picture.index(SYNCED)
