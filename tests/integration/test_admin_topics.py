"""Making, listing, describing and deleting topics (control-plane spec, §3.4)."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.native_wire import refused_with
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.schema_wire import ask, configure, register
from broker_harness.wire_client import SHARED, Status, WireClient, refused

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol.native import frames
from pydanube.protocol.native_pb2 import Error

RELIABLE = 1
TOPIC = "/default/orders"


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.admin_address) as client:
        yield client


async def own_id(admin: AdminClient) -> str:
    (info,) = (await admin.call("ListBrokers")).brokers
    return str(info.broker_id)


async def names(admin: AdminClient, namespace: str = "default") -> list[str]:
    return [topic.name for topic in (await admin.call("ListNamespaceTopics", name=namespace)).topics]


# Making and listing.


async def test_a_created_topic_is_served_at_once_with_its_dispatch_strategy(
    admin: AdminClient, client: WireClient
) -> None:
    assert (await admin.call("CreateTopic", name=TOPIC, dispatch_strategy=RELIABLE)).success
    assert (await admin.call("CreateTopic", name="/default/live")).success
    await client.lookup(TOPIC)
    await client.create_producer(TOPIC)
    with refused(Status.FAILED_PRECONDITION, "non_reliable"):
        await client.create_producer("/default/live")
    listed = (await admin.call("ListNamespaceTopics", name="default")).topics
    broker_id = await own_id(admin)
    assert [(each.name, each.broker_id, each.delivery) for each in listed] == [
        ("/default/live", broker_id, "NonReliable"),
        (TOPIC, broker_id, "Reliable"),
    ]


async def test_topics_are_listed_under_their_brokers_id(admin: AdminClient) -> None:
    await admin.call("CreateNamespace", name="shop")
    for name in ("/shop/b", "/default/a"):
        await admin.call("CreateTopic", name=name)
    listed = await admin.call("ListBrokerTopics", broker_id=await own_id(admin))
    assert [each.name for each in listed.topics] == ["/default/a", "/shop/b"]
    assert not (await admin.call("ListBrokerTopics", broker_id="17")).topics
    assert await names(admin, "unknown") == []


async def test_an_operator_makes_topics_also_where_clients_may_not(start_broker: StartBroker) -> None:
    broker = await start_broker(auto_create_topics=False)
    with refused(Status.NOT_FOUND, "auto_create_topics"):
        await broker.client().create_producer(TOPIC)
    async with AdminClient(broker.admin_address) as admin:
        await admin.call("CreateTopic", name=TOPIC, dispatch_strategy=RELIABLE)
    await (await broker.client().create_producer(TOPIC)).send("m")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("default/orders", "invalid topic name"),
        ("/default/", "invalid topic name"),
        ("/default/a b", "invalid topic name"),
        ("/default/a/b", "invalid topic name"),
        ("", "invalid topic name"),
        ("/unknown/orders", "namespace 'unknown' not found"),
        ("/default/taken", "exists already"),
        ("/default/split", "partitions"),
        ("/default/taken-part-0", "without partitions"),
    ],
)
async def test_what_cannot_be_created_is_not_found(admin: AdminClient, name: str, text: str) -> None:
    await admin.call("CreateTopic", name="/default/taken")
    await admin.call("CreatePartitionedTopic", base_name="/default/split", partitions=2)
    before = await names(admin)
    with refused(Status.NOT_FOUND, text):
        await admin.call("CreateTopic", name=name)
    assert await names(admin) == before


async def test_names_are_compared_whole(admin: AdminClient) -> None:
    for name in ("/default/foobar", "/default/foo", "/default/foo-part-time"):
        await admin.call("CreateTopic", name=name)
    await admin.call("DeleteTopic", name="/default/foo")
    assert await names(admin) == ["/default/foo-part-time", "/default/foobar"]


@pytest.mark.parametrize("method", ["CreateTopic", "CreatePartitionedTopic"])
async def test_an_unknown_dispatch_strategy_is_an_invalid_argument(admin: AdminClient, method: str) -> None:
    with refused(Status.INVALID_ARGUMENT, "dispatch strategy 7"):
        await admin.call(method, dispatch_strategy=7)


async def test_partitions_are_made_in_order_and_stay_when_one_fails(
    admin: AdminClient, client: WireClient
) -> None:
    assert (await admin.call("CreatePartitionedTopic", base_name="/default/p", partitions=3)).success
    assert await client.partitions("/default/p") == [f"/default/p-part-{n}" for n in range(3)]
    assert (await admin.call("CreatePartitionedTopic", base_name="/default/none", partitions=0)).success
    await admin.call("CreateTopic", name="/default/q-part-1")
    with refused(Status.NOT_FOUND, "exists already"):
        await admin.call("CreatePartitionedTopic", base_name="/default/q", partitions=3)
    assert await client.partitions("/default/q") == ["/default/q-part-0", "/default/q-part-1"]


async def test_the_number_of_partitions_is_bounded(admin: AdminClient) -> None:
    with refused(Status.NOT_FOUND, "10000 at most"):
        await admin.call("CreatePartitionedTopic", base_name="/default/p", partitions=4_000_000_000)
    assert await names(admin) == []


async def test_created_topics_outlive_a_restart(broker: RunningBroker) -> None:
    async with AdminClient(broker.admin_address) as admin:
        await admin.call("CreateTopic", name=TOPIC, dispatch_strategy=RELIABLE, schema_subject="orders")
    await broker.restart()
    async with AdminClient(broker.admin_address) as admin:
        described = await admin.call("DescribeTopic", name=TOPIC)
    assert (described.delivery, described.schema_subject) == ("Reliable", "orders")


# Describing.


async def test_a_topic_is_described_with_its_subscriptions_once_each(
    admin: AdminClient, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    for name in ("b", "a", "b"):
        await client.subscribe(TOPIC, name, kind=SHARED)
    await admin.call("SetSubscriptionDispatchConfig", **_window("b", 5))
    described = await admin.call("DescribeTopic", name=TOPIC)
    assert (described.name, described.broker_id) == (TOPIC, await own_id(admin))
    assert (described.delivery, list(described.subscriptions)) == ("Reliable", ["a", "b"])
    assert not described.HasField("schema_subject")
    assert list((await admin.call("ListSubscriptions", name=TOPIC)).subscriptions) == ["a", "b"]


async def test_a_subject_nobody_registered_is_described_by_its_name_only(admin: AdminClient) -> None:
    await admin.call("CreateTopic", name=TOPIC, schema_subject="String")
    described = await admin.call("DescribeTopic", name=TOPIC)
    assert described.schema_subject == "String"
    for field in ("schema_id", "schema_version", "schema_type", "compatibility_mode"):
        assert not described.HasField(field)


async def test_a_topic_is_described_with_its_schema_as_it_is_now(
    admin: AdminClient, client: WireClient
) -> None:
    async def schema() -> tuple[str, int, int, str, str]:
        found = await admin.call("DescribeTopic", name=TOPIC)
        return (
            found.schema_subject,
            found.schema_id,
            found.schema_version,
            found.schema_type,
            found.compatibility_mode,
        )

    await admin.call("CreateTopic", name=TOPIC, schema_subject="order")
    await register(client, "other")
    first = await register(client, "order", b'{"type": "object"}', "json_schema")
    assert await schema() == ("order", first.schema_id, 1, "json_schema", "BACKWARD")
    await ask(client, "SetCompatibilityMode", subject="order", compatibility_mode="none")
    await register(client, "order", b'{"type": "string"}', "json_schema")
    assert await schema() == ("order", first.schema_id, 2, "json_schema", "NONE")
    for version in (1, 2):
        await ask(client, "DeleteSchemaVersion", subject="order", version=version)
    assert await schema() == ("order", 0, 0, "", "")
    await configure(client, TOPIC, "other")
    assert (await schema())[0] == "other"


@pytest.mark.parametrize("name", ["/default/unknown", "no name"])
async def test_an_unknown_topic_is_described_as_empty(admin: AdminClient, name: str) -> None:
    described = await admin.call("DescribeTopic", name=name)
    assert described.name == name
    assert (described.broker_id, described.delivery, list(described.subscriptions)) == ("", "", [])
    assert not (await admin.call("ListSubscriptions", name=name)).subscriptions


async def test_a_broker_alone_cannot_unload_a_topic(admin: AdminClient) -> None:
    with refused(Status.UNIMPLEMENTED, "not part of a cluster"):
        await admin.call("UnloadTopic", name=TOPIC)


# Deleting.


@pytest.mark.parametrize("reliable", [True, False])
async def test_a_deleted_topic_is_gone_for_everybody(
    admin: AdminClient, client: WireClient, reliable: bool
) -> None:
    producer = await client.create_producer(TOPIC, reliable=reliable)
    stream = await client.consume(TOPIC)
    await producer.send("m")
    await stream.next()
    assert (await admin.call("DeleteTopic", name=TOPIC)).success
    assert await stream.ended() == Status.NOT_FOUND
    with refused(Status.NOT_FOUND):
        await producer.send("lost")
    with refused(Status.NOT_FOUND):
        await client.subscribe(TOPIC)
    with refused(Status.NOT_FOUND):
        await client.lookup(TOPIC)
    assert await names(admin) == []


async def test_native_clients_hear_that_their_topic_was_deleted(
    broker: RunningBroker, admin: AdminClient
) -> None:
    client = await broker.native()
    producer = await client.open_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    reader = await client.open_reader(TOPIC)
    await producer.send_rows("m")
    assert await consumer.payloads(1) == ["m"]
    assert await reader.payloads(1) == ["m"]
    await admin.call("DeleteTopic", name=TOPIC)
    for channel in (consumer, reader):
        frame = await client.said_on(channel.number)
        assert frame.kind == frames.ERROR
        error = Error.FromString(frame.body)
        assert (error.code, error.text) == (ErrorCode.TOPIC_UNKNOWN.number, f"topic {TOPIC} was deleted")
    with refused_with(ErrorCode.TOPIC_UNKNOWN, "was deleted"):
        await producer.send_rows("lost")


async def test_a_topic_made_again_under_the_name_begins_anew(
    broker: RunningBroker, admin: AdminClient
) -> None:
    for restarts in (False, True):
        client = broker.client()
        producer = await client.create_producer(TOPIC)
        stream = await client.consume(TOPIC)
        await producer.send_all("a", "b")
        assert await stream.offsets(2) == [0, 1]
        async with AdminClient(broker.admin_address) as operator:
            await operator.call("SetSubscriptionDispatchConfig", **_window("subscription", 3))
            await operator.call("SetTopicPolicies", topic=TOPIC, policies={"max_message_size": 1})
            await operator.call("DeleteTopic", name=TOPIC)
        if restarts:
            await broker.restart()
        async with AdminClient(broker.admin_address) as operator:
            assert await names(operator) == []
            await operator.call("CreateTopic", name=TOPIC, dispatch_strategy=RELIABLE)
            described = await operator.call("DescribeTopic", name=TOPIC)
            assert not described.subscriptions
            config = await operator.call(
                "GetSubscriptionDispatchConfig", topic=TOPIC, subscription="subscription"
            )
            assert not config.HasField("dispatch_config")
            assert (await operator.call("GetTopicPolicies", topic=TOPIC)).inherited
            assert (await operator.figures(TOPIC)).next_offset == 0
            await operator.call("DeleteTopic", name=TOPIC)


async def test_a_topic_with_more_facts_than_a_transaction_holds_is_deleted(
    broker: RunningBroker, admin: AdminClient
) -> None:
    client = broker.client()
    await asyncio.gather(*(client.create_producer(TOPIC, f"p{number}") for number in range(300)))
    await admin.call("DeleteTopic", name=TOPIC)
    await broker.restart()
    async with AdminClient(broker.admin_address) as operator:
        assert await names(operator) == []
        await operator.call("CreateTopic", name=TOPIC, dispatch_strategy=RELIABLE)
        assert not (await operator.figures(TOPIC)).producer_list


async def test_partitions_are_deleted_all_together(admin: AdminClient, client: WireClient) -> None:
    await admin.call("CreatePartitionedTopic", base_name="/default/p", partitions=3)
    await admin.call("CreateTopic", name="/default/other")
    with refused(Status.NOT_FOUND, "Cannot delete individual partition"):
        await admin.call("DeleteTopic", name="/default/p-part-1")
    assert (await admin.call("DeleteTopic", name="/default/p")).success
    assert await names(admin) == ["/default/other"]
    assert await client.partitions("/default/p") == []
    await admin.call("CreateTopic", name="/default/p")


@pytest.mark.parametrize("name", ["/default/unknown", "no name"])
async def test_an_unknown_topic_cannot_be_deleted(admin: AdminClient, name: str) -> None:
    with refused(Status.NOT_FOUND):
        await admin.call("DeleteTopic", name=name)


async def test_deleting_while_clients_come_leaves_all_or_nothing(
    broker: RunningBroker, admin: AdminClient
) -> None:
    client = broker.client()
    for _ in range(10):
        producer = await client.create_producer(TOPIC)
        results = await asyncio.gather(
            *(producer.send(f"m{number}") for number in range(5)),
            admin.call("DeleteTopic", name=TOPIC),
            client.subscribe(TOPIC),
            client.create_producer(TOPIC, "another"),
            return_exceptions=True,
        )
        assert results[5].success  # type: ignore[union-attr]
        if await names(admin):
            # A producer that came after the deletion made the topic anew: nobody else is on it.
            figures = await admin.figures(TOPIC)
            assert [each.name for each in figures.producer_list] == ["another"]
            await admin.call("DeleteTopic", name=TOPIC)
    assert await names(admin) == []


def _window(subscription: str, messages: int) -> dict[str, object]:
    return {
        "topic": TOPIC,
        "subscription": subscription,
        "dispatch_config": {"max_unacked_messages": messages},
    }
