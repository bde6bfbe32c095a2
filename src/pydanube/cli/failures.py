"""How a command ends when something is wrong: a sentence on stderr, exit status 1; usage errors exit with 2."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import click

from pydanube.client.address import Address
from pydanube.kernel.errors import DanubeError, Rejected

INTERRUPTED: Final = 130

Result = TypeVar("Result")


def run_async(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine; errors meant for the user become messages, Ctrl-C a cancellation."""
    try:
        return asyncio.run(work)
    except DanubeError as error:
        raise click.ClickException(error.text) from error


class Url(click.ParamType[str]):
    """A broker's address such as danube://127.0.0.1:6650, http:// or without either."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            Address.parse(value)
        except Rejected as error:
            self.fail(error.text, param, ctx)
        return str(value)
