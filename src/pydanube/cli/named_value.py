"""NAME=VALUE on the command line."""

from typing import Any

import click


class NamedValue(click.ParamType[tuple[str, str]]):
    """`name=value` of what is named, for the error that says it is none; names may have to begin with a prefix."""

    name = "name=value"

    def __init__(self, what: str, *, prefix: str = "") -> None:
        self._what = what
        self._prefix = prefix

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, text = str(value).partition("=")
        if not equals or not name.startswith(self._prefix) or name == self._prefix:
            self.fail(f"{value!r} is no {self._what}: expected {self._prefix}NAME=VALUE", param, ctx)
        return name, text
