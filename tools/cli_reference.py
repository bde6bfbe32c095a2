"""docs/reference/cli.md: every command with its options, from the command tree itself."""

from collections.abc import Iterator

import click

from pydanube.cli.main import main

INTRODUCTION = """\
Every command, its arguments and options. What they are good for, and how they end, is in [cli.md](../cli.md).
"""


def page() -> str:
    lines = ["# Commands", "", INTRODUCTION]
    context = click.Context(main, info_name="danube")
    for path, command in commands(main, context):
        lines += _described(path, command)
    return "\n".join(lines)


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """Each command with its context, groups before what is in them; a second name of a command is left out."""
    seen: set[int] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, "it was listed"
        if command.hidden or id(command) in seen:
            continue
        seen.add(id(command))
        below = click.Context(command, info_name=name, parent=context)
        yield below, command
        if isinstance(command, click.Group):
            yield from commands(command, below)


def _described(context: click.Context, command: click.Command) -> list[str]:
    is_top = context.parent is not None and context.parent.parent is None
    lines = [f"{'##' if is_top else '###'} danube {context.command_path.removeprefix('danube ')}", ""]
    lines += [*_paragraphs(command.help or ""), ""]
    if isinstance(command, click.Group):
        return lines
    usage = " ".join(command.collect_usage_pieces(context))
    lines += ["```", f"{context.command_path} {usage}".rstrip(), "```", ""]
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in records]
        lines.append("")
    return lines


def _paragraphs(text: str) -> list[str]:
    """The help as Markdown: what click would not fold stays as it is."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.lstrip().startswith("\b"):
            lines += ["```", *paragraph.replace("\b\n", "").strip("\n").splitlines(), "```", ""]
        else:
            lines += [" ".join(paragraph.split()), ""]
    return lines[:-1]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "-"
