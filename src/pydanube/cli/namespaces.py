"""`danube namespaces`: groups of topics, and the limits they share."""

import json

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.brokers import list_namespaces
from pydanube.cli.policy_options import policy_document, policy_options, show_policies
from pydanube.cli.tables import show_done, show_rows
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.protocol import pydanube_admin_pb2 as own

_SERVICE = "danube_admin.NamespaceAdmin/"


@click.group()
def namespaces() -> None:
    """Make and delete namespaces, set their limits."""


namespaces.add_command(list_namespaces, "list")


@namespaces.command()
@click.argument("namespace")
@administrative
async def topics(admin: AdminConnection, *, namespace: str, output: str) -> None:
    """List the topics of NAMESPACE."""
    request = pb.NamespaceRequest(name=namespace)
    answer = await admin.call(_SERVICE + "GetNamespaceTopics", request, pb.TopicListResponse)
    names = list(answer.topics)
    show_rows(f"Topics of {namespace}", ("topic",), [(name,) for name in names], names, output)


@namespaces.command()
@click.argument("namespace")
@administrative
async def policies(admin: AdminConnection, *, namespace: str, output: str) -> None:
    """Show the limits of NAMESPACE; a topic may have its own."""
    request = pb.NamespaceRequest(name=namespace)
    answer = await admin.call(_SERVICE + "GetNamespacePolicies", request, pb.PolicyResponse)
    show_policies(f"Policies of {namespace}", json.loads(answer.policies), output)


@namespaces.command("set-policies")
@click.argument("namespace")
@policy_options
@administrative
async def set_policies(
    admin: AdminConnection, *, namespace: str, policies: own.Policies, output: str
) -> None:
    """Change limits of NAMESPACE; those not named stay. They hold at once."""
    if not policies.ListFields():
        raise click.UsageError("nothing to change: name a limit, such as --max-publish-rate 1000")
    request = own.SetNamespacePoliciesRequest(namespace=namespace, policies=policies)
    answer = await admin.call(
        "pydanube.admin.v1.Admin/SetNamespacePolicies", request, own.SetNamespacePoliciesResponse
    )
    show_policies(f"Policies of {namespace}", policy_document(answer.policies), output)


@namespaces.command()
@click.argument("namespace")
@administrative
async def create(admin: AdminConnection, *, namespace: str, output: str) -> None:
    """Make NAMESPACE."""
    request = pb.NamespaceRequest(name=namespace)
    answer = await admin.call(_SERVICE + "CreateNamespace", request, pb.NamespaceResponse)
    document = {"namespace": namespace, "success": answer.success}
    show_done(f"Namespace created: {namespace}", document, output)


@namespaces.command()
@click.argument("namespace")
@administrative
async def delete(admin: AdminConnection, *, namespace: str, output: str) -> None:
    """Delete NAMESPACE, which must have no topics."""
    request = pb.NamespaceRequest(name=namespace)
    answer = await admin.call(_SERVICE + "DeleteNamespace", request, pb.NamespaceResponse)
    document = {"namespace": namespace, "success": answer.success}
    show_done(f"Namespace deleted: {namespace}", document, output)
