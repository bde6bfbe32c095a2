"""danube_admin.ClusterAdmin, as a broker answers that is alone: its own and only voter."""

from google.protobuf.message import Message

from pydanube.broker.administration import Administration
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.wire.admin_brokers_service import Registration, cluster_only
from pydanube.wire.admin_calls import Method, methods


class AdminClusterService:
    def __init__(self, administration: Administration, registration: Registration) -> None:
        self._brokers = administration.brokers
        self._registration = registration

    def methods(self) -> dict[str, Method]:
        return methods(
            "danube_admin.ClusterAdmin",
            {
                "ClusterStatus": self.cluster_status,
                "AddNode": self.add_node,
                "PromoteNode": self.promote_node,
                "RemoveNode": self.remove_node,
            },
        )

    async def cluster_status(self, body: bytes) -> Message:
        node_id = self._registration.broker_id
        return pb.ClusterStatusResponse(
            leader_id=node_id,
            last_applied=await self._brokers.revision(),
            voters=[node_id],
            self_node_id=node_id,
        )

    async def add_node(self, body: bytes) -> Message:
        raise cluster_only("no node can be added")

    async def promote_node(self, body: bytes) -> Message:
        raise cluster_only("no node can be promoted")

    async def remove_node(self, body: bytes) -> Message:
        raise cluster_only("no node can be removed")
