"""Every method of the published contract, and of our own, is served on the admin port and nowhere else."""

from typing import Any

import grpc
import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import Status

from pydanube.protocol import danube_admin_pb2, pydanube_admin_pb2

SERVICES = [
    danube_admin_pb2.DESCRIPTOR.services_by_name[name]
    for name in ("BrokerAdmin", "ClusterAdmin", "NamespaceAdmin", "TopicAdmin")
] + [pydanube_admin_pb2.DESCRIPTOR.services_by_name["Admin"]]
ON_BOTH_PORTS = {"RegisterSchemaWithReferences", "CheckSchemaWithReferences", "GetSchemaReferences"}
"""As the schema registry is."""


async def _text(client: AdminClient, method: str) -> str:
    """What is said to a call without arguments; empty if it succeeds."""
    try:
        await client.call(method)
    except grpc.aio.AioRpcError as error:
        return error.details() or ""
    return ""


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_every_method_is_served_on_the_admin_port_only(broker: RunningBroker, service: object) -> None:
    names = [method.name for method in service.methods]  # type: ignore[attr-defined]
    async with AdminClient(broker.admin_address) as admin, AdminClient(broker.address) as client:
        for name in names:
            text = await _text(admin, name)
            assert "unknown method" not in text
            assert "internal error" not in text
            assert not text or text.endswith(")"), f"{name} refuses without a code: {text}"
            is_elsewhere = "unknown method" not in await _text(client, name)
            assert is_elsewhere == (name in ON_BOTH_PORTS), name


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
async def test_garbage_is_answered_as_such(broker: RunningBroker, service: object) -> None:
    async with grpc.aio.insecure_channel(broker.admin_address) as channel:
        for method in service.methods:  # type: ignore[attr-defined]
            if not method.input_type.fields:
                continue
            call: Any = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"\xff\xff\xff")
            assert caught.value.code() in (Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED), method.name
