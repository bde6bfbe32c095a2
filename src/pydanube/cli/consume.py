"""`danube consume`: show the messages of a subscription as they arrive."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from pydanube.cli.credentials import credential_options, open_client, open_grpc_client
from pydanube.cli.failures import Url, run_async
from pydanube.cli.messages import (
    ShownMessage,
    message_document,
    messages_output_option,
    native_message,
    payload_text,
    printable,
    shown_payload,
)
from pydanube.cli.payload_decoding import payload_decoder, schema_version_option, schemas_at
from pydanube.cli.positions import Start
from pydanube.cli.tables import show_record
from pydanube.client.position import Position
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.policies import SubscriptionType

_TYPES: Final = {
    "exclusive": SubscriptionType.EXCLUSIVE,
    "shared": SubscriptionType.SHARED,
    "fail-over": SubscriptionType.FAILOVER,
    "key-shared": SubscriptionType.KEY_SHARED,
}


@click.command()
@click.option(
    "-s",
    "--service-addr",
    type=Url(),
    required=True,
    help="Broker to connect to, e.g. danube://127.0.0.1:6650",
)
@credential_options("DANUBE")
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
@click.option("--raw", is_flag=True, help="Do not decode payloads by their schema.")
@schema_version_option
@messages_output_option
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
    raw: bool
    schema_version: int | None


@dataclass(frozen=True, slots=True)
class _Received:
    """A message of either protocol, and how to acknowledge it."""

    message: ShownMessage
    ack: Callable[[], Awaitable[None]]


Receive = Callable[[], Awaitable[_Received]]


async def _consume(joining: _Joining, view: "_View", *, count: int | None, timeout: float | None) -> None:
    opening = _native(joining) if joining.protocol == "native" else _grpc(joining)
    async with schemas_at(joining.service_addr) as schemas, AsyncExitStack() as joined:
        # A version that cannot be read with shows before a subscription is made.
        decoder = await payload_decoder(
            schemas, joining.topic, raw=joining.raw, schema_version=joining.schema_version
        )
        receive = await joined.enter_async_context(opening)
        view.say(
            f"Consumer {joining.consumer} subscribed to {joining.topic} as {joining.subscription}", fg="green"
        )
        while count is None or view.received < count:
            try:
                async with asyncio.timeout(timeout):
                    received = await receive()
            except TimeoutError:
                return
            view.show(received.message if decoder is None else await decoder.decode(received.message))
            try:
                await received.ack()
            except DanubeError as error:
                # It will come again; that is better than to stop.
                click.secho(
                    f"acknowledging offset {received.message.offset} failed: {error.text}", fg="red", err=True
                )


@asynccontextmanager
async def _native(joining: _Joining) -> AsyncIterator[Receive]:
    async with open_client(joining.service_addr) as client:
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
                return _Received(native_message(message), lambda: consumer.ack(message, confirm=True))

            yield receive


@asynccontextmanager
async def _grpc(joining: _Joining) -> AsyncIterator[Receive]:
    from pydanube.client.grpc import Consumer  # noqa: PLC0415

    async with open_grpc_client(joining.service_addr) as client:
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
                shown = ShownMessage(
                    payload=message.payload,
                    topic=message.topic,
                    offset=message.offset if counted else None,
                    producer=message.producer_name,
                    publish_time_ms=message.publish_time_ms,
                    attributes=message.attributes,
                    key=message.routing_key,
                    schema_id=message.schema_id,
                    schema_version=message.schema_version,
                )
                return _Received(shown, lambda: consumer.ack(message))

            yield receive


@dataclass
class _View:
    """Prints messages, as text for people or as records for programs."""

    output: str
    received: int = 0

    def say(self, text: str, *, fg: str) -> None:
        # Not among the messages: stdout stays what a program can read.
        click.secho(text, fg=fg, err=True)

    def show(self, message: ShownMessage) -> None:
        self.received += 1
        if self.output != "text":
            show_record(message_document(message), self.output)
            return
        tail = f"Size: {len(message.payload)} bytes, Total received: {self.received}"
        if message.offset is not None:
            quoted = click.style(f'"{shown_payload(message)}"', bold=True)
            click.echo(f"Received reliable message: {quoted}, Topic offset: {message.offset}, {tail}")
        else:
            whole = shown_payload(message) if message.decoded is not None else payload_text(message.payload)
            click.echo(f"Received message: {click.style(whole, bold=True)}, {tail}")
        if message.attributes:
            pairs = ", ".join(f"{printable(k)}={printable(v)}" for k, v in sorted(message.attributes.items()))
            click.echo(f"Attributes: {pairs}")
