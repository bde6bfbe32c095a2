"""`danube schemas`: what messages look like, version by version."""

import json
import os
from pathlib import Path
from typing import Any, Final

import click

from pydanube.cli.admin_connection import AdminConnection, Command, administrative
from pydanube.cli.completion import complete_subjects
from pydanube.cli.tables import show_document, show_done, show_facts, show_rows, time_text
from pydanube.client.schema_records import full_mode
from pydanube.protocol import pydanube_admin_pb2 as own_pb
from pydanube.protocol import schema_registry_pb2 as pb

_SERVICE: Final = "danube_schema.SchemaRegistry/"
_OWN: Final = "pydanube.admin.v1.Admin/"
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


class _Reference(click.ParamType[own_pb.SchemaReference]):
    """`name=subject:version`."""

    name = "name=subject:version"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> own_pb.SchemaReference:
        name, _, target = str(value).partition("=")
        subject, _, version = target.rpartition(":")
        if not name or not subject or not version.isdecimal() or not 0 < int(version) < 1 << 32:
            self.fail(f"{value!r} is no reference: expected {self.name}, as shop.Money=money:3", param, ctx)
        return own_pb.SchemaReference(name=name, subject=subject, version=int(version))


_references: Final = click.option(
    "--reference",
    "references",
    type=_Reference(),
    multiple=True,
    help="What the definition means by a name that another subject declares; may be given several times.",
)


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
@_references
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
    references: tuple[own_pb.SchemaReference, ...],
    description: str,
    tags: tuple[str, ...],
    output: str,
) -> None:
    """Make a new version of SUBJECT, or the subject with its first one."""
    given: dict[str, Any] = {
        "subject": subject,
        "schema_type": schema_type,
        "schema_definition": _definition(file, text, needed=schema_type in STRUCTURED),
        "description": description,
        "created_by": os.environ.get("USER") or "admin",
        "tags": tags,
    }
    answer: pb.RegisterSchemaResponse | own_pb.RegisterSchemaWithReferencesResponse
    if references:
        answer = await admin.call(
            _OWN + "RegisterSchemaWithReferences",
            own_pb.RegisterSchemaWithReferencesRequest(**given, references=references),
            own_pb.RegisterSchemaWithReferencesResponse,
        )
    else:
        request = pb.RegisterSchemaRequest(**given)
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
    document: dict[str, Any] = {
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
        "compatibility_mode": full_mode(found).upper(),
    }
    references = _listed_references(definition)
    if references:
        document["references"] = references
    lines = [
        ("schema id", str(found.schema_id)),
        ("version", str(found.version)),
        ("type", found.schema_type),
        ("compatibility", full_mode(found).upper()),
        ("description", found.description or "-"),
        ("created", f"{time_text(found.created_at)} by {found.created_by or 'somebody'}"),
        ("tags", ", ".join(found.tags) or "-"),
        ("fingerprint", found.fingerprint),
        *(("refers to", f"{each['name']}={each['subject']}:{each['version']}") for each in references),
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
@_references
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
    references: tuple[own_pb.SchemaReference, ...],
    mode: str | None,
    exit_code: bool,
    output: str,
) -> None:
    """Say whether a schema could become the next version of SUBJECT, and if not, why."""
    definition = _definition(file, text, needed=True)
    if references:
        wide = own_pb.CheckSchemaWithReferencesRequest(
            subject=subject,
            schema_type=schema_type,
            schema_definition=definition,
            references=references,
            compatibility_mode=mode or "",
        )
        checked = await admin.call(
            _OWN + "CheckSchemaWithReferences", wide, own_pb.CheckSchemaWithReferencesResponse
        )
        errors, is_compatible = list(checked.errors), not checked.errors
    else:
        request = pb.CheckCompatibilityRequest(
            subject=subject,
            new_schema_definition=definition,
            schema_type=schema_type,
            compatibility_mode=mode,
        )
        answer = await admin.call(_SERVICE + "CheckCompatibility", request, pb.CheckCompatibilityResponse)
        errors, is_compatible = list(answer.errors), answer.is_compatible
    if output != "table":
        show_document({"subject": subject, "is_compatible": is_compatible, "errors": errors}, output)
    elif is_compatible:
        click.secho(f"COMPATIBLE with {subject}", fg="green")
    else:
        click.secho(f"NOT COMPATIBLE with {subject}", fg="red")
        for each in errors:
            click.echo(f"  - {each}")
    if exit_code and not is_compatible:
        raise SystemExit(1)


@schemas.command("get-compatibility")
@_subject
@administrative
async def get_compatibility(admin: AdminConnection, *, subject: str, output: str) -> None:
    """Show which changes SUBJECT allows."""
    mode = full_mode(await _latest(admin, subject)).upper()
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


def _listed_references(envelope: str) -> list[dict[str, Any]]:
    """What the definition refers to, out of the envelope around it; a plain type has none."""
    document = json.loads(envelope)
    if not isinstance(document, dict):
        return []
    references: list[dict[str, Any]] = next(iter(document.values())).get("references", [])
    return references


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
