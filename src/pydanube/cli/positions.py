"""Where to begin: earliest, latest, an offset or a time, as options spell it."""

from datetime import datetime
from typing import Any

import click

from pydanube.client.position import Position
from pydanube.kernel.errors import Rejected
from pydanube.protocol import pydanube_admin_pb2 as pb


class Start(click.ParamType[Position]):
    """A place in a topic."""

    name = "earliest|latest|OFFSET|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        if isinstance(value, Position):
            return value
        try:
            if value in ("earliest", "latest"):
                return Position(value)
            if value.isdigit():
                return Position.offset(int(value))
            # A time without a zone is one of this machine's.
            return Position.timestamp(datetime.fromisoformat(value).astimezone())
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither earliest, latest, an offset nor a time such as 2026-01-31T12:00",
                param,
                ctx,
            )
        except Rejected as error:
            self.fail(error.text, param, ctx)


def admin_position(position: Position) -> pb.Position:
    """The same place in the words of the admin port."""
    return pb.Position(kind=position.kind.upper(), value=position.value)
