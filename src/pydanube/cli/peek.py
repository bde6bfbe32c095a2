"""`danube peek`: stored messages, looked at without consuming them."""

from collections.abc import AsyncIterator
from typing import Final

import click

from pydanube.cli.admin_connection import AdminConnection, AdminPort, admin_options, run_admin
from pydanube.cli.completion import complete_subscriptions
from pydanube.cli.figures import topic_figures
from pydanube.cli.message_filter import MessageFilter, filter_options
from pydanube.cli.messages import ShownMessage, messages_output_option, show_message
from pydanube.cli.payload_decoding import payload_decoder, schema_version_option
from pydanube.cli.positions import Start, admin_position
from pydanube.cli.topic_argument import topic_argument
from pydanube.client.position import Position
from pydanube.protocol import pydanube_admin_pb2 as pb
from pydanube.protocol.danube_pb2 import StreamMessage

PAGE_MESSAGES: Final = 100
"""The most one call gives."""


@click.command()
@topic_argument
@click.option(
    "--from",
    "start",
    type=Start(),
    help="First message to show.  [default: earliest]",
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Begin N messages before the end.")
@click.option(
    "-s",
    "--subscription",
    shell_complete=complete_subscriptions,
    help="Begin with the first message this subscription has not consumed.",
)
@click.option(
    "-c", "--count", type=click.IntRange(1), default=10, show_default=True, help="Messages to show."
)
@click.option("--raw", is_flag=True, help="Do not decode payloads by their schema.")
@schema_version_option
@filter_options
@admin_options
@messages_output_option
def peek(
    *,
    topic: str,
    start: Position | None,
    last: int | None,
    subscription: str | None,
    count: int,
    raw: bool,
    schema_version: int | None,
    wanted: MessageFilter,
    admin_port: AdminPort,
    output: str,
) -> None:
    """Show stored messages of TOPIC, decoded by their schema. Nothing is consumed, no cursor moves."""
    if sum(each is not None for each in (start, last, subscription)) > 1:
        raise click.UsageError("--from, --last and --subscription exclude each other")

    from pydanube.client.schemas import Schemas  # noqa: PLC0415 - slow to load

    async def work() -> int:
        shown = 0
        async with admin_port.connect() as admin:
            decoder = await payload_decoder(Schemas(admin), topic, raw=raw, schema_version=schema_version)
            request = pb.PeekMessagesRequest(topic=topic, limit=PAGE_MESSAGES)
            if subscription is not None:
                request.subscription = subscription
            elif last is not None:
                found = await topic_figures(admin, topic)
                if len(found) != 1:
                    raise click.UsageError(
                        f"{topic} has {len(found)} partitions: --last needs one of them, as {topic}-part-0"
                    )
                [figures] = found
                first = max(figures.start_offset, figures.next_offset - last)
                request.position.CopyFrom(admin_position(Position.offset(first)))
            else:
                request.position.CopyFrom(admin_position(start or Position.earliest()))
            async for message in _messages(admin, request):
                if not wanted.takes(message):
                    continue
                show_message(message if decoder is None else await decoder.decode(message), output)
                shown += 1
                if shown == count:
                    break
        return shown

    if run_admin(work()) == 0:
        click.secho("No such messages", fg="yellow", err=True)


async def _messages(admin: AdminConnection, request: pb.PeekMessagesRequest) -> AsyncIterator[ShownMessage]:
    """All messages from a place on, up to the end the topic has now."""
    end: int | None = None
    while True:
        page = await admin.call("pydanube.admin.v1.Admin/PeekMessages", request, pb.PeekMessagesResponse)
        for each in page.messages:
            yield _shown(request.topic, each)
        end = page.end_offset if end is None else end
        if not page.messages or page.next_offset >= end:
            return
        request.position.CopyFrom(admin_position(Position.offset(page.next_offset)))


def _shown(topic: str, peeked: pb.PeekedMessage) -> ShownMessage:
    message = StreamMessage.FromString(peeked.message)
    return ShownMessage(
        payload=message.payload,
        topic=topic,
        offset=peeked.offset,
        producer=message.producer_name,
        publish_time_ms=message.publish_time,
        attributes=dict(message.attributes),
        key=message.routing_key if message.HasField("routing_key") else None,
        schema_id=message.schema_id if message.HasField("schema_id") else None,
        schema_version=message.schema_version if message.HasField("schema_version") else None,
    )
