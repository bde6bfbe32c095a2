"""`python -m bench`: measure, print, keep the numbers."""

import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import aims, chart, delivery, durable, machine, publish, report, toolchain
from bench.plan import Plan
from bench.results import Results
from bench.servers import ROOT

SCENARIOS = {publish.SCENARIO: publish.run, delivery.SCENARIO: delivery.run, durable.SCENARIO: durable.run}
RESULTS_FOLDER = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks.svg"
TABLE_WIDTH_MIN = 120
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"


@click.command(context_settings={"show_default": True})
@click.option("--quick", is_flag=True, help="One round of short slices: under 90 s, rough numbers.")
@click.option("--only", type=click.Choice(list(SCENARIOS)), multiple=True, help="Run only these scenarios.")
@click.option("--rounds", type=click.IntRange(1, 50), default=5, help="Interleaved rounds per scenario.")
@click.option("--seconds", type=click.FloatRange(0.1, 30), default=1.0, help="Length of a slice of load.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@click.option("--write-docs", is_flag=True, help="Put the tables and the chart into docs/benchmarks.md.")
def main(  # noqa: PLR0917 - one per option
    quick: bool, only: tuple[str, ...], rounds: int, seconds: float, output: str, write_docs: bool
) -> None:
    """CPU per message, messages a second and durable commits, next to grpc-go, grpcio and the disk."""
    progress = Console(stderr=True)
    progress.print("preparing tools (h2load, Go programs, disk probe)")
    tools = toolchain.prepare()
    results = Results()
    for reason in tools.missing:
        results.note(f"missing: {reason}")
    surroundings = machine.describe()
    # In the checkout, not in the system's temporary folder: that one is often memory, and sync is free there.
    toolchain.TOOLS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=toolchain.TOOLS))
    try:
        with progress.status("starting") as status:
            plan = Plan(
                rounds=1 if quick else rounds,
                seconds=min(seconds, 0.5) if quick else seconds,
                scratch=scratch,
                tools=tools,
                results=results,
                say=status.update,
            )
            for name, run in SCENARIOS.items():
                if not only or name in only:
                    run(plan)
    finally:
        shutil.rmtree(scratch)

    document = _as_document(surroundings, results)
    _save(document, progress)
    if output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        _print_tables(surroundings, results)
    if write_docs:
        _write_docs(surroundings, results)
    if not results.series:
        sys.exit("nothing could be measured; the notes say why")


def _as_document(surroundings: dict[str, str], results: Results) -> dict[str, Any]:
    verdicts = [
        {"aim": v.aim, "limit": v.limit, "measured": v.measured, "at_best": v.at_best, "outcome": v.outcome}
        for v in aims.judge(results)
    ]
    return {"machine": surroundings, "notes": results.notes, "series": results.as_json(), "aims": verdicts}


def _save(document: dict[str, Any], progress: Console) -> None:
    RESULTS_FOLDER.mkdir(exist_ok=True)
    path = RESULTS_FOLDER / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    progress.print(f"saved {path.relative_to(ROOT)}")


def _print_tables(surroundings: dict[str, str], results: Results) -> None:
    console = Console()
    console.width = max(console.width, TABLE_WIDTH_MIN)
    for key, value in surroundings.items():
        console.print(f"[bold]{key}[/]: {value}")
    for table in report.tables(results):
        console.print()
        table.print_to(console)
    for note in results.notes:
        console.print(f"[yellow]note:[/] {note}", markup=True)


def _write_docs(surroundings: dict[str, str], results: Results) -> None:
    lines = [f"- {key}: {value}" for key, value in surroundings.items()]
    parts = ["\n".join(lines), *(table.as_markdown() for table in report.tables(results))]
    parts += [f"Note: {note}" for note in results.notes]
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
    PICTURE.write_text(chart.draw(results))


if __name__ == "__main__":
    main()
