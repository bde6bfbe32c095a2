"""Every command of `danube`, however deep: what all of them promise, none of them forgets."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pydanube.cli.main import main

CREDENTIALS = {"--token", "--ca", "--cert", "--cert-key"}
WITHOUT_OUTPUT = {"broker", "completion"}
"""A broker's log goes to stderr, and a shell wants its script as it is."""
OF_ROWS = {"sql": ["table", "json", "csv", "parquet"]}
"""Rows of any number and type are no document."""
ADDRESSES = {"--admin-addr", "--service-addr", "--broker"}


def leaves(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield ctx.command_path.removeprefix("danube "), command
        return
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None, f"{name} is listed"
        yield from leaves(found, click.Context(found, info_name=name, parent=ctx))


COMMANDS = dict(leaves(main, click.Context(main, info_name="danube")))
every_command = pytest.mark.parametrize("path", COMMANDS)


def options_of(path: str) -> set[str]:
    return {option for parameter in COMMANDS[path].params for option in parameter.opts}


def is_administrative(path: str) -> bool:
    return "--admin-addr" in options_of(path) and path != "broker"


def test_the_tree_was_walked_to_its_leaves() -> None:
    assert len(COMMANDS) > 70
    assert {"security tokens create", "config show", "topics list"} <= COMMANDS.keys()


@every_command
def test_help_says_what_a_command_does_and_how_it_ends(path: str) -> None:
    shown = CliRunner().invoke(main, [*path.split(), "--help"])
    assert shown.exit_code == 0
    assert len((COMMANDS[path].help or "").split()) > 1
    statuses = " ".join(shown.stdout.split()).rpartition("Exit status: ")[2]
    assert statuses.startswith("0 ")
    assert {"; 1 ", "; 2 "} <= {statuses[i : i + 4] for i in range(len(statuses))}
    assert ("; 3 " in statuses) == is_administrative(path)


@every_command
def test_programs_can_read_what_a_command_says(path: str) -> None:
    outputs = [each for each in COMMANDS[path].params if "--output" in each.opts]
    if path in WITHOUT_OUTPUT:
        assert outputs == []
        return
    [output] = outputs
    assert isinstance(output.type, click.Choice)
    assert {"-o", "--output"} <= set(output.opts)
    if path in OF_ROWS:
        assert list(output.type.choices) == OF_ROWS[path]
        return
    assert output.type.choices[0] in ("table", "text")
    assert list(output.type.choices[1:]) == ["json", "yaml"]


@every_command
def test_who_talks_to_a_broker_can_say_who_they_are(path: str) -> None:
    if path != "broker":
        talks = bool(options_of(path) & ADDRESSES)
        assert options_of(path) >= CREDENTIALS if talks else not {"--ca", "--cert"} & options_of(path)


def value_for(parameter: click.Parameter, folder: Path) -> str:
    """Something the parameter takes."""
    kind: Any = parameter.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.IntRange):
        return str(kind.min or 1)
    if isinstance(kind, click.Path):
        file = folder / "a-file"
        file.write_text("{}")
        return str(folder if not kind.file_okay else file)
    if parameter.name == "node_addr":
        return "127.0.0.1:1"
    return "earliest" if "--to" in parameter.opts else "/default/orders"


ALSO_NEEDED = {
    "set-failure-policy": ["--dead-letter-topic", "/default/dead"],
    "set-policies": ["--max-publish-rate", "1"],
    "check": ["--schema", "{}"],
    "register": ["--schema", "{}"],
    "get": ["--subject", "orders"],
    "delete": ["--confirm"],
    "erase": ["--key", "customer-17"],
}
"""By the command's own name, where it has these options: what its parameters do not say themselves."""


@pytest.mark.parametrize("path", [path for path in COMMANDS if is_administrative(path)])
def test_a_broker_that_is_not_there_is_told_apart_from_a_refusal(path: str, tmp_path: Path) -> None:
    needed = ALSO_NEEDED.get(path.rsplit(maxsplit=1)[-1], [])
    arguments = needed if set(needed[:1]) <= options_of(path) else []
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Argument):
            arguments = [*arguments, value_for(parameter, tmp_path)]
        elif parameter.required:
            arguments = [*arguments, parameter.opts[0], value_for(parameter, tmp_path)]
    with socket.socket() as nobody:  # bound, and not listening
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        ended = CliRunner().invoke(main, [*path.split(), *arguments, "--admin-addr", address])
    assert (ended.exit_code, ended.stdout) == (3, ""), ended.output
    assert "no broker answers" in ended.stderr
