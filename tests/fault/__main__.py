"""Kill the broker again and again and judge what its clients saw: `python -m tests.fault --seconds 600 --seed 7`."""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.fault.chapter import play

ROUNDS_PER_CHAPTER = 12
"""Then everything is audited, and a new chapter begins with an empty directory: memory and disk stay bounded."""


def main() -> int:
    """Run chapters until the time is up; 1 if the broker broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fault", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="how long to go on (default 120)")
    parser.add_argument("--seed", default=None, help="repeat the plan of an earlier run")
    parser.add_argument("--producers", type=int, default=6, help="how many producers publish (default 6)")
    parser.add_argument(
        "--keep", type=Path, default=None, help="where to put data directories; keeps them all"
    )
    arguments = parser.parse_args()
    seed = arguments.seed or str(secrets.randbelow(1_000_000))
    console = Console(soft_wrap=True)
    console.print(f"seed {seed}, {arguments.seconds:.0f} seconds, {arguments.producers} producers")
    base = arguments.keep or Path(tempfile.mkdtemp(prefix="danube-fault-"))
    deadline = time.monotonic() + arguments.seconds
    chapter_number = rounds = 0
    while chapter_number == 0 or time.monotonic() < deadline:
        chapter_number += 1
        directory = base / f"chapter-{chapter_number}"
        console.print(f"chapter {chapter_number}")
        chapter = asyncio.run(
            play(
                directory,
                f"{seed}/{chapter_number}",
                producers=arguments.producers,
                seconds=max(deadline - time.monotonic(), 1),
                rounds_max=ROUNDS_PER_CHAPTER,
                report=lambda text: console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False),
            )
        )
        rounds += chapter.rounds
        counts = ", ".join(f"{number} {what}" for what, number in chapter.counts().items())
        console.print(f"chapter {chapter_number}: {chapter.rounds} rounds, {counts}")
        if chapter.problems:
            console.print(f"[bold red]seed {seed}, chapter {chapter_number}, round {chapter.rounds}:[/]")
            for problem in chapter.problems:
                console.print(f"  {problem}", highlight=False)
            console.print(
                f"data kept in {directory}; the broker's last words:\n{chapter.broker_log}", markup=False
            )
            return 1
        if arguments.keep is None:
            shutil.rmtree(directory)
    if arguments.keep is None:
        shutil.rmtree(base)
    console.print(f"[bold green]clean[/]: {rounds} rounds in {chapter_number} chapters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
