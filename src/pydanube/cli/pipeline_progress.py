"""How far a pipeline is: a bar for people, a line now and then for logs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from pydanube.cli.tables import age_text

if TYPE_CHECKING:
    from pydanube.spark.pipelines.progress import Progress

LINE_EVERY_SECONDS: Final = 10.0


class Shown(Protocol):
    def advanced(self, progress: "Progress") -> None: ...

    def waiting(self, why: str, seconds: float) -> None: ...


@contextmanager
def progress_shown(name: str) -> Iterator[Shown]:
    """On stderr, as long as the context lasts."""
    if not sys.stderr.isatty():
        yield _Lines(name)
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield _Bar(bar, bar.add_task(name, total=None, figures="waiting for the first batch"))


def figures(progress: "Progress") -> str:
    """What there is to know, in a line."""
    lag = "" if progress.lag is None else f", lag {progress.lag:,}"
    return (
        f"batch {progress.batch:,} in {age_text(progress.batch_seconds)}, {progress.rows:,} rows, "
        f"{progress.rows_per_second:,.0f} rows/s{lag}"
    )


class _Lines:
    def __init__(self, name: str) -> None:
        self._name = name
        self._said = float("-inf")

    def advanced(self, progress: "Progress") -> None:
        now = time.monotonic()
        if now - self._said >= LINE_EVERY_SECONDS:
            self._said = now
            click.echo(f"{self._name}: {figures(progress)}", err=True)

    def waiting(self, why: str, seconds: float) -> None:
        click.echo(f"{self._name}: {why}; trying again in {seconds:.0f} s", err=True)


class _Bar:
    """Full when there is no lag."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def advanced(self, progress: "Progress") -> None:
        total = None if progress.lag is None else progress.rows + progress.lag
        self._bar.update(self._task, completed=progress.rows, total=total, figures=figures(progress))

    def waiting(self, why: str, seconds: float) -> None:
        self._bar.update(self._task, figures=f"{why}; trying again in {seconds:.0f} s")
