"""A client of the admin port that adds nothing: a method's name, its fields, the answer."""

from types import ModuleType
from typing import Any

import grpc
from google.protobuf import message_factory

from broker_harness.wire_client import PATIENCE_SECONDS
from pydanube.protocol import danube_admin_pb2, pydanube_admin_pb2, storage_admin_pb2

CONTRACTS: tuple[ModuleType, ...] = (danube_admin_pb2, pydanube_admin_pb2, storage_admin_pb2)


class AdminClient:
    """Methods are found by name: no two services of the admin port share one."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self._methods = {
            method.name: method
            for contract in CONTRACTS
            for service in contract.DESCRIPTOR.services_by_name.values()
            if service.name != "History"  # which is on the client port
            for method in service.methods
        }

    async def __aenter__(self) -> "AdminClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def call(self, name: str, /, **fields: Any) -> Any:
        method = self._methods[name]
        request = message_factory.GetMessageClass(method.input_type)(**fields)
        answer = message_factory.GetMessageClass(method.output_type)
        path = f"/{method.containing_service.full_name}/{name}"
        call = self._channel.unary_unary(path, type(request).SerializeToString, answer.FromString)
        return await call(request, timeout=PATIENCE_SECONDS)

    async def figures(self, topic: str) -> Any:
        """What TopicStats says of one topic."""
        (figures,) = (await self.call("TopicStats", topic=topic)).topics
        return figures
