"""How far some work is, on stderr, for people; programs and files get nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]
"""Told the bytes, or whatever is counted, of each step."""


@contextmanager
def transfer_bar(title: str, total_bytes: int) -> Iterator[Advance]:
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    # Here, because rich takes longer to load than some commands take.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total_bytes)
        yield lambda step: shown.advance(task, step)


@contextmanager
def count_bar(title: str) -> Iterator[Advance]:
    """For work whose end is not known: how many so far, and for how long."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        SpinnerColumn(),
        TextColumn(f"{title} {{task.completed:,}}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=None)
        yield lambda step: shown.advance(task, step)
