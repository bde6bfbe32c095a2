"""How commands end, said at the end of each one's `--help`; docs/cli.md has the whole table."""

from typing import Final

import click

_OWN: Final = {
    "broker": "0 stopped by Ctrl-C or SIGTERM; 1 it could not start; 2 wrong options.",
    "bench": "0 all went well; 1 messages failed, were lost, came twice or out of order, or the broker could not be "
    "reached; 2 wrong options; 130 Ctrl-C, after printing what was measured so far.",
    "produce": "0 all was sent, or tried: failures are counted; 1 refused, or the broker could not be reached; 2 wrong "
    "options; 130 Ctrl-C.",
    "consume": "0 all is well, also after Ctrl-C; 1 refused, the broker could not be reached, or fewer messages than "
    "--count came; 2 wrong options.",
    "lakehouse": "0 all is well, also when stopped; 1 refused, failed, or another sync writes to the table; 2 wrong options; "
    "130 a second Ctrl-C.",
    "pipeline": "0 all is well, also after Ctrl-C or stop; 1 problems found, a test or the run failed; 2 wrong options; 130 "
    "the second Ctrl-C.",
    "sql": "0 all is well, also --follow ended by Ctrl-C; 1 refused, failed, or no broker answers; 2 wrong options; 130 "
    "Ctrl-C.",
}
"""Of top-level commands, and of all that is below them."""
_LOCAL: Final = frozenset({"config", "security", "version", "completion"})
"""What of these takes no address talks to nobody, and is done before anybody could interrupt it."""


def say_exit_status(name: str, command: click.Command) -> None:
    """Put it into the help of a top-level command and of every command below it."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            say_exit_status(name, below)
    else:
        command.epilog = f"Exit status: {_statuses(name, command)}"


def _statuses(name: str, command: click.Command) -> str:
    if name in _OWN:
        return _OWN[name]
    begin = "0 all is well; 1 refused, failed or damaged; 2 wrong options"
    if any("--admin-addr" in parameter.opts for parameter in command.params):
        return f"{begin}; 3 the broker, or the store behind it, could not be reached; 130 Ctrl-C."
    return f"{begin}." if name in _LOCAL else f"{begin}; 130 Ctrl-C."
