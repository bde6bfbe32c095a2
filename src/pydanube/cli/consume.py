"""`danube consume`: show the messages of a subscription as they arrive."""

import asyncio
import base64
import json
import sys
from dataclasses import dataclass, field
from typing import Final

import click

from pydanube.cli.failures import Url, run_async
from pydanube.client.grpc import CallFailed, Client, Consumer, Message
from pydanube.kernel.policies import SubscriptionType

SHOWN_BYTES_MAX: Final = 1024
_TYPES: Final = {
    "exclusive": SubscriptionType.EXCLUSIVE,
    "shared": SubscriptionType.SHARED,
    "fail-over": SubscriptionType.FAILOVER,
    "key-shared": SubscriptionType.KEY_SHARED,
}


@click.command()
@click.option(
    "-s", "--service-addr", type=Url(), required=True, help="Broker to connect to, e.g. http://127.0.0.1:6650"
)
@click.option("-t", "--topic", default="/default/test_topic", show_default=True)
@click.option("-n", "--consumer", default="consumer_pubsub", show_default=True, help="Name of this consumer.")
@click.option(
    "-m", "--subscription", required=True, help="Name of the subscription; made if it does not exist."
)
@click.option("--sub-type", type=click.Choice(list(_TYPES)), default="shared", show_default=True)
@click.option("-c", "--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when none came for this long.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def consume(
    *,
    service_addr: str,
    topic: str,
    consumer: str,
    subscription: str,
    sub_type: str,
    count: int | None,
    timeout: float | None,
    output: str,
) -> None:
    """Receive messages, print and acknowledge them, until Ctrl-C.

    A new subscription starts with the messages published from now on. With --count, exit status 1 says
    that fewer came before the --timeout.
    """
    view = _View(output)
    try:
        run_async(
            _consume(
                service_addr,
                view,
                topic=topic,
                name=consumer,
                subscription=subscription,
                subscription_type=_TYPES[sub_type],
                count=count,
                timeout=timeout,
            )
        )
    except KeyboardInterrupt:
        view.say(f"Stopped after {view.received} messages", fg="yellow")
        return
    if count is not None and view.received < count:
        raise click.ClickException(f"{view.received} of {count} messages came before the timeout")


async def _consume(
    service_addr: str,
    view: "_View",
    *,
    topic: str,
    name: str,
    subscription: str,
    subscription_type: SubscriptionType,
    count: int | None,
    timeout: float | None,
) -> None:
    async with (
        Client(service_addr) as client,
        Consumer(
            client, topic, name=name, subscription=subscription, subscription_type=subscription_type
        ) as consumer,
    ):
        view.say(f"Consumer {name} subscribed to {topic} as {subscription}", fg="green")
        while count is None or view.received < count:
            message = await _next(consumer, timeout)
            if message is None:
                return
            view.show(message)
            await _ack(consumer, message)


async def _next(consumer: Consumer, timeout: float | None) -> Message | None:
    try:
        async with asyncio.timeout(timeout):
            return await consumer.receive()
    except TimeoutError:
        return None


async def _ack(consumer: Consumer, message: Message) -> None:
    try:
        await consumer.ack(message)
    except CallFailed as error:
        # It will come again; that is better than to stop.
        click.secho(f"acknowledging offset {message.offset} failed: {error.text}", fg="red", err=True)


@dataclass
class _View:
    """Prints messages, as text for people or as JSON lines for programs."""

    output: str
    received: int = 0
    _last_offsets: dict[str, int] = field(default_factory=dict)

    def say(self, text: str, *, fg: str) -> None:
        # Not among the messages: stdout stays what a program can read.
        click.secho(text, fg=fg, err=True)

    def show(self, message: Message) -> None:
        self.received += 1
        if self.output == "json":
            click.echo(json.dumps(_as_json(message)))
            return
        size = len(message.payload)
        tail = f"Size: {size} bytes, Total received: {self.received}"
        # Only reliable topics count offsets.
        if message.offset > self._last_offsets.get(message.topic, 0):
            self._last_offsets[message.topic] = message.offset
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


def _as_json(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": message.topic,
        "offset": message.offset,
        "producer": message.producer_name,
        "publish_time": message.publish_time_ms,
        "attributes": message.attributes,
    }
    if message.routing_key is not None:
        fields["routing_key"] = message.routing_key
    if message.schema_id is not None:
        fields["schema_id"] = message.schema_id
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    return fields
