"""Rows of a query on stdout or in a file: a table for people; JSON lines, CSV or Parquet for programs."""

import base64
import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from pydanube.cli.messages import payload_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUTS: Final = ("table", "json", "csv", "parquet")
_CELL_CHARS_MAX: Final = 400
_WIDTH_UNBOUND: Final = 1_000_000
"""Of a table that goes into a file or a pipe: nothing is folded."""


def write_rows(table: "pa.Table", output: str, to: Path | None) -> None:
    """All rows of a result."""
    table = table.rename_columns(unique_names(table.column_names))
    if output == "parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - slow to load

        assert to is not None, "Parquet is never printed"
        pq.write_table(table, to)
        return
    with _open(to) as file:
        if output == "table":
            _write_table(table, file)
        else:
            file.write(_text(table, output, with_header=True))


class RowStream:
    """Rows on stdout as they come, the names of columns once."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._has_begun = False

    def write(self, table: "pa.Table") -> None:
        table = table.rename_columns(unique_names(table.column_names))
        first, self._has_begun = not self._has_begun, True
        if self._output != "table":
            click.echo(_text(table, self._output, with_header=first), nl=False)
            return
        if first:
            click.secho("  ".join(table.column_names), bold=True)
        for row in _rows(table):
            click.echo("  ".join(map(cell_text, row)))


def unique_names(names: Sequence[str]) -> list[str]:
    """Names that tell columns apart: a join has some of them twice."""
    found: list[str] = []
    for name in names:
        number, one = 1, name
        while one in found:
            number += 1
            one = f"{name}_{number}"
        found.append(one)
    return found


def plain(value: Any) -> Any:
    """The value as JSON has it; bytes that are no text, as base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": base64.b64encode(value).decode()}
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return str(value)


def cell_text(value: Any) -> str:
    """The value as people read it, cut at some length."""
    match value:
        case None:
            text = "null"
        case bytes():
            text = payload_text(value[:_CELL_CHARS_MAX])
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        case dict() | list() | tuple():
            text = json.dumps(plain(value), ensure_ascii=False)
        case _:
            text = str(plain(value))
    text = printable(text.replace("\n", " "))
    return text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…"


def _text(table: "pa.Table", output: str, *, with_header: bool) -> str:
    text = io.StringIO()
    if output == "json":
        for row in _rows(table):
            record = dict(zip(table.column_names, map(plain, row), strict=True))
            text.write(json.dumps(record, ensure_ascii=False) + "\n")
        return text.getvalue()
    writer = csv.writer(text, lineterminator="\n")
    if with_header:
        writer.writerow(table.column_names)
    writer.writerows([_csv_field(value) for value in row] for row in _rows(table))
    return text.getvalue()


def _csv_field(value: Any) -> Any:
    simple = plain(value)
    return json.dumps(simple, ensure_ascii=False) if isinstance(simple, (dict, list)) else simple


def _rows(table: "pa.Table") -> Iterable[tuple[Any, ...]]:
    columns = (column.to_pylist(maps_as_pydicts="lossy") for column in table.columns)
    return zip(*columns, strict=True)


def _write_table(table: "pa.Table", file: TextIO) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to load
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table()
    for field in table.schema:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(Text(field.name), justify="right" if is_number else "left", overflow="fold")
    for row in _rows(table):
        shown.add_row(*(Text(cell_text(value)) for value in row))
    width = None if file is sys.stdout and sys.stdout.isatty() else _WIDTH_UNBOUND
    Console(file=file, width=width).print(shown)


@contextmanager
def _open(to: Path | None) -> Iterator[TextIO]:
    if to is None:
        yield sys.stdout
        return
    with to.open("w", encoding="utf-8", newline="") as file:
        yield file
