"""`danube security`: roles, bindings and tokens; and a start for laptops."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.tables import output_option, show_document, show_done, show_facts, show_rows
from pydanube.cli.token_options import Ttl, signing_key, token_key_options, verifier
from pydanube.kernel.errors import DanubeError
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.security.permissions import Permission, Scope

_SERVICE = "danube_admin.SecurityAdmin/"
_ISSUER = "danube-auth"
_SCOPES = [scope.value for scope in Scope]


class Names(click.ParamType[tuple[str, ...]]):
    """`one,two`."""

    name = "name,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = tuple(part.strip() for part in str(value).split(","))
        if not all(names):
            self.fail(f"{value!r} is no list of names: expected one,two", param, ctx)
        return names


@click.group()
def security() -> None:
    """Say who may do what: roles, bindings, tokens."""


@security.group()
def roles() -> None:
    """Named sets of permissions."""


@roles.command("create")
@click.argument("name")
@click.option(
    "--permissions", type=Names(), required=True, help=f"Of {', '.join(Permission)}, separated by commas."
)
@administrative
async def create_role(
    admin: AdminConnection, *, name: str, permissions: tuple[str, ...], output: str
) -> None:
    """Make the role NAME, or give it other permissions; this counts at once."""
    request = pb.CreateRoleRequest(role=pb.RoleDefinition(name=name, permissions=permissions))
    await admin.call(_SERVICE + "CreateRole", request, pb.CreateRoleResponse)
    show_done(f"Role {name} is in force", {"name": name, "success": True}, output)


@roles.command("get")
@click.argument("name")
@administrative
async def get_role(admin: AdminConnection, *, name: str, output: str) -> None:
    """Show the role NAME."""
    answer = await admin.call(_SERVICE + "GetRole", pb.GetRoleRequest(name=name), pb.GetRoleResponse)
    document = _role_document(answer.role)
    lines = [("permissions", ", ".join(answer.role.permissions)), ("system", str(answer.role.system).lower())]
    show_facts(f"Role {name}", lines, document, output)


@roles.command("list")
@administrative
async def list_roles(admin: AdminConnection, *, output: str) -> None:
    """Show all roles."""
    answer = await admin.call(_SERVICE + "ListRoles", pb.Empty(), pb.ListRolesResponse)
    rows = [(role.name, ", ".join(role.permissions)) for role in answer.roles]
    show_rows("Roles", ("role", "permissions"), rows, [_role_document(role) for role in answer.roles], output)


@roles.command("delete")
@click.argument("name")
@administrative
async def delete_role(admin: AdminConnection, *, name: str, output: str) -> None:
    """Delete the role NAME; bindings that name it stay, and grant nothing by it."""
    await admin.call(_SERVICE + "DeleteRole", pb.DeleteRoleRequest(name=name), pb.DeleteRoleResponse)
    show_done(f"Role {name} is deleted", {"name": name, "success": True}, output)


@security.group()
def bindings() -> None:
    """Who has which roles, and where."""


_scope = click.option(
    "--scope", type=click.Choice(_SCOPES), required=True, help="How far the binding reaches."
)
_resource = click.option(
    "--resource", default="", help="The namespace, or /namespace/topic; nothing for the whole cluster."
)


@bindings.command("create")
@click.argument("binding_id", metavar="ID")
@click.option(
    "--principal-type", required=True, metavar="TYPE", help="user or service_account, as in the tokens."
)
@click.option("--principal-name", required=True, metavar="NAME")
@click.option("--roles", type=Names(), required=True, help="Separated by commas; they need not exist yet.")
@_scope
@_resource
@administrative
async def create_binding(
    admin: AdminConnection,
    *,
    binding_id: str,
    principal_type: str,
    principal_name: str,
    roles: tuple[str, ...],
    scope: str,
    resource: str,
    output: str,
) -> None:
    """Make the binding ID, or put other roles into it; this counts at once."""
    binding = pb.BindingDefinition(
        id=binding_id,
        principal_type=principal_type,
        principal_name=principal_name,
        role_names=roles,
        scope=scope,
        resource_name=resource,
    )
    request = pb.CreateBindingRequest(binding=binding)
    await admin.call(_SERVICE + "CreateBinding", request, pb.CreateBindingResponse)
    text = f"{principal_type} {principal_name} has {', '.join(roles)} on {resource or 'the whole cluster'}"
    show_done(text, {"id": binding_id, "success": True}, output)


@bindings.command("get")
@click.argument("binding_id", metavar="ID")
@_scope
@_resource
@administrative
async def get_binding(
    admin: AdminConnection, *, binding_id: str, scope: str, resource: str, output: str
) -> None:
    """Show the binding ID."""
    request = pb.GetBindingRequest(scope=scope, resource_name=resource, binding_id=binding_id)
    answer = await admin.call(_SERVICE + "GetBinding", request, pb.GetBindingResponse)
    document = _binding_document(answer.binding)
    lines = [(name.replace("_", " "), _text(value)) for name, value in document.items()]
    show_facts(f"Binding {binding_id}", lines, document, output)


@bindings.command("list")
@click.option("--scope", type=click.Choice(_SCOPES), help="Only those of this scope and resource.")
@_resource
@administrative
async def list_bindings(admin: AdminConnection, *, scope: str | None, resource: str, output: str) -> None:
    """Show the bindings of a scope and resource, or all of them."""
    if scope is None:
        if resource:
            raise click.UsageError("--resource needs --scope: namespace or topic")
        answer = await admin.call(_SERVICE + "ListAllBindings", pb.Empty(), pb.ListBindingsResponse)
    else:
        request = pb.ListBindingsRequest(scope=scope, resource_name=resource)
        answer = await admin.call(_SERVICE + "ListBindings", request, pb.ListBindingsResponse)
    documents = [_binding_document(binding) for binding in answer.bindings]
    columns = ("id", "principal_type", "principal_name", "scope", "resource_name", "role_names")
    rows = [tuple(_text(each[name]) for name in columns) for each in documents]
    show_rows("Bindings", tuple(name.replace("_", " ") for name in columns), rows, documents, output)


@bindings.command("delete")
@click.argument("binding_id", metavar="ID")
@_scope
@_resource
@administrative
async def delete_binding(
    admin: AdminConnection, *, binding_id: str, scope: str, resource: str, output: str
) -> None:
    """Delete the binding ID; what it granted ends at once, also on open connections."""
    request = pb.DeleteBindingRequest(scope=scope, resource_name=resource, binding_id=binding_id)
    await admin.call(_SERVICE + "DeleteBinding", request, pb.DeleteBindingResponse)
    show_done(f"Binding {binding_id} is deleted", {"id": binding_id, "success": True}, output)


@security.group()
def tokens() -> None:
    """Make and check tokens; no broker is asked."""


@tokens.command("create")
@click.option("--subject", required=True, metavar="NAME", help="Name of the principal.")
@click.option("--type", "kind", default="service_account", show_default=True, help="user, service_account …")
@click.option("--ttl", type=Ttl(), default="8760h", show_default=True, help="How long it is good for.")
@click.option("--issuer", default=_ISSUER, show_default=True)
@click.option("--audience", help="Whom it is for, if brokers ask for that.")
@token_key_options
@output_option
def create_token(
    *, subject: str, kind: str, ttl: int, issuer: str, audience: str | None, output: str, **key: Any
) -> None:
    """Print a token for NAME; the table is the token alone."""
    from pydanube.security.principals import claimed_principal  # noqa: PLC0415 - slow to load
    from pydanube.security.tokens import mint_token  # noqa: PLC0415

    now_ms = time.time_ns() // 1_000_000
    try:
        principal = claimed_principal(kind, subject)
        token = mint_token(
            signing_key(**key),
            principal,
            issuer=issuer,
            ttl_seconds=ttl,
            now_ms=now_ms,
            audience=audience,
        )
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    document = {
        "token": token,
        "principal_type": str(principal.kind),
        "principal_name": principal.name,
        "iss": issuer,
        "exp": now_ms // 1000 + ttl,
    }
    if output == "table":
        click.echo(token)
    else:
        show_document(document, output)


@tokens.command("validate")
@click.option("--token", required=True, envvar="DANUBE_TOKEN", help="The token; also DANUBE_TOKEN.")
@click.option("--issuer", help="Who must have made it.")
@click.option("--audience", help="Whom it must be for.")
@token_key_options
@output_option
def validate_token(*, token: str, issuer: str | None, audience: str | None, output: str, **key: Any) -> None:
    """Say what a token says, if it is good; exit status 1 if it is not."""
    try:
        claims = verifier(issuer, audience, **key).claims(token)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    left = int(claims.exp - time.time())
    document = {
        "sub": claims.sub,
        "principal_type": claims.principal_type,
        "principal_name": claims.principal_name,
        "iss": claims.iss,
        "exp": int(claims.exp),
        "remaining_seconds": left,
    }
    lines = [(name.replace("_", " "), str(value)) for name, value in document.items()]
    show_facts("The token is good", lines, document, output)


@security.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", "names", multiple=True, metavar="HOST", help="Further name or address of the broker.")
@click.option("--admin", default="admin", show_default=True, help="Name of the first admin.")
@click.option("--algorithm", type=click.Choice(["Ed25519", "HS256"]), default="Ed25519", show_default=True)
@output_option
def quickstart(*, directory: Path, names: tuple[str, ...], admin: str, algorithm: Any, output: str) -> None:
    """Make an authority, certificates, a token key and an admin's token in DIRECTORY, to try security with."""
    from pydanube.security.quickstart import quickstart as make  # noqa: PLC0415 - slow to load

    now_ms = time.time_ns() // 1_000_000
    try:
        made = make(directory, now_ms=now_ms, names=names, admin=admin, algorithm=algorithm)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    if output != "table":
        show_document({name: str(file) for name, file in asdict(made).items()}, output)
        return
    click.secho(f"Made in {directory}, readable by you only", fg="green")
    click.echo(
        f"""
Start a broker with it, then make a role:

  danube broker --config-file {made.broker_config}
  danube security roles create writer --permissions Produce,Lookup \\
    --ca {made.ca} --token @{made.admin_token}
  danube produce -s danubes://127.0.0.1:6650 --ca {made.ca} --token @{made.admin_token} -m hello --reliable
"""
    )


def _role_document(role: pb.RoleDefinition) -> dict[str, Any]:
    return {"name": role.name, "permissions": list(role.permissions), "system": role.system}


def _binding_document(binding: pb.BindingDefinition) -> dict[str, Any]:
    return {
        "id": binding.id,
        "principal_type": binding.principal_type,
        "principal_name": binding.principal_name,
        "role_names": list(binding.role_names),
        "scope": binding.scope,
        "resource_name": binding.resource_name,
    }


def _text(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
