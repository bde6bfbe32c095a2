"""Which messages a command takes: by key, attributes, producer and content."""

import functools
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import click

from pydanube.cli.admin_connection import Command
from pydanube.cli.messages import ShownMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Everything that is asked for must hold."""

    key: str | None = None
    producer: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    content: re.Pattern[bytes] | None = None

    def takes(self, message: ShownMessage) -> bool:
        if self.key is not None and (message.key is None or not fnmatchcase(message.key, self.key)):
            return False
        if self.producer is not None and not fnmatchcase(message.producer, self.producer):
            return False
        for name, pattern in self.attributes:
            if name not in message.attributes or not fnmatchcase(message.attributes[name], pattern):
                return False
        return self.content is None or self.content.search(message.payload) is not None


class _Attribute(click.ParamType[tuple[str, str]]):
    """`name=pattern`, or a name alone for any value."""

    name = "name=pattern"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value[0], value[1]
        name, equals, pattern = str(value).partition("=")
        if not name:
            self.fail(f"{value!r} names no attribute: expected name=pattern", param, ctx)
        return name, pattern if equals else "*"


class _Expression(click.ParamType[re.Pattern[bytes]]):
    name = "regex"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[bytes]:
        if isinstance(value, re.Pattern):
            return value
        try:
            return re.compile(str(value).encode())
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


def filter_options(command: Command) -> Command:
    """`--key`, `--attribute`, `--producer` and `--grep`; the command gets them as `wanted`."""

    @click.option("--key", metavar="PATTERN", help="Only messages whose routing key matches, e.g. 'eu-*'.")
    @click.option(
        "--attribute",
        "attributes",
        type=_Attribute(),
        multiple=True,
        help="Only messages with an attribute that matches; may be given several times, then all must hold.",
    )
    @click.option("--producer", metavar="PATTERN", help="Only messages of producers whose name matches.")
    @click.option("--grep", "content", type=_Expression(), help="Only messages whose payload matches.")
    @functools.wraps(command)
    def with_filter(
        *,
        key: str | None,
        attributes: tuple[tuple[str, str], ...],
        producer: str | None,
        content: re.Pattern[bytes] | None,
        **options: Any,
    ) -> Any:
        wanted = MessageFilter(key=key, producer=producer, attributes=attributes, content=content)
        return command(wanted=wanted, **options)

    return with_filter
