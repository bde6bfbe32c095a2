"""`danube completion`: the shell completes commands, options, and what the broker knows of."""

from typing import Any, Final

import click

COMPLETE_VARIABLE: Final = "_DANUBE_COMPLETE"
ANSWER_SECONDS_MAX: Final = 1.0
"""Nobody waits longer for a completion."""
_PROFILES: Final = {
    "bash": 'eval "$(danube completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(danube completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "danube completion fish | source   # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_PROFILES)))
def completion(*, shell: str) -> None:
    """Print what makes SHELL complete this command, names of topics and subscriptions included.

    \b
    eval "$(danube completion bash)"      in ~/.bashrc
    eval "$(danube completion zsh)"       in ~/.zshrc, after compinit
    danube completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only here

    from pydanube.cli.main import main  # noqa: PLC0415 - it imports this module

    kind = get_completion_class(shell)
    assert kind is not None, "one of those click knows"
    click.echo(kind(main, {}, "danube", COMPLETE_VARIABLE).source())


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Topics of the broker the command would ask; none if it does not answer at once."""
    from pydanube.protocol import danube_admin_pb2 as pb  # noqa: PLC0415 - slow to load

    namespaces = _ask(ctx, "danube_admin.BrokerAdmin/ListNamespaces", pb.Empty(), pb.NamespaceListResponse)
    names: list[str] = []
    for namespace in () if namespaces is None else namespaces.namespaces:
        request = pb.NamespaceRequest(name=namespace)
        topics = _ask(ctx, "danube_admin.TopicAdmin/ListNamespaceTopics", request, pb.TopicInfoListResponse)
        names += [] if topics is None else [each.name for each in topics.topics]
    return [name for name in names if name.startswith(incomplete)]


def complete_subscriptions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Subscriptions of the TOPIC already typed."""
    from pydanube.protocol import danube_admin_pb2 as pb  # noqa: PLC0415

    # An option without its value yet keeps click from telling arguments apart: then they are all left over.
    topic = ctx.params.get("topic") or next(iter(ctx.args), None)
    if topic is None:
        return []
    request = pb.TopicRequest(name="/" + topic.removeprefix("/"))
    answer = _ask(ctx, "danube_admin.TopicAdmin/ListSubscriptions", request, pb.SubscriptionListResponse)
    names = () if answer is None else answer.subscriptions
    return [name for name in names if name.startswith(incomplete)]


def complete_subjects(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from pydanube.protocol import schema_registry_pb2 as pb  # noqa: PLC0415

    request = pb.ListSubjectsRequest()
    answer = _ask(ctx, "danube_schema.SchemaRegistry/ListSubjects", request, pb.ListSubjectsResponse)
    subjects = () if answer is None else answer.subjects
    return [each.subject for each in subjects if each.subject.startswith(incomplete)]


def _ask(ctx: click.Context, method: str, request: Any, response: Any) -> Any:
    """The broker's answer, or None: a completion never complains."""
    import asyncio  # noqa: PLC0415

    from pydanube.cli.admin_connection import admin_port_at  # noqa: PLC0415
    from pydanube.kernel.errors import DanubeError  # noqa: PLC0415

    port = admin_port_at(ctx.params["admin_addr"], ctx)

    async def answer() -> Any:
        async with port.connect() as admin:
            return await admin.call(method, request, response, ANSWER_SECONDS_MAX)

    try:
        return asyncio.run(answer())
    except DanubeError:
        return None
