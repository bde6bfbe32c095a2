"""`danube schemas`: what messages look like, version by version."""

import os
from pathlib import Path
from typing import Any, Final

import click

from pydanube.cli.admin_connection import AdminConnection, Command, administrative
from pydanube.cli.completion import complete_subjects
from pydanube.cli.tables import show_document, show_done, show_facts, show_rows, time_text
from pydanube.protocol import schema_registry_pb2 as pb

_SERVICE: Final = "danube_schema.SchemaRegistry/"
STRUCTURED: Final = ("json_schema", "avro", "protobuf")
MODES: Final = (
    *("none", "backward", "forward", "full"),
    *("backward_transitive", "forward_transitive", "full_transitive"),
)

_subject: Final = click.argument("subject", shell_complete=complete_subjects)


def definition_options(command: Command) -> Command:
    """`--file` or `--schema`: where the definition is."""
    command = click.option("--schema", "text", help="The definition itself.")(command)
    return click.option(
        "--file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the definition.",
    )(command)


@click.group()
def schemas() -> None:
    """Register schemas, look at them, check changes."""


@schemas.command()
@_subject
@click.option(
    "--schema-type",
    type=click.Choice([*STRUCTURED, "string", "bytes", "number"]),
    required=True,
    help="Format of the definition; the last three have none.",
)
@definition_options
@click.option("--description", default="", help="What is new about it.")
@click.option("--tags", multiple=True, help="May be given several times.")
@administrative
async def register(
    admin: AdminConnection,
    *,
    subject: str,
    schema_type: str,
    file: Path | None,
    text: str | None,
    description: str,
    tags: tuple[str, ...],
    output: str,
) -> None:
    """Make a new version of SUBJECT, or the subject with its first one."""
    request = pb.RegisterSchemaRequest(
        subject=subject,
        schema_type=schema_type,
        schema_definition=_definition(file, text, needed=schema_type in STRUCTURED),
        description=description,
        created_by=os.environ.get("USER") or "admin",
        tags=tags,
    )
    answer = await admin.call(_SERVICE + "RegisterSchema", request, pb.RegisterSchemaResponse)
    document = {
        "subject": subject,
        "schema_id": answer.schema_id,
        "version": answer.version,
        "is_new_version": answer.is_new_version,
        "fingerprint": answer.fingerprint,
    }
    lines = [
        ("Subject:", subject),
        ("Schema ID:", str(answer.schema_id)),
        ("Version:", str(answer.version)),
        ("New:", "yes" if answer.is_new_version else "no, the subject has it already"),
        ("Fingerprint:", answer.fingerprint),
    ]
    show_facts("Schema registered", lines, document, output)


@schemas.command()
@click.option("--id", "schema_id", type=click.IntRange(1), help="Schema by its id.")
@click.option("--subject", shell_complete=complete_subjects, help="The latest schema of a subject.")
@click.option("--version", type=click.IntRange(1), help="This version instead of the latest.")
@administrative
async def get(
    admin: AdminConnection, *, schema_id: int | None, subject: str | None, version: int | None, output: str
) -> None:
    """Show a schema: the latest of a subject, or a version of it."""
    if (schema_id is None) == (subject is None):
        raise click.UsageError("give either --id or --subject")
    if subject is not None:
        found = await _latest(admin, subject)
        schema_id = found.schema_id
    if subject is None or (version is not None and version != found.version):
        request = pb.GetSchemaRequest(schema_id=schema_id, version=version)
        found = await admin.call(_SERVICE + "GetSchema", request, pb.GetSchemaResponse)
    definition = found.schema_definition.decode(errors="replace")
    document = {
        "schema_id": found.schema_id,
        "version": found.version,
        "subject": found.subject,
        "schema_type": found.schema_type,
        "schema_definition": definition,
        "description": found.description,
        "created_at": found.created_at,
        "created_by": found.created_by,
        "tags": list(found.tags),
        "fingerprint": found.fingerprint,
        "compatibility_mode": found.compatibility_mode.upper(),
    }
    lines = [
        ("schema id", str(found.schema_id)),
        ("version", str(found.version)),
        ("type", found.schema_type),
        ("compatibility", found.compatibility_mode.upper()),
        ("description", found.description or "-"),
        ("created", f"{time_text(found.created_at)} by {found.created_by or 'somebody'}"),
        ("tags", ", ".join(found.tags) or "-"),
        ("fingerprint", found.fingerprint),
        ("definition", definition),
    ]
    show_facts(f"Schema {found.subject}", lines, document, output)


@schemas.command()
@_subject
@administrative
async def versions(admin: AdminConnection, *, subject: str, output: str) -> None:
    """List the versions of SUBJECT."""
    request = pb.ListVersionsRequest(subject=subject)
    answer = await admin.call(_SERVICE + "ListVersions", request, pb.ListVersionsResponse)
    fields = ("version", "schema_id", "created_at", "created_by", "description", "fingerprint")
    document = [{name: getattr(each, name) for name in fields} for each in answer.versions]
    rows = [
        (f"v{each.version}", time_text(each.created_at), each.created_by, each.fingerprint, each.description)
        for each in answer.versions
    ]
    columns = ("version", "created (UTC)", "by", "fingerprint", "description")
    show_rows(f"Versions of {subject}", columns, rows, document, output)


