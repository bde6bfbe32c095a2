"""`danube cluster`: which brokers decide together."""

import click

from pydanube.cli.admin_connection import AdminAddress, AdminConnection, admin_port_at, administrative
from pydanube.cli.tables import show_document, show_done
from pydanube.client.address import Address
from pydanube.protocol import danube_admin_pb2 as pb

_SERVICE = "danube_admin.ClusterAdmin/"
MEMBER_SECONDS_MAX = 60.0
"""A new member has to catch up before it is one."""


@click.group()
def cluster() -> None:
    """Show the members of a cluster, add and remove them."""


@cluster.command()
@administrative
async def status(admin: AdminConnection, *, output: str) -> None:
    """Show who leads, who votes, and how far this broker is."""
    answer = await _status(admin)
    if output != "table":
        show_document(
            {
                "leader_id": answer.leader_id,
                "current_term": answer.current_term,
                "last_applied": answer.last_applied,
                "voters": list(answer.voters),
                "learners": list(answer.learners),
                "self_node_id": answer.self_node_id,
                "raft_addr": answer.raft_addr,
            },
            output,
        )
        return
    # Scripts take the last word of these lines.
    lines = [
        ("Self Node ID:", str(answer.self_node_id)),
        ("Raft Address:", answer.raft_addr),
        ("Leader:", str(answer.leader_id) if answer.leader_id else "none"),
        ("Term:", str(answer.current_term)),
        ("Last Applied:", str(answer.last_applied)),
        ("Voters:", str(list(answer.voters))),
    ]
    if answer.learners:
        lines.append(("Learners:", str(list(answer.learners))))
    for label, text in lines:
        click.echo(f"{click.style(f'{label:<13}', bold=True)} {text}")


@cluster.command("add-node")
@click.option(
    "--node-addr", type=AdminAddress(), required=True, help="Admin port of the broker that is to join."
)
@administrative
async def add_node(admin: AdminConnection, *, node_addr: Address, output: str) -> None:
    """Let a broker started with --join learn from the cluster; it votes when it is promoted."""
    async with admin_port_at(node_addr).connect() as newcomer:
        found = await _status(newcomer)
    request = pb.AddNodeRequest(addr=found.raft_addr, node_id=found.self_node_id)
    answer = await admin.call(_SERVICE + "AddNode", request, pb.AddNodeResponse, MEMBER_SECONDS_MAX)
    _tell(answer.success, answer.message, answer.node_id, output)


@cluster.command("promote-node")
@click.option("--node-id", type=click.IntRange(1), required=True, help="Broker that is to vote.")
@administrative
async def promote_node(admin: AdminConnection, *, node_id: int, output: str) -> None:
    """Let a broker that has learned vote."""
    request = pb.PromoteNodeRequest(node_id=node_id)
    answer = await admin.call(_SERVICE + "PromoteNode", request, pb.PromoteNodeResponse, MEMBER_SECONDS_MAX)
    _tell(answer.success, answer.message, node_id, output)


@cluster.command("remove-node")
@click.option("--node-id", type=click.IntRange(1), required=True, help="Broker that is to go.")
@administrative
async def remove_node(admin: AdminConnection, *, node_id: int, output: str) -> None:
    """Take a broker out of the cluster; unload it first."""
    request = pb.RemoveNodeRequest(node_id=node_id)
    answer = await admin.call(_SERVICE + "RemoveNode", request, pb.RemoveNodeResponse, MEMBER_SECONDS_MAX)
    _tell(answer.success, answer.message, node_id, output)


async def _status(admin: AdminConnection) -> pb.ClusterStatusResponse:
    return await admin.call(_SERVICE + "ClusterStatus", pb.Empty(), pb.ClusterStatusResponse)


def _tell(success: bool, message: str, node_id: int, output: str) -> None:
    if not success:
        raise click.ClickException(message)
    show_done(message, {"success": success, "node_id": node_id, "message": message}, output)
