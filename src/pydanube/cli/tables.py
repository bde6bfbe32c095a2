"""What a command found, on stdout: a table for people, or one JSON or YAML document for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

UNBOUND_COLUMNS: Final = 250
"""Width of a table that goes into a file or a pipe."""

OUTPUTS: Final = ("table", "json", "yaml")

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    show_default=True,
    help="A table for people, or a document for programs.",
)


def show_facts(title: str, lines: Iterable[tuple[str, str]], document: object, output: str) -> None:
    """Facts about one thing: a line each, or the document."""
    if output != "table":
        show_document(document, output)
        return
    table = _table(show_header=False)
    table.add_column(style="bold", justify="right")
    table.add_column(overflow="fold")
    for name, text in lines:
        table.add_row(name, text)
    _print(title, table)


def show_rows(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], document: object, output: str
) -> None:
    """Many things of one kind: a row each, or the document. The last column takes the room that is left."""
    if output != "table":
        show_document(document, output)
        return
    table = _table()
    for name in columns[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(title, table)


def show_done(text: str, document: object, output: str) -> None:
    """What was done, in a sentence, or as the document."""
    if output == "table":
        click.secho(text, fg="green")
    else:
        show_document(document, output)


def show_document(document: object, output: str) -> None:
    if output == "json":
        click.echo(json.dumps(document, indent=2))
        return
    import yaml  # noqa: PLC0415 - slow to load

    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def show_record(record: object, output: str) -> None:
    """One of many, as it comes: a line of JSON, or a document of a YAML stream."""
    if output == "json":
        click.echo(json.dumps(record))
        return
    import yaml  # noqa: PLC0415 - slow to load

    click.echo(yaml.safe_dump(record, sort_keys=False, allow_unicode=True, explicit_start=True), nl=False)


def size_text(size: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def time_text(seconds: float) -> str:
    """A moment in UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def age_text(seconds: float) -> str:
    """A length of time as people read it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _table(**options: Any) -> Any:
    from rich.table import Table  # noqa: PLC0415 - slow to load

    return Table(**options)


def _print(title: str, table: Any) -> None:
    from rich.console import Console  # noqa: PLC0415

    # Text from elsewhere (places, errors) is data: nothing in it is markup or an emoji.
    console = Console(
        markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else UNBOUND_COLUMNS
    )
    # Not the table's own title, which would be folded to its width.
    console.print(title, style="bold", soft_wrap=True)
    console.print(table)
