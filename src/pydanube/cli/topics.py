"""`danube topics`: what a broker serves, how it is stored, and who uses it."""

from typing import Any, Final

import click

from pydanube.cli import subscription_settings, topic_schemas
from pydanube.cli import subscriptions as of_subscriptions
from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.figures import figures_document, show_figures, topic_figures
from pydanube.cli.policy_options import policy_document, policy_options, show_policies
from pydanube.cli.segment_documents import segment_document, show_segments
from pydanube.cli.storage_admin import StorageAdmin
from pydanube.cli.tables import age_text, show_document, show_done, show_facts, show_rows, size_text
from pydanube.cli.topic_argument import topic_argument
from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.protocol import pydanube_admin_pb2 as own
from pydanube.protocol.storage_admin_pb2 import DescribeStorageResponse

_SERVICE: Final = "danube_admin.TopicAdmin/"
_OWN: Final = "pydanube.admin.v1.Admin/"
_SCHEMA_FIELDS: Final = (
    *("schema_subject", "schema_id", "schema_version", "schema_type"),
    "compatibility_mode",
)


@click.group()
def topics() -> None:
    """Make, look at and delete topics."""


@topics.command("list")
@click.option("--namespace", help="Only topics of this namespace.")
@click.option("--broker", "broker_id", help="Only topics this broker serves.")
@administrative
async def list_topics(
    admin: AdminConnection, *, namespace: str | None, broker_id: str | None, output: str
) -> None:
    """List topics: of every namespace, of one, or of one broker."""
    if namespace is not None and broker_id is not None:
        raise click.UsageError("--namespace and --broker exclude each other")
    found: list[pb.TopicInfo] = []
    if broker_id is not None:
        request = pb.BrokerRequest(broker_id=broker_id)
        answer = await admin.call(_SERVICE + "ListBrokerTopics", request, pb.TopicInfoListResponse)
        found += answer.topics
    else:
        for each in [namespace] if namespace is not None else await _namespaces(admin):
            of_one = pb.NamespaceRequest(name=each)
            answer = await admin.call(_SERVICE + "ListNamespaceTopics", of_one, pb.TopicInfoListResponse)
            found += answer.topics
    document = [
        {"name": each.name, "broker_id": each.broker_id, "delivery": each.delivery}
        for each in sorted(found, key=lambda topic: topic.name)
    ]
    if output == "table" and not document:
        click.echo("No topics")
        return
    rows = [(each["broker_id"] or "-", each["delivery"], each["name"]) for each in document]
    show_rows("Topics", ("broker", "delivery", "topic"), rows, document, output)


async def _namespaces(admin: AdminConnection) -> list[str]:
    answer = await admin.call("danube_admin.BrokerAdmin/ListNamespaces", pb.Empty(), pb.NamespaceListResponse)
    # Some brokers name one several times.
    return sorted(set(answer.namespaces))


@topics.command()
@topic_argument
@click.option("--partitions", type=click.IntRange(1, 1024), help="Make so many partitions of it.")
@click.option("--schema-subject", help="Schema subject its messages belong to.")
@click.option(
    "--dispatch-strategy",
    type=click.Choice(["non_reliable", "reliable"]),
    default="non_reliable",
    show_default=True,
    help="reliable keeps messages until they are acknowledged, and as history.",
)
@administrative
async def create(
    admin: AdminConnection,
    *,
    topic: str,
    partitions: int | None,
    schema_subject: str | None,
    dispatch_strategy: str,
    output: str,
) -> None:
    """Make TOPIC, or partitions of it."""
    strategy = pb.Reliable if dispatch_strategy == "reliable" else pb.NonReliable
    if partitions is None:
        request = pb.NewTopicRequest(name=topic, schema_subject=schema_subject, dispatch_strategy=strategy)
        answer = await admin.call(_SERVICE + "CreateTopic", request, pb.TopicResponse)
        text = f"Topic created: {topic}"
    else:
        parted = pb.PartitionedTopicRequest(
            base_name=topic, partitions=partitions, schema_subject=schema_subject, dispatch_strategy=strategy
        )
        answer = await admin.call(_SERVICE + "CreatePartitionedTopic", parted, pb.TopicResponse)
        text = f"Partitioned topic created: {topic} with {partitions} partitions"
    if schema_subject is not None:
        text += f", schema subject {schema_subject}"
    document = {
        "topic": topic,
        "partitions": partitions,
        "schema_subject": schema_subject,
        "dispatch_strategy": dispatch_strategy,
        "success": answer.success,
    }
    show_done(text, document, output)


