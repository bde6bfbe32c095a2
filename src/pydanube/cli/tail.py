"""`danube tail`: follow a topic without a subscription."""

import asyncio
from typing import Any

import click

from pydanube.cli.credentials import credential_options, open_client
from pydanube.cli.failures import INTERRUPTED, Url, run_async
from pydanube.cli.message_filter import MessageFilter, filter_options
from pydanube.cli.messages import messages_output_option, native_message, show_message
from pydanube.cli.payload_decoding import payload_decoder, schema_version_option
from pydanube.cli.positions import Start
from pydanube.cli.topic_argument import full_name
from pydanube.client.position import Position


@click.command()
@click.argument("topic")
@click.option(
    "-s",
    "--service-addr",
    type=Url(),
    default="danube://127.0.0.1:6650",
    show_default=True,
    envvar="DANUBE_SERVICE_ADDR",
    show_envvar=True,
    help="Broker to connect to.",
)
@credential_options("DANUBE")
@click.option("--from", "start", type=Start(), default="latest", show_default=True, help="Where to begin.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when none came for this long.",
)
@click.option("--raw", is_flag=True, help="Do not decode payloads by their schema.")
@schema_version_option
@filter_options
@messages_output_option
def tail(**options: Any) -> None:
    """Show the messages of a reliable TOPIC, or of all its partitions, as they come, until Ctrl-C.

    Nothing is consumed: there is no subscription, and nobody else gets fewer messages.
    """
    try:
        run_async(_tail(**options))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


async def _tail(
    *,
    topic: str,
    service_addr: str,
    start: Position,
    count: int | None,
    timeout: float | None,
    raw: bool,
    schema_version: int | None,
    wanted: MessageFilter,
    output: str,
) -> None:
    name, shown = full_name(topic), 0
    async with open_client(service_addr) as client:
        decoder = await payload_decoder(client.schemas, name, raw=raw, schema_version=schema_version)
        async with client.reader(name, start=start) as reader:
            while count is None or shown < count:
                try:
                    async with asyncio.timeout(timeout):
                        received = await reader.receive()
                except TimeoutError:
                    return
                message = native_message(received)
                if not wanted.takes(message):
                    continue
                show_message(message if decoder is None else await decoder.decode(message), output)
                shown += 1
