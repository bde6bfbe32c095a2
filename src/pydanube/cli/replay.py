"""`danube replay`: stored messages, published once more; or the rows of a table, see `replay_table.py`."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.credentials import credential_options, open_client
from pydanube.cli.failures import INTERRUPTED, Url, run_async
from pydanube.cli.message_filter import MessageFilter, filter_options
from pydanube.cli.messages import native_message
from pydanube.cli.positions import Start
from pydanube.cli.progress import count_bar
from pydanube.cli.tables import output_option, show_done
from pydanube.cli.topic_argument import full_name
from pydanube.client.position import Position
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE, TIMING_ATTRIBUTES

if TYPE_CHECKING:
    from pydanube.client import Message, Producer

REPLAYED_FROM: Final = "x-replayed-from"
REPLAYED_OFFSET: Final = "x-replayed-offset"
_NOT_AGAIN: Final = (*TIMING_ATTRIBUTES, COMPACTION_KEY_ATTRIBUTE)
"""When the first one was to be delivered is over; a compaction key travels on its own."""


class TopicOrTable(click.Command):
    """Replays a topic, or a table if the arguments are about one: that takes Spark, and other options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        from pydanube.cli.replay_table import names_table, replay_table  # noqa: PLC0415

        if names_table(args):
            return replay_table.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=TopicOrTable)
@click.argument("topic")
@click.option(
    "--to", "target", required=True, metavar="TOPIC", help="Where to publish; may be the same topic."
)
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
@click.option("--from", "start", type=Start(), default="earliest", show_default=True, help="First message.")
@click.option(
    "--until", "end", type=Start(), default="latest", show_default=True, help="Where to end, not included."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
@click.option("--dry-run", is_flag=True, help="Count the messages, publish nothing.")
@filter_options
@output_option
def replay(**options: Any) -> None:
    """Publish stored messages of TOPIC again: payload, key, attributes, schema.

    For dead letters whose cause is mended, or to try a new consumer with old messages. Each gets the attributes
    x-replayed-from and x-replayed-offset. It ends at the end the topic has when it starts.

    \b
    A table (Parquet, Iceberg, Delta) is replayed by Spark, each row once:
      danube replay orders/*.parquet --to /default/orders --key customer
    `danube replay --format parquet --help` shows the options of that.
    """
    try:
        run_async(_replay(**options))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


async def _replay(
    *,
    topic: str,
    target: str,
    service_addr: str,
    start: Position,
    end: Position,
    rate: float | None,
    dry_run: bool,
    wanted: MessageFilter,
    output: str,
) -> None:
    source, destination = full_name(topic), full_name(target)
    read = taken = 0
    loop = asyncio.get_running_loop()
    async with open_client(service_addr) as client, AsyncExitStack() as opened:
        reader = await opened.enter_async_context(client.reader(source, start=start, end=end))
        producer = None if dry_run else await opened.enter_async_context(client.producer(destination))
        began = loop.time()
        with count_bar("replay") as advance:
            async for message in reader:
                read += 1
                if not wanted.takes(native_message(message)):
                    continue
                if producer is not None:
                    if rate is not None:
                        await asyncio.sleep(max(0.0, began + taken / rate - loop.time()))
                    await _publish(producer, message)
                taken += 1
                advance(1)
            if producer is not None:
                await producer.flush()
    document = {"topic": source, "target": destination, "read": read, "replayed": taken, "dry_run": dry_run}
    words = "would be replayed" if dry_run else "replayed"
    show_done(f"{taken:,} of {read:,} messages {words}: {source} to {destination}", document, output)


async def _publish(producer: "Producer", message: "Message") -> None:
    """Take the message; wait only when too much is unanswered."""
    from pydanube.client import QueueFull  # noqa: PLC0415

    attributes = message.attributes
    for name in _NOT_AGAIN:
        attributes.pop(name, None)
    attributes |= {REPLAYED_FROM: message.topic, REPLAYED_OFFSET: str(message.offset)}
    while True:
        try:
            producer.send_nowait(
                message.payload,
                key=message.key,
                attributes=attributes,
                schema_id=message.schema_id,
                schema_version=message.schema_version,
                compaction_key=message.compaction_key,
            )
        except QueueFull:
            await producer.ready()
        else:
            return
