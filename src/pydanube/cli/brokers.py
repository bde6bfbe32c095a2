"""`danube brokers`: the brokers of a cluster, and how work is spread over them."""

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.tables import show_document, show_done, show_facts, show_rows
from pydanube.protocol import danube_admin_pb2 as pb

_SERVICE = "danube_admin.BrokerAdmin/"


@click.group()
def brokers() -> None:
    """List brokers, take them out of service, spread topics over them."""


@brokers.command("list")
@administrative
async def list_brokers(admin: AdminConnection, *, output: str) -> None:
    """List the brokers that are alive, with their roles and addresses."""
    answer = await admin.call(_SERVICE + "ListBrokers", pb.Empty(), pb.BrokerListResponse)
    fields = ("broker_id", "broker_status", "broker_addr", "broker_role", "admin_addr", "metrics_addr")
    document = [{name: getattr(each, name) for name in fields} for each in answer.brokers]
    columns = ("broker", "status", "address", "role", "admin port", "metrics")
    show_rows("Brokers", columns, [tuple(each.values()) for each in document], document, output)


@brokers.command()
@administrative
async def leader(admin: AdminConnection, *, output: str) -> None:
    """Show which broker leads the cluster; `not_found` if none does, or if there is one broker only."""
    answer = await admin.call(_SERVICE + "GetLeaderBroker", pb.Empty(), pb.BrokerResponse)
    show_done(f'Leader Broker: "{answer.leader}"', {"leader": answer.leader}, output)


@brokers.command("namespaces")
@administrative
async def list_namespaces(admin: AdminConnection, *, output: str) -> None:
    """List the namespaces."""
    answer = await admin.call(_SERVICE + "ListNamespaces", pb.Empty(), pb.NamespaceListResponse)
    names = list(answer.namespaces)
    show_rows("Namespaces", ("namespace",), [(name,) for name in names], names, output)


@brokers.command()
@click.option("--broker-id", required=True, help="Broker to empty.")
@click.option(
    "--max-parallel",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Topics moved at the same time.",
)
@click.option("--namespaces-include", multiple=True, metavar="NAME", help="Move only topics of these.")
@click.option("--namespaces-exclude", multiple=True, metavar="NAME", help="Leave topics of these.")
@click.option("--dry-run", is_flag=True, help="Say what would be moved, and move nothing.")
@click.option(
    "--timeout-seconds",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="How long moving may take.",
)
@administrative
async def unload(
    admin: AdminConnection,
    *,
    broker_id: str,
    max_parallel: int,
    namespaces_include: tuple[str, ...],
    namespaces_exclude: tuple[str, ...],
    dry_run: bool,
    timeout_seconds: int,
    output: str,
) -> None:
    """Move the topics of a broker to others, and give it no new ones until it is activated."""
    request = pb.UnloadBrokerRequest(
        broker_id=broker_id,
        max_parallel=max_parallel,
        namespaces_include=namespaces_include,
        namespaces_exclude=namespaces_exclude,
        dry_run=dry_run,
        timeout_seconds=timeout_seconds,
    )
    answer = await admin.call(
        _SERVICE + "UnloadBroker", request, pb.UnloadBrokerResponse, timeout_seconds + 30.0
    )
    counts = {name: getattr(answer, name) for name in ("started", "total", "succeeded", "failed", "pending")}
    text = " ".join(f"{name}={str(value).lower()}" for name, value in counts.items())
    show_done(text, counts | {"failed_topics": list(answer.failed_topics)}, output)
    for topic in answer.failed_topics:
        click.secho(f"Error: {topic}", fg="red", err=True)
    if answer.failed:
        raise SystemExit(1)


@brokers.command()
@click.option("--broker-id", required=True, help="Broker that gets topics again.")
@click.option("--reason", default="admin_activate", show_default=True, help="Kept with the broker's state.")
@administrative
async def activate(admin: AdminConnection, *, broker_id: str, reason: str, output: str) -> None:
    """Let a broker that was unloaded have topics again."""
    request = pb.ActivateBrokerRequest(broker_id=broker_id, reason=reason)
    answer = await admin.call(_SERVICE + "ActivateBroker", request, pb.ActivateBrokerResponse)
    document = {"broker_id": broker_id, "success": answer.success}
    show_done(f"Broker {broker_id} activated", document, output)


@brokers.command()
@administrative
async def balance(admin: AdminConnection, *, output: str) -> None:
    """Show how evenly the load is spread."""
    answer = await admin.call(
        _SERVICE + "GetClusterBalance", pb.ClusterBalanceRequest(), pb.ClusterBalanceResponse
    )
    fields = (
        *("coefficient_of_variation", "mean_load", "max_load", "min_load", "std_deviation"),
        "broker_count",
    )
    loads = ("broker_id", "load", "topic_count", "is_overloaded", "is_underloaded")
    spread = {name: getattr(answer, name) for name in fields}
    ranked = [{name: getattr(each, name) for name in loads} for each in answer.brokers]
    if output != "table":
        show_document(spread | {"brokers": ranked}, output)
        return
    lines = [(name.replace("_", " "), f"{value:.3f}".removesuffix(".000")) for name, value in spread.items()]
    show_facts("Balance", [*lines, ("assignment strategy", answer.assignment_strategy)], spread, output)
    rows = [
        (
            str(each.broker_id),
            f"{each.load:g}",
            str(each.topic_count),
            "overloaded" if each.is_overloaded else "underloaded" if each.is_underloaded else "even",
        )
        for each in answer.brokers
    ]
    show_rows("Load", ("broker", "load", "topics", "state"), rows, ranked, output)


@brokers.command()
@click.option("--dry-run", is_flag=True, help="Say what would be moved first, and move nothing.")
@click.option("--max-moves", type=click.IntRange(1), help="Topics to move at most.")
@administrative
async def rebalance(admin: AdminConnection, *, dry_run: bool, max_moves: int | None, output: str) -> None:
    """Move topics from brokers with much load to those with little."""
    request = pb.RebalanceRequest(dry_run=dry_run, max_moves=max_moves)
    answer = await admin.call(_SERVICE + "TriggerRebalance", request, pb.RebalanceResponse)
    fields = ("topic_name", "from_broker", "to_broker", "estimated_load", "reason")
    moves = [{name: getattr(each, name) for name in fields} for each in answer.proposed_moves]
    document = {
        "success": answer.success,
        "moves_executed": answer.moves_executed,
        "proposed_moves": moves,
        "error_message": answer.error_message,
    }
    rows = [tuple(str(value) for value in each.values()) for each in moves]
    columns = ("topic", "from", "to", "load", "reason")
    if output != "table" or rows:
        title = "Would move" if dry_run else f"{answer.moves_executed} moved"
        show_rows(title, columns, rows, document, output)
    if answer.error_message:
        click.echo(answer.error_message, err=True)


brokers.add_command(leader, "leader-broker")
