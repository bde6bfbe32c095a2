"""danube_admin.NamespaceAdmin: namespaces, their topics and policies."""

from google.protobuf.message import Message

from pydanube.broker import facts
from pydanube.broker.administration import Administration
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.wire.admin_calls import Method, methods, refused_as_not_found
from pydanube.wire.calls import parse


class AdminNamespacesService:
    def __init__(self, administration: Administration) -> None:
        self._namespaces = administration.namespaces
        self._topics = administration.topics

    def methods(self) -> dict[str, Method]:
        return methods(
            "danube_admin.NamespaceAdmin",
            {
                "GetNamespaceTopics": self.get_namespace_topics,
                "GetNamespacePolicies": self.get_namespace_policies,
                "CreateNamespace": self.create_namespace,
                "DeleteNamespace": self.delete_namespace,
            },
        )

    async def get_namespace_topics(self, body: bytes) -> Message:
        namespace = parse(pb.NamespaceRequest, body).name
        # Without the leading slash every other call has: so it is published.
        names = [topic.text.removeprefix("/") for topic in self._topics.of_namespace(namespace)]
        return pb.TopicListResponse(topics=names)

    async def get_namespace_policies(self, body: bytes) -> Message:
        policies = self._namespaces.policies(parse(pb.NamespaceRequest, body).name)
        return pb.PolicyResponse(policies=facts.encode(policies).decode())

    async def create_namespace(self, body: bytes) -> Message:
        namespace = parse(pb.NamespaceRequest, body).name
        with refused_as_not_found():
            await self._namespaces.create(namespace)
        return pb.NamespaceResponse(success=True)

    async def delete_namespace(self, body: bytes) -> Message:
        namespace = parse(pb.NamespaceRequest, body).name
        with refused_as_not_found():
            await self._namespaces.delete(namespace)
        return pb.NamespaceResponse(success=True)
