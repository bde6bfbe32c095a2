"""Brokers and cluster, asked of a broker that is alone (control-plane spec, §3.1 and §3.2)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import Status, refused


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.admin_address) as client:
        yield client


async def test_the_one_broker_is_listed_as_the_tools_expect(
    broker: RunningBroker, admin: AdminClient
) -> None:
    (info,) = (await admin.call("ListBrokers")).brokers
    assert info.broker_id.isdigit()
    assert info.broker_addr == f"http://{broker.address}"
    assert info.admin_addr == f"http://{broker.admin_address}"
    assert (info.broker_role, info.broker_status, info.metrics_addr) == ("None", "active", "")


async def test_the_address_of_the_metrics_has_no_scheme(start_broker: StartBroker) -> None:
    broker = await start_broker(metrics=True)
    async with AdminClient(broker.admin_address) as admin:
        (info,) = (await admin.call("ListBrokers")).brokers
    assert info.metrics_addr.startswith("127.0.0.1:")


async def test_the_id_outlives_a_restart(broker: RunningBroker) -> None:
    ids = []
    for _ in range(2):
        async with AdminClient(broker.admin_address) as admin:
            (info,) = (await admin.call("ListBrokers")).brokers
            ids.append(info.broker_id)
        await broker.restart()
    assert ids[0] == ids[1]


async def test_a_broker_alone_has_no_leader(admin: AdminClient) -> None:
    assert (await admin.call("GetLeaderBroker")).leader == "not_found"


async def test_a_broker_alone_is_its_own_and_only_voter(admin: AdminClient) -> None:
    status = await admin.call("ClusterStatus")
    (info,) = (await admin.call("ListBrokers")).brokers
    assert str(status.self_node_id) == info.broker_id
    assert list(status.voters) == [status.self_node_id]
    assert status.leader_id == status.self_node_id
    assert list(status.learners) == []
    before = status.last_applied
    await admin.call("CreateNamespace", name="another")
    assert (await admin.call("ClusterStatus")).last_applied > before


@pytest.mark.parametrize(
    "method", ["AddNode", "PromoteNode", "RemoveNode", "GetClusterBalance", "TriggerRebalance"]
)
async def test_what_needs_a_cluster_is_not_implemented(admin: AdminClient, method: str) -> None:
    with refused(Status.UNIMPLEMENTED, "not part of a cluster"):
        await admin.call(method)


async def test_a_broker_alone_cannot_be_unloaded(admin: AdminClient) -> None:
    (info,) = (await admin.call("ListBrokers")).brokers
    with refused(Status.FAILED_PRECONDITION, "only one"):
        await admin.call("UnloadBroker", broker_id=info.broker_id)
    with refused(Status.FAILED_PRECONDITION):  # also before its argument is looked at
        await admin.call("UnloadBroker", broker_id="")


async def test_any_broker_can_be_activated_but_one_without_an_id(admin: AdminClient) -> None:
    assert (await admin.call("ActivateBroker", broker_id="17", reason="maintenance is over")).success
    with refused(Status.INVALID_ARGUMENT, "broker_id"):
        await admin.call("ActivateBroker", broker_id="")


async def test_what_the_admin_port_does_not_serve_is_unknown(broker: RunningBroker, tmp_path: Path) -> None:
    async with AdminClient(broker.address) as wrong_port:
        with refused(Status.UNIMPLEMENTED):
            await wrong_port.call("ListBrokers")
