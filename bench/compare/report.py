"""One comparison as tables: medians with their spread, ratios to ours, and what is missing in plain sight."""

from collections.abc import Callable, Iterator, Mapping

from bench.compare import aims, samples
from bench.compare.contestants.contestant import Contestant
from bench.compare.contestants.danube import OURS
from bench.compare.disk import C_LOOP, DISK
from bench.compare.turn import Findings
from bench.compare.workloads import EMPTY, MANY_TOPICS, ONE_TOPIC, WORKLOADS, Workload
from bench.report import Table
from bench.results import Results, Sample, Series

Flag = Callable[[str], str]
"""How an absence is made to stand out: red on a terminal, bold in Markdown."""
Figure = Callable[[Sample], float]


def tables(findings: Findings, contestants: Mapping[str, Contestant], flag: Flag) -> list[Table]:
    every = [
        _contestants(findings, contestants, flag),
        _disk(findings.results),
        *(_workload(workload, findings, flag) for workload in WORKLOADS),
        _aims(findings.results, contestants),
    ]
    return [table for table in every if table.rows]


def commands(results: Results) -> Table:
    """The exact command of each contestant's last measured slice of every workload."""
    last = {
        (series.scenario, series.contestant): f"`{_shortened(command)}`"
        for series in results.series.values()
        if (command := samples.of(series.samples[-1]).command)
    }
    return Table(
        "Commands", ["workload", "contestant", "command"], [[*who, text] for who, text in last.items()]
    )


def _shortened(command: str) -> str:
    """A payload given on the command line is not worth reading in full."""
    for size in (1024, 128):
        command = command.replace("x" * size, f"<{size} × x>")
    return command.replace("|", "\\|")


def _contestants(findings: Findings, contestants: Mapping[str, Contestant], flag: Flag) -> Table:
    missing = {absence.contestant: absence.reason for absence in findings.absences if not absence.workload}
    rows = [
        [name, flag(missing[name]) if name in missing else contestant.settings]
        for name, contestant in contestants.items()
    ]
    return Table("Contestants", ["contestant", "settings"], rows)


def _disk(results: Results) -> Table:
    rows = [
        [
            f"{series.case} a sync",
            C_LOOP,
            _spread(series, lambda sample: samples.bytes_rate(sample) / 1e6, 0),
            _spread(series, samples.rate, 0),
        ]
        for series in results.scenario(DISK)
    ]
    return Table("The disk alone", ["write", "who", "MB/s", "syncs/s"], rows)


def _workload(workload: Workload, findings: Findings, flag: Flag) -> Table:
    columns = {"latency": _LATENCY, "idle": _IDLE, "topics": [*_RATES, _TOPIC_COST]}.get(
        workload.name, _RATES
    )
    rows = []
    for case in _cases(workload, findings):
        for series in findings.results.scenario(workload.name):
            if series.case == case:
                cells = [show(series, findings.results) for _, show in columns]
                rows.append([case, series.contestant, *cells])
        rows += _missing(workload, case, findings, flag, len(columns))
    return Table(workload.title, ["case", "contestant", *(title for title, _ in columns)], rows)


def _cases(workload: Workload, findings: Findings) -> list[str]:
    measured = [series.case for series in findings.results.scenario(workload.name)]
    missed = [absence.case for absence in findings.absences if absence.workload == workload.name]
    return list(dict.fromkeys([*measured, *missed]))


def _missing(
    workload: Workload, case: str, findings: Findings, flag: Flag, width: int
) -> Iterator[list[str]]:
    for absence in findings.absences:
        if absence.workload == workload.name and absence.case == case:
            reason = absence.reason.replace("\n", " ").replace("|", "/")
            yield [case or "all", absence.contestant, flag(f"not run: {reason}"), *[""] * (width - 1)]


def _spread(series: Series, figure: Figure, digits: int) -> str:
    """Median, and from the least to the most where there was more than one round."""
    middle = f"{series.median(figure):,.{digits}f}"
    if len(series.samples) == 1:
        return middle
    return f"{middle} ({series.least(figure):,.{digits}f}–{series.most(figure):,.{digits}f})"


def _ours(series: Series, results: Results, figure: Figure) -> str:
    """How many times ours this is."""
    ours = results.find(series.scenario, series.case, OURS)
    theirs = series.median(figure)
    return f"{ours.median(figure) / theirs:.2f}" if ours and theirs else ""


def _topic_cost(series: Series, results: Results) -> str:
    one = results.find(series.scenario, ONE_TOPIC, series.contestant)
    if series.case != MANY_TOPICS or one is None:
        return ""
    return f"{series.median(samples.cpu_us) / one.median(samples.cpu_us):.2f}"


Column = tuple[str, Callable[[Series, Results], str]]

_RATES: list[Column] = [
    ("msg/s", lambda series, _: _spread(series, samples.rate, 0)),
    ("MB/s", lambda series, _: f"{series.median(samples.bytes_rate) / 1e6:,.1f}"),
    ("ours ÷", lambda series, results: _ours(series, results, samples.rate)),
    ("server CPU µs/msg", lambda series, _: _spread(series, samples.cpu_us, 2)),
    ("RSS MB", lambda series, _: f"{series.median(samples.rss_bytes) / 1e6:,.0f}"),
]
_TOPIC_COST: Column = ("CPU ÷ 1 topic", _topic_cost)
_LATENCY: list[Column] = [
    ("msg/s asked", lambda series, _: f"{series.median(lambda s: samples.of(s).rate_asked):,.0f}"),
    ("msg/s", lambda series, _: f"{series.median(samples.rate):,.0f}"),
    ("p50 µs", lambda series, _: _spread(series, samples.p50_us, 0)),
    ("p99 µs", lambda series, _: _spread(series, samples.p99_us, 0)),
    (
        "p99.9 µs",
        lambda series, _: _spread(series, samples.p999_us, 0) if series.most(samples.p999_us) else "unknown",
    ),
    ("p99: ours ÷", lambda series, results: _ours(series, results, samples.p99_us)),
]
_IDLE: list[Column] = [
    ("RSS MB", lambda series, _: _spread(series, lambda sample: sample.rss_bytes / 1e6, 0)),
    (
        "start-up s",
        lambda series, _: _spread(series, samples.start_seconds, 2) if series.case == EMPTY else "",
    ),
]


def _aims(results: Results, contestants: Mapping[str, Contestant]) -> Table:
    rows = []
    for verdict in aims.judge(results, contestants):
        limit = f"{'≥' if verdict.higher_is_better else '≤'} {verdict.limit:.3g}"
        rows.append(
            [verdict.aim, verdict.outcome, limit, f"{verdict.measured:.3g}", f"{verdict.at_best:.3g}"]
        )
    return Table("Aims next to the peers", ["aim", "", "limit", "median", "best rounds"], rows)
