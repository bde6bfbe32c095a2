"""Live progress on stderr, for people; programs and files get none."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Show = Callable[[int], None]
"""Told how many messages are done so far."""
Shown = Callable[[str, int], AbstractContextManager[Show]]
"""Given a title and the total, shows progress while the context lasts."""


@contextmanager
def quiet(title: str, total: int) -> Iterator[Show]:
    yield lambda done: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Show]:
    """A bar with the rate so far."""
    # Here, because rich takes longer to load than some runs take.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(f"{title:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]} messages/s"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total, rate="0")

        def show(done: int) -> None:
            elapsed = shown.tasks[0].elapsed or 0.0
            shown.update(task, completed=done, rate=f"{done / elapsed:,.0f}" if elapsed else "0")

        yield show


def for_this_terminal() -> Shown:
    return bar if sys.stderr.isatty() else quiet
