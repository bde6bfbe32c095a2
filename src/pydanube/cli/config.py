"""`danube config`: look at a configuration without starting a broker."""

from pathlib import Path

import click
import msgspec
import yaml

from pydanube.kernel.errors import DanubeError
from pydanube.server.config_file import load_config
from pydanube.server.redaction import redact


@click.group()
def config() -> None:
    """Check a configuration file, or show what a broker would run with."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Say everything that is wrong with FILE, or that nothing is."""
    try:
        checked = load_config(file, environment={})
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    for warning in checked.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    click.secho(f"{file} is a valid configuration", fg="green")


@config.command()
@click.option("--config-file", type=click.Path(path_type=Path), help="File to start from.")
@click.option("--data-dir", metavar="FOLDER", help="As in `danube broker`.")
def show(config_file: Path | None, data_dir: str | None) -> None:
    """Print the effective settings: defaults, file and environment together, secrets masked."""
    try:
        effective = load_config(config_file, data_dir=data_dir)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    settings = redact("", msgspec.to_builtins(effective.settings))
    click.echo(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), nl=False)