@topics.command()
@topic_argument
@administrative
async def delete(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Delete TOPIC, or all its partitions: messages, history, subscriptions. There is no way back."""
    answer = await admin.call(_SERVICE + "DeleteTopic", pb.TopicRequest(name=topic), pb.TopicResponse)
    show_done(f"Topic deleted: {topic}", {"topic": topic, "success": answer.success}, output)


@topics.command()
@topic_argument
@administrative
async def unload(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Move TOPIC to another broker, which the cluster chooses."""
    answer = await admin.call(_SERVICE + "UnloadTopic", pb.TopicRequest(name=topic), pb.TopicResponse)
    show_done(f"Topic unloaded: {topic}", {"topic": topic, "success": answer.success}, output)


@topics.command("subscriptions")
@topic_argument
@administrative
async def list_subscriptions(admin: AdminConnection, *, topic: str, output: str) -> None:
    """List the names of TOPIC's subscriptions; `danube subscriptions list` tells more."""
    answer = await admin.call(
        _SERVICE + "ListSubscriptions", pb.TopicRequest(name=topic), pb.SubscriptionListResponse
    )
    names = list(answer.subscriptions)
    show_rows(f"Subscriptions of {topic}", ("subscription",), [(name,) for name in names], names, output)


@topics.command()
@topic_argument
@administrative
async def describe(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Show who serves TOPIC, its schema, its subscriptions, and how it is stored."""
    known = await admin.call(
        _SERVICE + "DescribeTopic", pb.DescribeTopicRequest(name=topic), pb.DescribeTopicResponse
    )
    storage, partitions = await _storage(admin, topic)
    document: dict[str, Any] = {
        "topic": topic,
        "broker_id": known.broker_id,
        "delivery": known.delivery,
        **{name: getattr(known, name) if known.HasField(name) else None for name in _SCHEMA_FIELDS},
        "subscriptions": list(known.subscriptions),
    }
    schema = "none"
    if known.HasField("schema_subject"):
        schema = known.schema_subject
        if known.HasField("schema_id"):
            schema += f", {known.schema_type} version {known.schema_version}, {known.compatibility_mode}"
    lines = [
        ("broker", known.broker_id or "-"),
        ("delivery", known.delivery or "-"),
        ("schema", schema),
        ("subscriptions", ", ".join(known.subscriptions) or "none"),
    ]
    if partitions:
        document["partitions"] = partitions
        lines.append(("partitions", ", ".join(partitions)))
    if storage is not None:
        stored = {each.name: getattr(storage, each.name) for each in storage.DESCRIPTOR.fields}
        document = stored | document
        lines += _storage_lines(storage)
    show_facts(f"Topic {topic}", lines, document, output)


async def _storage(admin: AdminConnection, topic: str) -> tuple[DescribeStorageResponse | None, list[str]]:
    """How the topic is stored; or nothing, and its partitions if it is made of some."""
    try:
        return await StorageAdmin(admin).describe(topic), []
    except DanubeError as error:
        if error.code is ErrorCode.METHOD_UNKNOWN:
            return None, []  # a broker of another make
        try:
            figures = await topic_figures(admin, topic)
        except DanubeError:
            raise error from None
        return None, [each.topic for each in figures if each.topic != topic]


def _storage_lines(facts: DescribeStorageResponse) -> list[tuple[str, str]]:
    waiting = "nothing"
    if facts.waiting_bytes:
        waiting = f"{size_text(facts.waiting_bytes)}, the oldest for {age_text(facts.lag_seconds)}"
    return [
        ("storage", facts.mode),
        ("fsync", facts.fsync),
        ("oldest offset", f"{facts.start_offset:,}"),
        ("next offset", f"{facts.next_offset:,}"),
        ("sealed up to", f"{facts.sealed_end:,}"),
        ("segments", f"{facts.segment_count:,} of {size_text(facts.segment_bytes)}"),
        ("local runs", f"{facts.run_count:,} of {size_text(facts.run_bytes)}"),
        ("waiting", waiting),
        ("failures", f"{facts.failures:,} in a row" if facts.failures else "none"),
        ("last error", facts.last_error or "none"),
    ]


@topics.command()
@topic_argument
@administrative
async def stats(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Show what went through TOPIC, or each of its partitions, since its broker started."""
    found = await topic_figures(admin, topic)
    if output != "table":
        show_document([figures_document(each) for each in found], output)
        return
    for each in found:
        show_figures(each)


@topics.command()
@topic_argument
@administrative
async def seal(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Put everything published to TOPIC so far into the durable store.

    Waits until it is there. Sealing happens by itself when enough has come or enough time has passed; this is for those
    who want to read the segments now, or to move the topic.
    """
    answer = await StorageAdmin(admin).seal(topic)
    if output != "table":
        segments = [segment_document(each) for each in answer.segments]
        show_document({"topic": topic, "next_offset": answer.next_offset, "segments": segments}, output)
        return
    if answer.segments:
        show_segments(f"New segments of {topic}", answer.segments, output)
    click.secho(f"{topic} is sealed up to offset {answer.next_offset}", fg="green", err=True)


@topics.command()
@topic_argument
@administrative
async def purge(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Let every subscription of TOPIC skip what it has not consumed yet. Stored messages stay in the history."""
    await of_subscriptions.skip_all(admin, topic, "", output)


@topics.command()
@topic_argument
@administrative
async def policies(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Show the limits TOPIC is under: its own, or those of its namespace."""
    request = own.GetTopicPoliciesRequest(topic=topic)
    answer = await admin.call(_OWN + "GetTopicPolicies", request, own.GetTopicPoliciesResponse)
    _show_policies(topic, answer.policies, answer.inherited, output)


@topics.command("set-policies")
@topic_argument
@policy_options
@click.option("--inherit", is_flag=True, help="Forget the topic's own limits: its namespace's hold again.")
@administrative
async def set_policies(
    admin: AdminConnection, *, topic: str, policies: own.Policies, inherit: bool, output: str
) -> None:
    """Change limits of TOPIC; those not named stay. They hold at once."""
    is_set = bool(policies.ListFields())
    if is_set == inherit:
        raise click.UsageError("name limits to set, such as --max-publish-rate 1000, or say --inherit")
    request = own.SetTopicPoliciesRequest(topic=topic, policies=policies if is_set else None, inherit=inherit)
    answer = await admin.call(_OWN + "SetTopicPolicies", request, own.SetTopicPoliciesResponse)
    _show_policies(topic, answer.policies, answer.inherited, output)


def _show_policies(topic: str, policies: own.Policies, inherited: bool, output: str) -> None:
    title = f"Policies of {topic}" + (", from its namespace" if inherited else "")
    document: dict[str, Any] = policy_document(policies)
    if output != "table":
        document |= {"inherited": inherited}
    show_policies(title, document, output)


# As danube-admin has them: what concerns one subscription, and what a topic expects of its messages.
topics.add_command(of_subscriptions.delete, "unsubscribe")
topics.add_command(subscription_settings.set_failure_policy)
topics.add_command(subscription_settings.get_failure_policy)
topics.add_command(subscription_settings.set_dispatch_config)
topics.add_command(subscription_settings.get_dispatch_config)
topics.add_command(topic_schemas.configure_schema)
topics.add_command(topic_schemas.set_validation_policy)
topics.add_command(topic_schemas.get_schema_config)
