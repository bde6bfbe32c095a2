"""What went through topics and subscriptions, from pydanube.admin.v1."""

from collections.abc import Sequence
from typing import Any, Final

from pydanube.cli.admin_connection import AdminConnection
from pydanube.cli.tables import show_facts, show_rows, size_text
from pydanube.protocol import pydanube_admin_pb2 as pb

SUBSCRIPTION_COLUMNS: Final = (
    *("type", "lag", "unacked", "consumers", "next offset", "delivered", "state"),
    "subscription",
)


async def topic_figures(admin: AdminConnection, topic: str) -> list[pb.TopicFigures]:
    """Of the topic, or of each of its partitions."""
    request = pb.TopicStatsRequest(topic=topic)
    answer = await admin.call("pydanube.admin.v1.Admin/TopicStats", request, pb.TopicStatsResponse)
    return list(answer.topics)


def type_text(kind: int) -> str:
    """exclusive, shared, failover or key_shared."""
    return pb.SubscriptionType.Name(kind).lower()


def figures_document(figures: pb.TopicFigures) -> dict[str, Any]:
    """Every field, for programs."""
    plain = (
        *("topic", "reliable", "messages_in", "bytes_in", "messages_out", "bytes_out"),
        *("producers", "consumers", "start_offset", "next_offset", "backlog"),
    )
    producer = ("producer_id", "name", "alive", "exclusive", "messages")
    return {name: getattr(figures, name) for name in plain} | {
        "refused": dict(figures.refused),
        "subscriptions": [subscription_document(each) for each in figures.subscriptions],
        "producer_list": [{name: getattr(each, name) for name in producer} for each in figures.producer_list],
    }


def subscription_document(figures: pb.SubscriptionFigures) -> dict[str, Any]:
    plain = ("next_offset", "lag", "unacked", "consumers", "messages_out", "bytes_out", "blocked")
    return {"subscription": figures.name, "type": type_text(figures.type)} | {
        name: getattr(figures, name) for name in plain
    }


def show_figures(figures: pb.TopicFigures) -> None:
    """A table of the topic, one of its subscriptions, and one of its producers."""
    refused = ", ".join(f"{count:,} {status}" for status, count in sorted(figures.refused.items()))
    lines = [
        ("delivery", "reliable" if figures.reliable else "non-reliable"),
        ("published", f"{figures.messages_in:,} messages, {size_text(figures.bytes_in)}"),
        ("delivered", f"{figures.messages_out:,} messages, {size_text(figures.bytes_out)}"),
        ("refused", refused or "none"),
        ("offsets", f"{figures.start_offset:,} to before {figures.next_offset:,}"),
        ("backlog", f"{figures.backlog:,}"),
        ("producers", f"{figures.producers:,}"),
        ("consumers", f"{figures.consumers:,}"),
    ]
    show_facts(f"Topic {figures.topic}", lines, None, "table")
    if figures.subscriptions:
        rows = [subscription_row(each) for each in figures.subscriptions]
        show_rows("Subscriptions", SUBSCRIPTION_COLUMNS, rows, None, "table")
    if figures.producer_list:
        show_rows("Producers", ("messages", "state", "name"), _producers(figures), None, "table")


def subscription_row(figures: pb.SubscriptionFigures) -> Sequence[str]:
    return (
        type_text(figures.type),
        f"{figures.lag:,}",
        f"{figures.unacked:,}",
        f"{figures.consumers:,}",
        f"{figures.next_offset:,}",
        f"{figures.messages_out:,}",
        "blocked" if figures.blocked else "going on",
        figures.name,
    )


def _producers(figures: pb.TopicFigures) -> list[Sequence[str]]:
    return [
        (
            f"{each.messages:,}",
            ("alive" if each.alive else "gone") + ", exclusive" * each.exclusive,
            each.name,
        )
        for each in figures.producer_list
    ]
