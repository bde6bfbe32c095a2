"""docs/reference/ says what the code does, and docs/cli.md only what the command can do."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pydanube.cli.main import main

ROOT = Path(__file__).resolve().parents[3]


def test_the_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_key_of_the_configuration_has_a_meaning() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.endswith("| - |")] == []


def documented_commands() -> list[list[str]]:
    """Every `danube …` line of the guide's examples."""
    text = (ROOT / "docs" / "cli.md").read_text().replace("\\\n", " ")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line.split(" | ")[0])[2:] for line in lines if line.startswith("$ danube ")]


@pytest.mark.parametrize("words", documented_commands(), ids=" ".join)
def test_examples_of_the_guide_are_commands(words: list[str]) -> None:
    command: click.Command = main
    context = click.Context(main, info_name="danube")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
        context = click.Context(command, info_name=found.name, parent=context)
    # Parses the options and leaves values that need files or brokers alone.
    command.make_parser(context).parse_args(list(words))


def test_the_guide_has_examples_to_check() -> None:
    assert len(documented_commands()) > 20
