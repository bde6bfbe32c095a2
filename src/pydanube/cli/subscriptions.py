"""`danube subscriptions`: who has read how far, moved and looked after."""

from typing import Final

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.figures import (
    SUBSCRIPTION_COLUMNS,
    subscription_document,
    subscription_row,
    topic_figures,
    type_text,
)
from pydanube.cli.lag import lag
from pydanube.cli.positions import Start, admin_position
from pydanube.cli.subscription_settings import (
    get_dispatch_config,
    get_failure_policy,
    set_dispatch_config,
    set_failure_policy,
)
from pydanube.cli.tables import show_done, show_facts, show_rows, size_text
from pydanube.cli.topic_argument import subscription_option, topic_argument
from pydanube.client.position import Position
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.protocol import pydanube_admin_pb2 as own

_SERVICE: Final = "danube_admin.TopicAdmin/"
_OWN: Final = "pydanube.admin.v1.Admin/"


@click.group()
def subscriptions() -> None:
    """Look at subscriptions, move them, decide about messages that fail."""


@subscriptions.command("list")
@topic_argument
@administrative
async def list_subscriptions(admin: AdminConnection, *, topic: str, output: str) -> None:
    """List the subscriptions of TOPIC, or of each of its partitions, with what they have not consumed yet."""
    found = [
        (partition.topic, each)
        for partition in await topic_figures(admin, topic)
        for each in partition.subscriptions
    ]
    document = [{"topic": name} | subscription_document(each) for name, each in found]
    rows = [(name, *subscription_row(each)) for name, each in found]
    show_rows(f"Subscriptions of {topic}", ("topic", *SUBSCRIPTION_COLUMNS), rows, document, output)


@subscriptions.command()
@topic_argument
@subscription_option
@administrative
async def describe(admin: AdminConnection, *, topic: str, subscription: str, output: str) -> None:
    """Show how far a subscription is, its consumers, and what became of its messages."""
    request = own.DescribeSubscriptionRequest(topic=topic, subscription=subscription)
    answer = await admin.call(_OWN + "DescribeSubscription", request, own.DescribeSubscriptionResponse)
    figures = answer.figures
    consumers = [
        {
            "consumer_id": each.consumer_id,
            "name": each.name,
            "connected": each.connected,
            "unacked": each.unacked,
            "key_filters": list(each.key_filters),
        }
        for each in answer.consumers
    ]
    document = {
        "topic": topic,
        **subscription_document(figures),
        "consumers": consumers,
        "max_unacked_messages": answer.max_unacked_messages,
        "pending_redelivery": answer.pending_redelivery,
        "delayed": answer.delayed,
        "counters": dict(answer.counters),
    }
    lines = [
        ("type", type_text(figures.type)),
        ("next offset", f"{figures.next_offset:,}"),
        ("lag", f"{figures.lag:,}"),
        ("unacked", f"{figures.unacked:,} of {answer.max_unacked_messages:,}"),
        ("to be sent again", f"{answer.pending_redelivery:,}"),
        ("delayed", f"{answer.delayed:,}"),
        ("delivered", f"{figures.messages_out:,} messages, {size_text(figures.bytes_out)}"),
        ("state", "blocked by a message that failed too often" if figures.blocked else "going on"),
        *((name.replace("_", " "), f"{count:,}") for name, count in sorted(answer.counters.items())),
    ]
    show_facts(f"Subscription {subscription} of {topic}", lines, document, output)
    if output == "table" and consumers:
        rows = [
            (
                str(each.consumer_id),
                "connected" if each.connected else "away",
                f"{each.unacked:,}",
                ", ".join(each.key_filters) or "-",
                each.name,
            )
            for each in answer.consumers
        ]
        show_rows("Consumers", ("id", "state", "unacked", "key filters", "name"), rows, None, output)


@subscriptions.command()
@topic_argument
@subscription_option
@administrative
async def delete(admin: AdminConnection, *, topic: str, subscription: str, output: str) -> None:
    """Forget a subscription that no consumer uses: where it is, and its failure policy."""
    request = pb.SubscriptionRequest(topic=topic, subscription=subscription)
    answer = await admin.call(_SERVICE + "Unsubscribe", request, pb.SubscriptionResponse)
    document = {"topic": topic, "subscription": subscription, "success": answer.success}
    show_done(f"Unsubscribed: {subscription} from {topic}", document, output)


@subscriptions.command()
@topic_argument
@subscription_option
@click.option("--to", "position", type=Start(), required=True, help="Where it goes on; also back in time.")
@administrative
async def reset(
    admin: AdminConnection, *, topic: str, subscription: str, position: Position, output: str
) -> None:
    """Move a subscription: consumers go on from there, and get again what lies behind it.

    A time is that of the broker taking a message; without a zone it is one of this machine's.
    """
    request = own.ResetCursorRequest(
        topic=topic, subscription=subscription, position=admin_position(position)
    )
    answer = await admin.call(_OWN + "ResetCursor", request, own.ResetCursorResponse)
    document = {
        "topic": topic,
        "subscription": subscription,
        "next_offset": answer.next_offset,
        "lag": answer.lag,
    }
    text = f"{subscription} goes on with offset {answer.next_offset:,}, {answer.lag:,} messages to consume"
    show_done(text, document, output)


@subscriptions.command()
@topic_argument
@subscription_option
@administrative
async def purge(admin: AdminConnection, *, topic: str, subscription: str, output: str) -> None:
    """Let a subscription skip everything it has not consumed yet. Stored messages stay in the history."""
    await skip_all(admin, topic, subscription, output)


async def skip_all(admin: AdminConnection, topic: str, subscription: str, output: str) -> None:
    """Purge one subscription, or without a name every one."""
    request = own.PurgeRequest(topic=topic, subscription=subscription)
    answer = await admin.call(_OWN + "Purge", request, own.PurgeResponse)
    document = {"topic": topic, "skipped": answer.skipped, "subscriptions": answer.subscriptions}
    text = f"{answer.skipped:,} messages skipped by {answer.subscriptions:,} subscriptions of {topic}"
    show_done(text, document, output)


subscriptions.add_command(reset, "seek")
subscriptions.add_command(lag)
subscriptions.add_command(set_failure_policy)
subscriptions.add_command(get_failure_policy)
subscriptions.add_command(set_dispatch_config)
subscriptions.add_command(get_dispatch_config)
