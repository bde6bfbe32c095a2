"""danube_admin.BrokerAdmin, as a broker answers that is alone: it leads nobody and has nobody to give topics to."""

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from pydanube.broker.administration import Administration
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.wire.admin_calls import Method, methods
from pydanube.wire.calls import parse

NO_LEADER: Final = "not_found"
NO_ROLE: Final = "None"
"""Both are compared by the tools."""


@dataclass(slots=True)
class Registration:
    """How this broker is known; its addresses are told once the ports are bound."""

    broker_id: int
    broker_url: str
    admin_url: str
    metrics_addr: str
    """Without a scheme; empty if there are no metrics."""


class AdminBrokersService:
    def __init__(self, administration: Administration, registration: Registration) -> None:
        self._brokers = administration.brokers
        self._namespaces = administration.namespaces
        self._registration = registration

    def methods(self) -> dict[str, Method]:
        return methods(
            "danube_admin.BrokerAdmin",
            {
                "ListBrokers": self.list_brokers,
                "GetLeaderBroker": self.get_leader_broker,
                "ListNamespaces": self.list_namespaces,
                "UnloadBroker": self.unload_broker,
                "ActivateBroker": self.activate_broker,
                "GetClusterBalance": self.get_cluster_balance,
                "TriggerRebalance": self.trigger_rebalance,
            },
        )

    async def list_brokers(self, body: bytes) -> Message:
        known = self._registration
        broker_id = str(known.broker_id)
        info = pb.BrokerInfo(
            broker_id=broker_id,
            broker_addr=known.broker_url,
            broker_role=NO_ROLE,
            admin_addr=known.admin_url,
            metrics_addr=known.metrics_addr,
            broker_status=(await self._brokers.get(broker_id)).mode,
        )
        return pb.BrokerListResponse(brokers=[info])

    async def get_leader_broker(self, body: bytes) -> Message:
        return pb.BrokerResponse(leader=NO_LEADER)

    async def list_namespaces(self, body: bytes) -> Message:
        return pb.NamespaceListResponse(namespaces=self._namespaces.names())

    async def unload_broker(self, body: bytes) -> Message:
        parse(pb.UnloadBrokerRequest, body)
        raise Conflict(
            "this broker cannot be unloaded: it is the only one, nobody could take its topics",
            ErrorCode.BROKER_ALONE,
        )

    async def activate_broker(self, body: bytes) -> Message:
        request = parse(pb.ActivateBrokerRequest, body)
        await self._brokers.activate(request.broker_id, request.reason or "admin_activate")
        return pb.ActivateBrokerResponse(success=True)

    async def get_cluster_balance(self, body: bytes) -> Message:
        raise cluster_only("there is no load to balance")

    async def trigger_rebalance(self, body: bytes) -> Message:
        raise cluster_only("there is nothing to rebalance")


def cluster_only(what: str) -> DanubeError:
    return DanubeError(f"{what}: this broker is not part of a cluster", ErrorCode.CLUSTER_ONLY)
