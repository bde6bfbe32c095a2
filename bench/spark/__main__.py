"""`python -m bench.spark`: measure, print, keep the numbers."""

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from bench.results import Results
from bench.spark import document, ingest, reading, writing
from bench.spark.workbench import open_workbench
from bench.toolchain import TOOLS

QUESTIONS = {"reading": reading.run, "ingest": ingest.run, "writing": writing.run}
SHARES = {"reading": 1.0, "ingest": 0.5, "writing": 0.25}
"""Of the size asked for: what each question needs to come to a steady pace."""
TABLE_WIDTH_MIN = 130


@click.command(context_settings={"show_default": True})
@click.option("--megabytes", type=click.IntRange(8, 65_536), default=1024, help="Messages to read, in MiB.")
@click.option(
    "--rounds", type=click.IntRange(1, 50), default=5, help="Alternating rounds, after one to get warm."
)
@click.option("--only", type=click.Choice(list(QUESTIONS)), multiple=True, help="Ask only these questions.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
@click.option("--write-docs", is_flag=True, help="Put the tables and the chart into docs/benchmarks.md.")
def main(megabytes: int, rounds: int, only: tuple[str, ...], output: str, write_docs: bool) -> None:
    """Topics in Spark: rows a second and CPU a row, next to what Spark and the native client do by themselves."""
    # Ended from outside, it still stops its broker and removes its data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    progress = Console(stderr=True)
    results = Results()
    around = document.surroundings(megabytes, rounds)
    # In the checkout, not in the system's temporary folder: that one is often memory, and sync is free there.
    TOOLS.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=TOOLS))
    try:
        with progress.status("starting") as status:

            def say(text: str) -> None:
                status.update(escape(text))

            with open_workbench(scratch, rounds=rounds, results=results, say=say) as bench:
                for name, run in QUESTIONS.items():
                    if not only or name in only:
                        run(bench, max(8, int(megabytes * SHARES[name])))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    kept = document.as_json(around, results)
    progress.print(f"saved {document.save(kept)}")
    if output == "json":
        click.echo(json.dumps(kept, indent=2))
    else:
        console = Console()
        console.width = max(console.width, TABLE_WIDTH_MIN)
        for key, value in around.items():
            console.print(f"[bold]{key}[/]: {escape(value)}")
        for table in document.tables(results):
            console.print()
            table.print_to(console)
    if write_docs:
        document.write_docs(around, results)


if __name__ == "__main__":
    main()
