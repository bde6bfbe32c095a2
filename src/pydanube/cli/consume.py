"""`danube consume`: show the messages of a subscription as they arrive."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from pydanube.cli.failures import Url, run_async
from pydanube.client.position import Position
from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.kernel.policies import SubscriptionType

SHOWN_BYTES_MAX: Final = 1024
_TYPES: Final = {
    "exclusive": SubscriptionType.EXCLUSIVE,
    "shared": SubscriptionType.SHARED,
    "fail-over": SubscriptionType.FAILOVER,
    "key-shared": SubscriptionType.KEY_SHARED,
}


class Start(click.ParamType[Position]):
    """Where a subscription begins."""

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


@click.command()
@click.option(
    "-s",
    "--service-addr",
    type=Url(),
    required=True,
    help="Broker to connect to, e.g. danube://127.0.0.1:6650",
)
@click.option("--protocol", type=click.Choice(["native", "grpc"]), default="native", show_default=True)
@click.option("-t", "--topic", default="/default/test_topic", show_default=True)
@click.option("-n", "--consumer", default="consumer_pubsub", show_default=True, help="Name of this consumer.")
@click.option(
    "-m", "--subscription", required=True, help="Name of the subscription; made if it does not exist."
)
@click.option("--sub-type", type=click.Choice(list(_TYPES)), default="shared", show_default=True)
@click.option(
    "--start",
    type=Start(),
    default="latest",
    show_default=True,
    help="Where a subscription begins that is made now; gRPC knows only the latest.",
)
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when none came for this long.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def consume(*, count: int | None, timeout: float | None, output: str, **options: Any) -> None:
    """Receive messages, print and acknowledge them, until Ctrl-C.

    A new subscription starts with the messages published from now on, unless --start says otherwise. With
    --count, exit status 1 says that fewer came before the --timeout.
    """
    view = _View(output)
    options["sub_type"] = _TYPES[options["sub_type"]]
    joining = _Joining(**options)
    if joining.protocol == "grpc" and joining.start != Position.latest():
        raise click.UsageError(
            "--start needs the native protocol: a gRPC subscription begins with the next message"
        )
    try:
        run_async(_consume(joining, view, count=count, timeout=timeout))
    except KeyboardInterrupt:
        view.say(f"Stopped after {view.received} messages", fg="yellow")
        return
    if count is not None and view.received < count:
        raise click.ClickException(f"{view.received} of {count} messages came before the timeout")


@dataclass(frozen=True, kw_only=True)
class _Joining:
    """What is subscribed to, and how."""

    service_addr: str
    protocol: str
    topic: str
    consumer: str
    subscription: str
    sub_type: SubscriptionType
    start: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    """A message of either protocol, and how to acknowledge it."""

    payload: bytes
    topic: str
    offset: int | None
    """None on a non-reliable topic."""
    producer: str
    publish_time_ms: int
    attributes: dict[str, str]
    key: str | None
    schema_id: int | None
    ack: Callable[[], Awaitable[None]]


Receive = Callable[[], Awaitable[_Received]]


async def _consume(joining: _Joining, view: "_View", *, count: int | None, timeout: float | None) -> None:
    async with _native(joining) if joining.protocol == "native" else _grpc(joining) as receive:
        view.say(
            f"Consumer {joining.consumer} subscribed to {joining.topic} as {joining.subscription}", fg="green"
        )
        while count is None or view.received < count:
            try:
                async with asyncio.timeout(timeout):
                    message = await receive()
            except TimeoutError:
                return
            view.show(message)
            try:
                await message.ack()
            except DanubeError as error:
                # It will come again; that is better than to stop.
                click.secho(f"acknowledging offset {message.offset} failed: {error.text}", fg="red", err=True)


@asynccontextmanager
async def _native(joining: _Joining) -> AsyncIterator[Receive]:
    from pydanube.client import connect  # noqa: PLC0415 - only one of the two clients is needed

    async with connect(joining.service_addr) as client:
        opening = client.consumer(
            joining.topic,
            subscription=joining.subscription,
            type=joining.sub_type,
            name=joining.consumer,
            start=joining.start,
        )
        async with opening as consumer:

            async def receive() -> _Received:
                message = await consumer.receive()
                return _Received(
                    payload=message.payload,
                    topic=message.topic,
                    offset=message.offset,
                    producer=message.producer_name,
                    publish_time_ms=message.publish_time_ms,
                    attributes=message.attributes,
                    key=message.key,
                    schema_id=message.schema_id,
                    ack=lambda: consumer.ack(message, confirm=True),
                )

            yield receive


@asynccontextmanager
async def _grpc(joining: _Joining) -> AsyncIterator[Receive]:
    from pydanube.client.grpc import Client, Consumer  # noqa: PLC0415

    async with Client(joining.service_addr) as client:
        opening = Consumer(
            client,
            joining.topic,
            name=joining.consumer,
            subscription=joining.subscription,
            subscription_type=joining.sub_type,
        )
        async with opening as consumer:
            last_offsets: dict[str, int] = {}

            async def receive() -> _Received:
                message = await consumer.receive()
                # Only reliable topics count offsets: without, all messages have the same.
                counted = message.offset > last_offsets.get(message.topic, 0)
                if counted:
                    last_offsets[message.topic] = message.offset
                return _Received(
                    payload=message.payload,
                    topic=message.topic,
                    offset=message.offset if counted else None,
                    producer=message.producer_name,
                    publish_time_ms=message.publish_time_ms,
                    attributes=message.attributes,
                    key=message.routing_key,
                    schema_id=message.schema_id,
                    ack=lambda: consumer.ack(message),
                )

            yield receive


@dataclass
class _View:
    """Prints messages, as text for people or as JSON lines for programs."""

    output: str
    received: int = 0

    def say(self, text: str, *, fg: str) -> None:
        # Not among the messages: stdout stays what a program can read.
        click.secho(text, fg=fg, err=True)

    def show(self, message: _Received) -> None:
        self.received += 1
        if self.output == "json":
            click.echo(json.dumps(_as_json(message)))
            return
        size = len(message.payload)
        tail = f"Size: {size} bytes, Total received: {self.received}"
        if message.offset is not None:
            shown = _text(message.payload[:SHOWN_BYTES_MAX]) + ("…" if size > SHOWN_BYTES_MAX else "")
            quoted = click.style(f'"{shown}"', bold=True)
            click.echo(f"Received reliable message: {quoted}, Topic offset: {message.offset}, {tail}")
        else:
            click.echo(f"Received message: {click.style(_text(message.payload), bold=True)}, {tail}")
        if message.attributes:
            pairs = ", ".join(
                f"{_printable(k)}={_printable(v)}" for k, v in sorted(message.attributes.items())
            )
            click.echo(f"Attributes: {pairs}")


def _text(payload: bytes) -> str:
    """The payload as text if it is text; a cut in the middle of a character does not make it binary."""
    try:
        return _printable(payload.decode())
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(payload) == SHOWN_BYTES_MAX:
            return _printable(payload[: error.start].decode())
        return f"<{len(payload)} bytes, not text>"


def _printable(text: str) -> str:
    """A terminal must not obey what a message says; a pipe gets the text as it is."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def _as_json(message: _Received) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": message.topic,
        "offset": message.offset,
        "producer": message.producer,
        "publish_time": message.publish_time_ms,
        "attributes": message.attributes,
    }
    if message.key is not None:
        fields["routing_key"] = message.key
    if message.schema_id is not None:
        fields["schema_id"] = message.schema_id
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    return fields
