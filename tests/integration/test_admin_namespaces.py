"""Namespaces and their policies (control-plane spec, §3.3 and §7)."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import Status, WireClient, refused

from pydanube.kernel.policies import Policies

FIELDS = list(Policies.__struct_fields__)


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.admin_address) as client:
        yield client


async def namespaces(admin: AdminClient) -> list[str]:
    return list((await admin.call("ListNamespaces")).namespaces)


async def policies(admin: AdminClient, namespace: str) -> dict[str, int]:
    found: dict[str, int] = json.loads((await admin.call("GetNamespacePolicies", name=namespace)).policies)
    return found


async def test_namespaces_come_once_and_sorted(admin: AdminClient) -> None:
    for name in ("zoo", "a-b_c"):
        assert (await admin.call("CreateNamespace", name=name)).success
    assert await namespaces(admin) == ["a-b_c", "default", "system", "zoo"]


async def test_a_namespace_made_by_an_operator_has_no_limits(start_broker: StartBroker) -> None:
    broker = await start_broker(policies={"max_producers_per_topic": 3})
    async with AdminClient(broker.admin_address) as admin:
        await admin.call("CreateNamespace", name="shop")
        assert await policies(admin, "shop") == dict.fromkeys(FIELDS, 0)
        assert (await policies(admin, "default"))["max_producers_per_topic"] == 3
        assert list(await policies(admin, "default")) == FIELDS


@pytest.mark.parametrize("name", ["", "a/b", "a b", "/a", "x" * 129])
async def test_a_name_that_no_topic_could_have_is_refused(admin: AdminClient, name: str) -> None:
    with refused(Status.NOT_FOUND, "invalid namespace"):
        await admin.call("CreateNamespace", name=name)
    assert await namespaces(admin) == ["default", "system"]


async def test_a_namespace_that_exists_is_refused(admin: AdminClient) -> None:
    with refused(Status.NOT_FOUND, "exists already"):
        await admin.call("CreateNamespace", name="default")


async def test_namespaces_outlive_a_restart_and_deleted_ones_do_not(broker: RunningBroker) -> None:
    async with AdminClient(broker.admin_address) as admin:
        await admin.call("CreateNamespace", name="kept")
        await admin.call("CreateNamespace", name="gone")
        assert (await admin.call("DeleteNamespace", name="gone")).success
    await broker.restart()
    async with AdminClient(broker.admin_address) as admin:
        assert await namespaces(admin) == ["default", "kept", "system"]
        with refused(Status.NOT_FOUND):
            await policies(admin, "gone")


async def test_only_a_namespace_without_topics_is_deleted(admin: AdminClient, client: WireClient) -> None:
    await admin.call("CreateNamespace", name="shop")
    await client.create_producer("/shop/orders")
    with refused(Status.NOT_FOUND, "delete them first"):
        await admin.call("DeleteNamespace", name="shop")
    await admin.call("DeleteTopic", name="/shop/orders")
    await admin.call("DeleteNamespace", name="shop")
    with refused(Status.NOT_FOUND, "namespace 'shop' not found"):
        await client.create_producer("/shop/orders")


async def test_no_topic_is_left_in_a_namespace_deleted_meanwhile(
    admin: AdminClient, client: WireClient
) -> None:
    for round_number in range(10):
        name = f"race{round_number}"
        await admin.call("CreateNamespace", name=name)
        await asyncio.gather(
            admin.call("CreateTopic", name=f"/{name}/t"),
            admin.call("DeleteNamespace", name=name),
            return_exceptions=True,
        )
        topics = (await admin.call("GetNamespaceTopics", name=name)).topics
        assert (name in await namespaces(admin)) == bool(topics)


@pytest.mark.parametrize("name", ["default", "system", "unknown"])
async def test_namespaces_that_must_exist_or_do_not_are_not_deleted(admin: AdminClient, name: str) -> None:
    with refused(Status.NOT_FOUND):
        await admin.call("DeleteNamespace", name=name)


async def test_topics_of_a_namespace_are_named_without_the_leading_slash(
    admin: AdminClient, client: WireClient
) -> None:
    await client.create_producer("/default/b")
    await client.create_producer("/default/a", reliable=False)
    assert list((await admin.call("GetNamespaceTopics", name="default")).topics) == ["default/a", "default/b"]
    assert list((await admin.call("GetNamespaceTopics", name="unknown")).topics) == []


async def test_policies_take_effect_at_once_and_outlive_a_restart(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer("/default/t")
    await client.create_producer("/default/t", "second")
    changed = await admin.call(
        "SetNamespacePolicies",
        namespace="default",
        policies={"max_producers_per_topic": 2, "max_message_size": 5},
    )
    assert changed.policies.max_producers_per_topic == 2
    assert changed.policies.max_publish_rate == 0
    for _ in range(2):
        with refused(Status.RESOURCE_EXHAUSTED, "max_producers_per_topic is 2"):
            await client.create_producer("/default/t", "third")
        with refused(Status.INVALID_ARGUMENT, "max_message_size 5"):
            await producer.send("too much")
        await producer.send("fits")
        await broker.restart()
        client = broker.client()
        producer = await client.create_producer("/default/t")
    async with AdminClient(broker.admin_address) as again:
        assert (await policies(again, "default"))["max_message_size"] == 5
        await again.call("SetNamespacePolicies", namespace="default", policies={"max_message_size": 0})
        assert (await policies(again, "default"))["max_producers_per_topic"] == 2
    await producer.send("not too much any more")


async def test_policies_of_a_namespace_that_is_unknown_cannot_be_set(admin: AdminClient) -> None:
    with refused(Status.NOT_FOUND, "(code 201)"):
        await admin.call("SetNamespacePolicies", namespace="unknown", policies={"max_publish_rate": 1})
    with refused(Status.INVALID_ARGUMENT, "max_publish_rate"):
        await admin.call("SetNamespacePolicies", namespace="default")
