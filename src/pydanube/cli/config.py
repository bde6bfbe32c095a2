"""`danube config`: look at a configuration without starting a broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from pydanube.cli.tables import OUTPUTS, output_option, show_document, show_done, show_rows
from pydanube.kernel.errors import DanubeError
from pydanube.server.config_file import ConfigError, load_config
from pydanube.server.redaction import redact


@click.group()
def config() -> None:
    """Check a configuration file, or show what a broker would run with."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
@output_option
def check(file: Path, output: str) -> None:
    """Say everything that is wrong with FILE, or that nothing is."""
    document: dict[str, Any] = {"file": str(file), "valid": True, "problems": [], "warnings": []}
    try:
        checked = load_config(file, environment={})
    except ConfigError as error:
        if output == "table":
            raise click.ClickException(error.text) from error
        show_document(document | {"valid": False, "problems": list(error.problems)}, output)
        raise SystemExit(1) from error
    for warning in checked.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    document["warnings"] = list(checked.warnings)
    show_done(f"{file} is a valid configuration", document, output)


@config.command()
@click.option("--config-file", type=click.Path(path_type=Path), help="File to start from.")
@click.option("--data-dir", metavar="FOLDER", help="As in `danube broker`.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="yaml",
    show_default=True,
    help="A file to start brokers with, or a table of its keys.",
)
def show(config_file: Path | None, data_dir: str | None, output: str) -> None:
    """Print the effective settings: defaults, file and environment together, secrets masked."""
    try:
        effective = load_config(config_file, data_dir=data_dir)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    settings = redact("", msgspec.to_builtins(effective.settings))
    show_rows("Settings", ("key", "value"), list(_keys("", settings)), settings, output)


def _keys(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Each key by its full path, as the configuration's errors name it."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from _keys(f"{prefix}.{name}" if prefix else str(name), below)
    else:
        yield prefix, "null" if value is None else str(value)
