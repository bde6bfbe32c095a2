"""TOPIC as every command takes it: /namespace/topic, namespace/topic, or a topic with --namespace."""

import functools
from typing import Any

import click

from pydanube.cli.admin_connection import Command
from pydanube.cli.completion import complete_subscriptions, complete_topics
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName


def topic_argument(command: Command) -> Command:
    """TOPIC and `--namespace`; the command gets the full name as `topic`."""

    @click.argument("topic", shell_complete=complete_topics)
    @click.option("--namespace", help="Namespace of a TOPIC that is written without one.")
    @functools.wraps(command)
    def with_topic(*, topic: str, namespace: str | None, **options: Any) -> Any:
        return command(topic=full_name(topic, namespace), **options)

    return with_topic


def full_name(text: str, namespace: str | None = None) -> str:
    """The name with its leading slash, checked; raises what click shows as wrong usage."""
    if namespace is not None and not text.startswith("/") and "/" not in text:
        text = f"{namespace}/{text}"
    elif "/" not in text:
        raise click.BadParameter(
            f"{text!r} has no namespace: write /default/{text}, or add --namespace", param_hint="TOPIC"
        )
    try:
        return str(TopicName.parse("/" + text.removeprefix("/")))
    except Rejected as error:
        raise click.BadParameter(error.text, param_hint="TOPIC") from error


subscription_option = click.option(
    "-s",
    "--subscription",
    required=True,
    shell_complete=complete_subscriptions,
    help="Name of the subscription.",
)
