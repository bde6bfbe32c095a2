"""`python -m bench.compare`: measure ours and the peers, print, keep the numbers."""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from bench.compare import disk, document, report, tools
from bench.compare.contestants import PEERS, everyone
from bench.compare.runner import Runner
from bench.compare.turn import Effort, Findings
from bench.compare.workloads import WORKLOADS
from bench.servers import ROOT

TABLE_WIDTH_MIN = 150
DISK_SECONDS_MAX = 2.0
MESSAGES_PER_MEBIBYTE = 1024
"""Catch-up reads this many: the size is that of the fill with messages of 1 KiB."""


def _names(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    """Understand `--option one,two`, and say what there is when a name is unknown."""

    def understand(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
        names = tuple(filter(None, value.split(",")))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"there is no {name!r}, only {', '.join(known)}")
        return names

    return understand


WORKLOAD_NAMES = tuple(workload.name for workload in WORKLOADS)


@click.command(context_settings={"show_default": True})
@click.option("--quick", is_flag=True, help="One round of short slices: rough numbers.")
@click.option("--only", callback=_names(PEERS), default=",".join(PEERS), help="Who takes part.")
@click.option(
    "--workload",
    callback=_names(WORKLOAD_NAMES),
    default=",".join(WORKLOAD_NAMES),
    help="What is measured.",
)
@click.option("--rounds", type=click.IntRange(1, 50), default=3, help="Interleaved rounds of each workload.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=5.0, help="Length of a slice of load.")
@click.option("--catch-up-mib", type=click.IntRange(1, 65536), default=1024, help="How much catch-up reads.")
@click.option("--idle-topics", type=click.IntRange(1, 100_000), default=10_000, help="Of our broker.")
@click.option("--idle-connections", type=click.IntRange(1, 20_000), default=1_000, help="Of our broker.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@click.option("--write-docs", is_flag=True, help="Put tables and chart into docs/benchmarks.md.")
def main(  # noqa: PLR0917 - one per option
    quick: bool,
    only: tuple[str, ...],
    workload: tuple[str, ...],
    rounds: int,
    seconds: float,
    catch_up_mib: int,
    idle_topics: int,
    idle_connections: int,
    output: str,
    write_docs: bool,
) -> None:
    """Our broker next to NATS JetStream, Redis Streams, Kafka and RabbitMQ: the same work, one machine, one run."""
    # Ended from outside, it still stops its servers and removes their data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    progress = Console(stderr=True)
    effort = Effort(
        rounds=1 if quick else rounds,
        seconds=min(seconds, 1.0) if quick else seconds,
        catch_up_messages=min(catch_up_mib, 64 if quick else catch_up_mib) * MESSAGES_PER_MEBIBYTE,
        idle_topics=min(idle_topics, 1_000) if quick else idle_topics,
        idle_connections=min(idle_connections, 100) if quick else idle_connections,
    )
    findings = Findings()
    contestants = {who.name: who for who in everyone() if who.peer in only}
    # In the checkout, not in the system's temporary folder: that one is often memory, and sync is free there.
    tools.TOOLS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="run-", dir=tools.TOOLS))
    try:
        with progress.status("starting") as status:
            runner = Runner(
                scratch,
                effort,
                findings,
                measure_disk=lambda: disk.measure(findings, scratch, min(effort.seconds, DISK_SECONDS_MAX)),
                say=lambda text: status.update(escape(text)),
            )
            versions = runner.install(list(contestants.values()))
            around = document.surroundings(versions)
            chosen = [known for known in WORKLOADS if known.name in workload]
            try:
                runner.run(chosen, [contestants[name] for name in versions])
            except KeyboardInterrupt:
                progress.print("[yellow]stopped early: what follows was measured until then[/]")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

    kept = document.as_json(around, findings, contestants)
    progress.print(f"saved {document.save(kept).relative_to(ROOT)}")
    if output == "json":
        click.echo(json.dumps(kept, indent=2))
    else:
        console = Console()
        console.width = max(console.width, TABLE_WIDTH_MIN)
        for key, value in around.items():
            console.print(f"[bold]{key}[/]: {escape(value)}")
        for table in report.tables(findings, contestants, lambda text: f"[red]{escape(text)}[/]"):
            console.print()
            table.print_to(console)
    if write_docs:
        document.write_docs(around, findings, contestants)
    if not findings.results.series:
        sys.exit("nothing could be measured; the tables say why")


if __name__ == "__main__":
    main()
