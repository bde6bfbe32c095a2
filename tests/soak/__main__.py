"""Load a broker for as long as one likes and see whether its memory stays flat: `python -m tests.soak --seconds 600`.

Prints a line each second and the verdict; `--json` writes both to a file. Ends with 1 if memory grew.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from tests.soak.load import GROWTH_MIB, HIGHEST_MIB, Sample, Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long (default 600)")
    parser.add_argument("--rate", type=float, default=None, help="messages a second (default: all it takes)")
    parser.add_argument(
        "--away", type=float, default=10, help="seconds the consumer is there, and away, in turn (default 10)"
    )
    parser.add_argument("--json", type=Path, default=None, help="file for all samples and the verdict")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    console.print("second  resident MiB  published/s  consumed/s    behind  consumer")
    before = Sample(0, 0.0, 0, 0, False)

    def report(sample: Sample) -> None:
        nonlocal before
        console.print(
            f"{sample.second:6}  {sample.resident_mib:12.1f}  {sample.published - before.published:11,}  "
            f"{sample.consumed - before.consumed:10,}  {sample.published - sample.consumed:8,}  "
            f"{'there' if sample.is_consuming else 'away'}",
            highlight=False,
        )
        before = sample

    directory = Path(tempfile.mkdtemp(prefix="danube-soak-"))
    try:
        soak = Soak(directory, rate=arguments.rate, away_seconds=arguments.away, report=report)
        verdict = asyncio.run(soak.run(arguments.seconds))
    finally:
        shutil.rmtree(directory)
    if arguments.json is not None:
        result = {"verdict": verdict.as_dict(), "samples": [asdict(sample) for sample in soak.samples]}
        arguments.json.write_text(json.dumps(result, indent=1))
    console.print(
        f"{verdict.first_mib:.0f} MiB at first, {verdict.highest_mib:.0f} at most (allowed: {HIGHEST_MIB} more); "
        f"after the warm-up {verdict.early_mib:.0f}, at the end {verdict.late_mib:.0f} (allowed: {GROWTH_MIB} more)"
    )
    for problem in verdict.problems:
        console.print(f"[bold red]{problem}[/]")
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
