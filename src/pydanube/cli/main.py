"""The command and its sub-commands."""

import platform
from importlib import import_module
from typing import Final

import click

import pydanube
from pydanube.cli.exit_status import say_exit_status
from pydanube.cli.tables import output_option, show_document

_COMMANDS: Final = {
    "broker": "Run a broker until Ctrl-C.",
    "produce": "Publish messages to a topic.",
    "consume": "Receive, print and acknowledge messages.",
    "bench": "Measure a broker: publish, consume, end-to-end latency.",
    "tail": "Follow a topic, without a subscription.",
    "peek": "Look at stored messages, without consuming them.",
    "sql": "Query topics with SQL.",
    "pipeline": "Check, test and run pipelines from files.",
    "replay": "Publish stored messages again, or the rows of a table.",
    "topics": "Make, look at and delete topics.",
    "subscriptions": "Look at subscriptions, move them, decide about messages that fail.",
    "namespaces": "Make and delete namespaces, set their limits.",
    "schemas": "Register schemas, look at them, check changes.",
    "brokers": "List brokers, take them out of service, spread topics over them.",
    "cluster": "Show the members of a cluster, add and remove them.",
    "security": "Say who may do what: roles, bindings, tokens.",
    "segments": "List, verify and export the sealed history of a topic.",
    "compact": "Merge small segments of a topic, keep the latest message of each key.",
    "audit": "Check all stored history of topics.",
    "erase": "Remove the messages of a key from a topic's history, with proof.",
    "import": "Make a topic of history from elsewhere.",
    "lakehouse": "Keep topics as Iceberg or Delta tables.",
    "spark": "Look at the Spark that jobs run on, fetch their jars.",
    "config": "Check or show the configuration of a broker.",
    "completion": "Print what makes your shell complete this command.",
}
"""Name and help of each command; it lives in the module of its name."""
_MODULES: Final = {"import": "import_history"}
"""Modules of commands whose name is a word of Python."""


class Commands(click.Group):
    """Imports a command's module when it is called: `danube --help` need not load a broker."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if cmd_name in _COMMANDS:
            name = _MODULES.get(cmd_name, cmd_name)
            command = getattr(import_module(f"pydanube.cli.{name}"), name)
        if command is not None:
            say_exit_status(cmd_name, command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = {name: command.get_short_help_str() for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl(list((_COMMANDS | own).items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pydanube.__version__, prog_name="danube")
def main() -> None:
    """Danube: publish/subscribe messaging where a topic is a queue, a log and a table."""


@main.command()
@output_option
def version(output: str) -> None:
    """Show the versions of this program and of what it runs on."""
    found = {
        "danube": pydanube.__version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
    }
    if output != "table":
        show_document(found, output)
        return
    click.echo(f"danube {found['danube']}")
    click.echo(f"python {found['python']} ({found['implementation']}), {found['system']}")
