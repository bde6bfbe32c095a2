"""What a topic expects of its messages: commands of `danube topics`."""

from typing import Final

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.completion import complete_subjects
from pydanube.cli.tables import show_done, show_facts
from pydanube.cli.topic_argument import topic_argument
from pydanube.protocol import schema_registry_pb2 as pb

_SERVICE: Final = "danube_schema.SchemaRegistry/"
_POLICIES: Final = click.Choice(["none", "warn", "enforce"], case_sensitive=False)
_payload_validation: Final = click.option(
    "--enable-payload-validation", is_flag=True, help="Check every payload, not only which schema it names."
)


@click.command("configure-schema")
@topic_argument
@click.option(
    "--subject", required=True, shell_complete=complete_subjects, help="Subject the messages belong to."
)
@click.option(
    "--validation-policy",
    type=_POLICIES,
    default="none",
    show_default=True,
    help="What does not fit is taken, taken with a warning, or refused.",
)
@_payload_validation
@administrative
async def configure_schema(
    admin: AdminConnection,
    *,
    topic: str,
    subject: str,
    validation_policy: str,
    enable_payload_validation: bool,
    output: str,
) -> None:
    """Say which schema subject the messages of TOPIC belong to, and what happens to those that do not."""
    request = pb.ConfigureTopicSchemaRequest(
        topic_name=topic,
        schema_subject=subject,
        validation_policy=validation_policy.upper(),
        enable_payload_validation=enable_payload_validation,
    )
    answer = await admin.call(_SERVICE + "ConfigureTopicSchema", request, pb.ConfigureTopicSchemaResponse)
    _done(
        answer,
        {"topic": topic, "schema_subject": subject},
        validation_policy,
        enable_payload_validation,
        output,
    )


@click.command("set-validation-policy")
@topic_argument
@click.option(
    "--policy",
    type=_POLICIES,
    required=True,
    help="What does not fit is taken, taken with a warning, or refused.",
)
@_payload_validation
@administrative
async def set_validation_policy(
    admin: AdminConnection, *, topic: str, policy: str, enable_payload_validation: bool, output: str
) -> None:
    """Change what happens to messages of TOPIC that do not fit its schema subject."""
    request = pb.UpdateTopicValidationPolicyRequest(
        topic_name=topic,
        validation_policy=policy.upper(),
        enable_payload_validation=enable_payload_validation,
    )
    answer = await admin.call(
        _SERVICE + "UpdateTopicValidationPolicy", request, pb.UpdateTopicValidationPolicyResponse
    )
    _done(answer, {"topic": topic}, policy, enable_payload_validation, output)


@click.command("get-schema-config")
@topic_argument
@administrative
async def get_schema_config(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Show which schema subject the messages of TOPIC belong to, and what happens to those that do not."""
    request = pb.GetTopicSchemaConfigRequest(topic_name=topic)
    answer = await admin.call(_SERVICE + "GetTopicSchemaConfig", request, pb.GetTopicSchemaConfigResponse)
    document = {
        "topic": topic,
        "schema_subject": answer.schema_subject,
        "validation_policy": answer.validation_policy.upper(),
        "enable_payload_validation": answer.enable_payload_validation,
        "schema_id": answer.schema_id,
    }
    lines = [
        ("subject", answer.schema_subject or "none"),
        ("schema id", str(answer.schema_id) if answer.schema_id else "-"),
        ("validation policy", answer.validation_policy.upper()),
        ("payload validation", _word(answer.enable_payload_validation)),
    ]
    show_facts(f"Schema of {topic}", lines, document, output)


def _done(
    answer: pb.ConfigureTopicSchemaResponse | pb.UpdateTopicValidationPolicyResponse,
    what: dict[str, str],
    policy: str,
    payloads: bool,
    output: str,
) -> None:
    if not answer.success:
        raise click.ClickException(answer.message)
    text = f"{', '.join(what.values())}: policy {policy.upper()}, payload validation {_word(payloads)}"
    document = what | {"validation_policy": policy.upper(), "enable_payload_validation": payloads}
    show_done(text, document, output)


def _word(enabled: bool) -> str:
    return "ENABLED" if enabled else "DISABLED"
