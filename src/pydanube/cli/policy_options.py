"""The limits of a namespace or a topic, as options and as a table."""

import functools
from collections.abc import Mapping
from typing import Any, Final

import click

from pydanube.cli.admin_connection import Command
from pydanube.cli.tables import show_facts
from pydanube.protocol import pydanube_admin_pb2 as pb

LIMIT_MAX: Final = (1 << 32) - 1
_MEANINGS: Final = {
    "max_producers_per_topic": "Producers of a topic.",
    "max_subscriptions_per_topic": "Subscriptions of a topic.",
    "max_consumers_per_topic": "Consumers of a topic.",
    "max_consumers_per_subscription": "Consumers of a subscription.",
    "max_publish_rate": "Messages a second to a topic.",
    "max_subscription_dispatch_rate": "Messages a second from a subscription.",
    "max_message_size": "Bytes of a payload.",
}


def policy_options(command: Command) -> Command:
    """An option for each limit; the command gets those given as `policies`."""

    @functools.wraps(command)
    def with_policies(**options: Any) -> Any:
        given = {name: options.pop(name) for name in _MEANINGS}
        policies = pb.Policies(**{name: value for name, value in given.items() if value is not None})
        return command(policies=policies, **options)

    decorated: Command = with_policies
    for name, meaning in reversed(_MEANINGS.items()):
        flag = "--" + name.replace("_", "-")
        kind = click.IntRange(0, LIMIT_MAX)
        decorated = click.option(flag, name, type=kind, help=f"{meaning} 0: as many as come.")(decorated)
    return decorated


def policy_document(policies: pb.Policies) -> dict[str, int]:
    return {name: getattr(policies, name) for name in _MEANINGS}


def show_policies(title: str, policies: Mapping[str, Any], output: str) -> None:
    lines = [(name, f"{value:,}" if value else "unlimited") for name, value in policies.items()]
    show_facts(title, lines, dict(policies), output)