@schemas.command()
@_subject
@click.option("--schema-type", type=click.Choice(STRUCTURED), required=True, help="Format of the definition.")
@definition_options
@click.option("--mode", type=click.Choice(MODES, case_sensitive=False), help="Instead of the subject's own.")
@click.option("--exit-code", is_flag=True, help="End with status 1 if it is not compatible.")
@administrative
async def check(
    admin: AdminConnection,
    *,
    subject: str,
    schema_type: str,
    file: Path | None,
    text: str | None,
    mode: str | None,
    exit_code: bool,
    output: str,
) -> None:
    """Say whether a schema could become the next version of SUBJECT, and if not, why."""
    request = pb.CheckCompatibilityRequest(
        subject=subject,
        new_schema_definition=_definition(file, text, needed=True),
        schema_type=schema_type,
        compatibility_mode=mode,
    )
    answer = await admin.call(_SERVICE + "CheckCompatibility", request, pb.CheckCompatibilityResponse)
    errors = list(answer.errors)
    if output != "table":
        show_document({"subject": subject, "is_compatible": answer.is_compatible, "errors": errors}, output)
    elif answer.is_compatible:
        click.secho(f"COMPATIBLE with {subject}", fg="green")
    else:
        click.secho(f"NOT COMPATIBLE with {subject}", fg="red")
        for each in errors:
            click.echo(f"  - {each}")
    if exit_code and not answer.is_compatible:
        raise SystemExit(1)


@schemas.command("get-compatibility")
@_subject
@administrative
async def get_compatibility(admin: AdminConnection, *, subject: str, output: str) -> None:
    """Show which changes SUBJECT allows."""
    mode = (await _latest(admin, subject)).compatibility_mode.upper()
    document = {"subject": subject, "compatibility_mode": mode}
    show_facts(f"Subject {subject}", [("compatibility", mode)], document, output)


@schemas.command("set-compatibility")
@_subject
@click.option(
    "--mode",
    type=click.Choice(MODES, case_sensitive=False),
    required=True,
    help="Whose readers a new version must not break: of old data, of new data, of both; of all versions.",
)
@administrative
async def set_compatibility(admin: AdminConnection, *, subject: str, mode: str, output: str) -> None:
    """Say which changes SUBJECT allows from now on; versions that exist are not checked again."""
    request = pb.SetCompatibilityModeRequest(subject=subject, compatibility_mode=mode.upper())
    answer = await admin.call(_SERVICE + "SetCompatibilityMode", request, pb.SetCompatibilityModeResponse)
    _refuse_unless(answer.success, answer.message)
    document = {"subject": subject, "compatibility_mode": mode.upper()}
    show_done(f"Compatibility of {subject}: {mode.upper()}", document, output)


@schemas.command()
@_subject
@click.option("--version", type=click.IntRange(1), required=True, help="Version to delete.")
@click.option("--confirm", is_flag=True, help="Yes: messages written with it can no longer be decoded.")
@administrative
async def delete(admin: AdminConnection, *, subject: str, version: int, confirm: bool, output: str) -> None:
    """Delete a version of SUBJECT; its number is not used again."""
    if not confirm:
        raise click.ClickException(
            f"version {version} of {subject} would be gone for good: add --confirm if that is meant"
        )
    request = pb.DeleteSchemaVersionRequest(subject=subject, version=version)
    answer = await admin.call(_SERVICE + "DeleteSchemaVersion", request, pb.DeleteSchemaVersionResponse)
    _refuse_unless(answer.success, answer.message)
    document = {"subject": subject, "version": version, "success": True}
    show_done(f"Deleted: version {version} of {subject}", document, output)


@schemas.command("list-subjects")
@administrative
async def list_subjects(admin: AdminConnection, *, output: str) -> None:
    """List every subject with its latest version."""
    request = pb.ListSubjectsRequest()
    answer = await admin.call(_SERVICE + "ListSubjects", request, pb.ListSubjectsResponse)
    document: list[dict[str, Any]] = [
        {
            "subject": each.subject,
            "schema_type": each.schema_type,
            "latest_version": each.latest_version,
            "schema_id": each.schema_id,
            "compatibility_mode": each.compatibility_mode,
            "tags": list(each.tags),
        }
        for each in sorted(answer.subjects, key=lambda subject: subject.subject)
    ]
    rows = [
        (
            str(each["schema_id"]),
            each["schema_type"],
            f"v{each['latest_version']}",
            each["compatibility_mode"].upper(),
            ", ".join(each["tags"]) or "-",
            each["subject"],
        )
        for each in document
    ]
    columns = ("id", "type", "latest", "compatibility", "tags", "subject")
    show_rows("Subjects", columns, rows, document, output)


async def _latest(admin: AdminConnection, subject: str) -> pb.GetSchemaResponse:
    request = pb.GetLatestSchemaRequest(subject=subject)
    return await admin.call(_SERVICE + "GetLatestSchema", request, pb.GetSchemaResponse)


def _refuse_unless(success: bool, message: str) -> None:
    if not success:
        raise click.ClickException(message)


def _definition(file: Path | None, text: str | None, *, needed: bool) -> bytes:
    if file is not None and text is not None:
        raise click.UsageError("--file and --schema exclude each other")
    if file is None and text is None:
        if needed:
            raise click.UsageError("give the definition by --file or --schema")
        return b""
    return file.read_bytes() if file is not None else (text or "").encode()


schemas.add_command(list_subjects, "list")
