"""One run as tables: for the terminal with rich, for the documents as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as RichTable

from bench import aims, delivery, durable, publish, servers
from bench.results import Results, Series


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_markdown(self) -> str:
        """Text columns to the left (the first two), figures to the right."""
        rule = ["---" if position < 2 else "---:" for position in range(len(self.columns))]
        lines = [f"| {' | '.join(cells)} |" for cells in (self.columns, rule, *self.rows)]
        return f"### {self.title}\n\n" + "\n".join(lines)

    def print_to(self, console: Console) -> None:
        table = RichTable(title=self.title, title_justify="left")
        for position, column in enumerate(self.columns):
            table.add_column(column, justify="left" if position < 2 else "right")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def tables(results: Results) -> list[Table]:
    every = [
        _cost_table("Unary publish, non-reliable topic", publish.SCENARIO, results),
        _cost_table("Stream delivery, 1 KiB", delivery.SCENARIO, results),
        _durable_table(results),
        _aims_table(results),
    ]
    return [table for table in every if table.rows]


def _cost_table(title: str, scenario: str, results: Results) -> Table:
    columns = ["case", "server", "CPU µs/msg min", "med", "÷ ours", "msg/s best", "med", "RSS MB", "dropped"]
    rows = []
    for series in _by_case(results.scenario(scenario)):
        cost = series.median(lambda sample: sample.cpu_us)
        ours = results.find(scenario, series.case, servers.OURS)
        rows.append(
            [
                series.case,
                series.contestant,
                f"{series.least(lambda sample: sample.cpu_us):.2f}",
                f"{cost:.2f}",
                f"{cost / ours.median(lambda sample: sample.cpu_us):.1f}" if ours else "",
                f"{series.most(lambda sample: sample.rate):,.0f}",
                f"{series.median(lambda sample: sample.rate):,.0f}",
                f"{series.median(lambda sample: sample.rss_bytes) / 1e6:.0f}",
                _dropped_share(series),
            ]
        )
    return Table(title, columns, rows)


def _by_case(every: list[Series]) -> list[Series]:
    """Bring the contestants of a case together; cases stay in the order they were first measured."""
    cases = list(dict.fromkeys(series.case for series in every))
    return sorted(every, key=lambda series: cases.index(series.case))


def _dropped_share(series: Series) -> str:
    dropped = sum(sample.dropped for sample in series.samples)
    delivered = sum(sample.messages for sample in series.samples)
    return f"{dropped / (dropped + delivered):.0%}" if dropped > 0 else ""


def _durable_table(results: Results) -> Table:
    columns = [
        "case",
        "who",
        "acked/s best",
        "med",
        "commits/s worst",
        "med",
        "best",
        "KB/commit",
        "CPU µs/msg med",
    ]
    rows = []
    for series in results.scenario(durable.SCENARIO):
        is_disk = series.contestant == durable.DISK
        kilobytes = series.median(lambda sample: sample.commit_bytes / sample.commits / 1e3)
        rows.append(
            [
                series.case,
                series.contestant,
                "" if is_disk else f"{series.most(lambda sample: sample.rate):,.0f}",
                "" if is_disk else f"{series.median(lambda sample: sample.rate):,.0f}",
                f"{series.least(lambda sample: sample.commit_rate):,.0f}",
                f"{series.median(lambda sample: sample.commit_rate):,.0f}",
                f"{series.most(lambda sample: sample.commit_rate):,.0f}",
                f"{kilobytes:.1f}",
                "" if is_disk else f"{series.median(lambda sample: sample.cpu_us):.1f}",
            ]
        )
    return Table("Durable publish (fdatasync before every answer), 1 KiB", columns, rows)


def _aims_table(results: Results) -> Table:
    rows = []
    for verdict in aims.judge(results):
        sign = "≥" if verdict.higher_is_better else "≤"
        limit = f"{sign} {verdict.limit:.3g}"
        rows.append(
            [verdict.aim, verdict.outcome, limit, f"{verdict.measured:.3f}", f"{verdict.at_best:.3f}"]
        )
    return Table("Aims", ["aim", "", "limit", "median", "best rounds"], rows)
