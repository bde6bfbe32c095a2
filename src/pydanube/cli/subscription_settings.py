"""How a subscription treats its messages: commands of `danube subscriptions` and `danube topics`."""

from typing import Any, Final

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.tables import show_done, show_facts
from pydanube.cli.topic_argument import subscription_option, topic_argument
from pydanube.protocol import danube_admin_pb2 as pb

_SERVICE: Final = "danube_admin.TopicAdmin/"
_POISON: Final = {"dead_letter": pb.DeadLetter, "block": pb.Block, "drop": pb.Drop}
_BACKOFF: Final = {"fixed": pb.Fixed, "exponential": pb.Exponential}
_MILLISECONDS: Final = click.IntRange(0, (1 << 63) - 1)


@click.command("set-failure-policy")
@topic_argument
@subscription_option
@click.option(
    "--max-redelivery-count",
    type=click.IntRange(0, (1 << 32) - 1),
    required=True,
    help="How often a message is sent again before it counts as poison.",
)
@click.option(
    "--ack-timeout-ms", type=_MILLISECONDS, required=True, help="Not acknowledged so long: it failed."
)
@click.option(
    "--base-redelivery-delay-ms", type=_MILLISECONDS, required=True, help="Before the first redelivery."
)
@click.option(
    "--max-redelivery-delay-ms", type=_MILLISECONDS, required=True, help="The longest a message waits."
)
@click.option(
    "--backoff-strategy",
    type=click.Choice(list(_BACKOFF)),
    default="fixed",
    show_default=True,
    help="Whether the delay doubles from one redelivery to the next.",
)
@click.option("--dead-letter-topic", help="Where poison goes with --poison-policy dead_letter.")
@click.option(
    "--poison-policy",
    type=click.Choice(["dead_letter", "dead-letter", "block", "drop"]),
    required=True,
    help="What happens to a message that failed too often.",
)
@administrative
async def set_failure_policy(
    admin: AdminConnection,
    *,
    topic: str,
    subscription: str,
    backoff_strategy: str,
    poison_policy: str,
    output: str,
    **fields: Any,
) -> None:
    """Decide what happens to messages of a subscription that are not acknowledged. It holds at once."""
    poison = poison_policy.replace("-", "_")
    if poison == "dead_letter" and not (fields["dead_letter_topic"] or "").strip():
        raise click.UsageError("--poison-policy dead_letter needs a --dead-letter-topic")
    policy = pb.SubscriptionFailurePolicy(
        backoff_strategy=_BACKOFF[backoff_strategy], poison_policy=_POISON[poison], **fields
    )
    request = pb.SetSubscriptionFailurePolicyRequest(
        topic=topic, subscription=subscription, failure_policy=policy
    )
    await admin.call(_SERVICE + "SetSubscriptionFailurePolicy", request, pb.SubscriptionResponse)
    document = {"topic": topic, "subscription": subscription} | _policy_document(policy)
    show_done(f"Failure policy set: {subscription} of {topic}", document, output)


@click.command("get-failure-policy")
@topic_argument
@subscription_option
@administrative
async def get_failure_policy(admin: AdminConnection, *, topic: str, subscription: str, output: str) -> None:
    """Show what happens to messages of a subscription that are not acknowledged."""
    request = pb.GetSubscriptionFailurePolicyRequest(topic=topic, subscription=subscription)
    answer = await admin.call(
        _SERVICE + "GetSubscriptionFailurePolicy", request, pb.GetSubscriptionFailurePolicyResponse
    )
    if not answer.HasField("failure_policy"):
        raise click.ClickException(
            f"no failure policy is set for {subscription} of {topic}: the broker's own holds; "
            "set one by `danube subscriptions set-failure-policy`"
        )
    fields = _policy_document(answer.failure_policy)
    lines = [
        (name.replace("_", " "), "none" if value is None else str(value)) for name, value in fields.items()
    ]
    document = {"topic": topic, "subscription": subscription} | fields
    show_facts(f"Failure policy of {subscription} of {topic}", lines, document, output)


def _policy_document(policy: pb.SubscriptionFailurePolicy) -> dict[str, Any]:
    numbers = (
        *("max_redelivery_count", "ack_timeout_ms", "base_redelivery_delay_ms"),
        "max_redelivery_delay_ms",
    )
    return {name: getattr(policy, name) for name in numbers} | {
        "backoff_strategy": _word(_BACKOFF, policy.backoff_strategy),
        "dead_letter_topic": policy.dead_letter_topic if policy.HasField("dead_letter_topic") else None,
        "poison_policy": _word(_POISON, policy.poison_policy),
    }


def _word(words: dict[str, Any], number: int) -> str:
    """A number of a newer broker is shown as it is."""
    return next((word for word, known in words.items() if known == number), str(number))


@click.command("set-dispatch-config")
@topic_argument
@subscription_option
@click.option(
    "--max-unacked-messages",
    type=click.IntRange(1, 10_000),
    required=True,
    help="Messages delivered and not yet acknowledged, at most.",
)
@administrative
async def set_dispatch_config(
    admin: AdminConnection, *, topic: str, subscription: str, max_unacked_messages: int, output: str
) -> None:
    """Set how many messages of a subscription may be delivered and not acknowledged. It holds at once."""
    request = pb.SetSubscriptionDispatchConfigRequest(
        topic=topic,
        subscription=subscription,
        dispatch_config=pb.SubscriptionDispatchConfig(max_unacked_messages=max_unacked_messages),
    )
    await admin.call(_SERVICE + "SetSubscriptionDispatchConfig", request, pb.SubscriptionResponse)
    document = {"topic": topic, "subscription": subscription, "max_unacked_messages": max_unacked_messages}
    show_done(f"{subscription} of {topic}: {max_unacked_messages:,} unacked messages", document, output)


@click.command("get-dispatch-config")
@topic_argument
@subscription_option
@administrative
async def get_dispatch_config(admin: AdminConnection, *, topic: str, subscription: str, output: str) -> None:
    """Show how many messages of a subscription may be delivered and not acknowledged."""
    request = pb.GetSubscriptionDispatchConfigRequest(topic=topic, subscription=subscription)
    answer = await admin.call(
        _SERVICE + "GetSubscriptionDispatchConfig", request, pb.GetSubscriptionDispatchConfigResponse
    )
    found = answer.dispatch_config.max_unacked_messages if answer.HasField("dispatch_config") else None
    text = "as the broker's dispatch.max_unacked_messages says" if found is None else f"{found:,}"
    document = {"topic": topic, "subscription": subscription, "max_unacked_messages": found}
    show_facts(f"Dispatch of {subscription} of {topic}", [("max unacked messages", text)], document, output)
