"""`danube subscriptions lag`: how far consumers are behind, once or for as long as somebody looks."""

import asyncio
import json
import time
from typing import Any

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.completion import complete_subscriptions
from pydanube.cli.figures import topic_figures
from pydanube.cli.tables import show_document, show_rows
from pydanube.cli.topic_argument import topic_argument
from pydanube.kernel.errors import ErrorCode, Rejected


@click.command()
@topic_argument
@click.option(
    "-s",
    "--subscription",
    shell_complete=complete_subscriptions,
    help="Only this one.  [default: all]",
)
@click.option(
    "--watch",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Look again and again, until Ctrl-C; documents are then one JSON object a line.",
)
@click.option(
    "--until",
    type=click.IntRange(min=0),
    metavar="LAG",
    help="With --watch: end when no subscription lags more.",
)
@administrative
async def lag(
    admin: AdminConnection,
    *,
    topic: str,
    subscription: str | None,
    watch: float | None,
    until: int | None,
    output: str,
) -> None:
    """Show how many messages subscriptions of TOPIC have not consumed yet."""
    if until is not None and watch is None:
        raise click.UsageError("--until needs --watch: how often to look")
    before: dict[tuple[str, str], tuple[float, int]] = {}
    while True:
        found = await _lags(admin, topic, subscription)
        now = time.monotonic()
        for each in found:
            name = (each["topic"], each["subscription"])
            earlier = before.get(name)
            before[name] = (now, each["next_offset"])
            # Consumed a second, since the last look.
            each["rate"] = (
                None if earlier is None else (each["next_offset"] - earlier[1]) / (now - earlier[0])
            )
        _show_lags(topic, found, output, watching=watch is not None)
        if watch is None or (until is not None and all(each["lag"] <= until for each in found)):
            return
        await asyncio.sleep(watch)


async def _lags(admin: AdminConnection, topic: str, subscription: str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "subscription": each.name,
            "lag": each.lag,
            "unacked": each.unacked,
            "consumers": each.consumers,
            "next_offset": each.next_offset,
        }
        for partition in await topic_figures(admin, topic)
        for each in partition.subscriptions
        if subscription in (None, each.name)
    ]
    if subscription is not None and not found:
        raise Rejected(
            f"{topic} has no subscription {subscription}: `danube subscriptions list {topic}` shows those it has",
            ErrorCode.SUBSCRIPTION_UNKNOWN,
        )
    return found


def _show_lags(topic: str, found: list[dict[str, Any]], output: str, *, watching: bool) -> None:
    if watching and output == "json":
        for each in found:
            click.echo(json.dumps({"time": time.time()} | each))
        return
    if watching and output == "yaml":
        show_document([{"time": time.time()} | each for each in found], output)
        return
    rows = [
        (
            each["topic"],
            f"{each['lag']:,}",
            f"{each['unacked']:,}",
            f"{each['consumers']:,}",
            "-" if each["rate"] is None else f"{each['rate']:,.1f}",
            each["subscription"],
        )
        for each in found
    ]
    if not watching:
        found = [{name: value for name, value in each.items() if name != "rate"} for each in found]
    title = f"Lag of {topic}" + (time.strftime(" at %H:%M:%S") if watching else "")
    columns = ("topic", "lag", "unacked", "consumers", "consumed/s", "subscription")
    show_rows(title, columns, rows, found, output)
