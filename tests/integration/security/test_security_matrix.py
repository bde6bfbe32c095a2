"""Every call of both ports, by callers with the right permission in each scope, with all others, and with none."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest
from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import PATIENCE_SECONDS, RECEIVE, Status

from pydanube.protocol import (
    danube_admin_pb2,
    danube_pb2,
    pydanube_admin_pb2,
    schema_registry_pb2,
    storage_admin_pb2,
)
from pydanube.security.operations import OPERATIONS, ResourceFrom, Rule
from pydanube.security.permissions import Permission, ResourceKind

NAMESPACE, TOPIC, OTHER = "shop", "/shop/orders", "/shop/kept"
UNSERVED = {path for path in OPERATIONS if "EdgeReplicator" in path or not path.startswith("/")}
CLIENT_PORT = ("/danube.", "/danube_schema.", "/pydanube.storage.v1.History/")
MODULES = (danube_pb2, danube_admin_pb2, pydanube_admin_pb2, schema_registry_pb2, storage_admin_pb2)
RPCS = sorted(OPERATIONS.keys() - UNSERVED, key=lambda path: (path.endswith("AbandonImport"), path))
"""What ends an import comes last."""


class Answer(NamedTuple):
    status: grpc.StatusCode
    text: str

    @property
    def is_denied(self) -> bool:
        return self.status is Status.PERMISSION_DENIED and self.text.startswith("permission denied for /")


class Ports:
    """One connection to each port, which speaks for many callers."""

    def __init__(self, broker: RunningBroker, realm: Any) -> None:
        self._realm = realm
        options = [("grpc.enable_http_proxy", 0)]
        credentials = realm.credentials()
        self._client = grpc.aio.secure_channel(broker.address, credentials, options)
        self._admin = grpc.aio.secure_channel(broker.admin_address, credentials, options)
        self._tokens: dict[str, str] = {}

    async def close(self) -> None:
        await self._client.close()
        await self._admin.close()

    async def call(self, path: str, request: Any, name: str | None) -> Answer:
        """What becomes of a call by the user of this name, or by somebody without a token."""
        metadata = []
        if name is not None:
            token = self._tokens.setdefault(name, self._realm.token(name))
            metadata = [("authorization", f"Bearer {token}")]
        channel = self._client if path.startswith(CLIENT_PORT) else self._admin
        body = request.SerializeToString()
        if path == RECEIVE:
            stream = channel.unary_stream(path)(body, metadata=metadata, timeout=PATIENCE_SECONDS)
            await stream.initial_metadata()
            if stream.done():
                return Answer(await stream.code(), await stream.details())
            stream.cancel()
            return Answer(Status.OK, "")
        try:
            await channel.unary_unary(path)(body, metadata=metadata, timeout=PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            return Answer(error.code(), error.details() or "")
        return Answer(Status.OK, "")

    async def begin_import(self) -> int:
        """The id of a fresh one."""
        begin = self._admin.unary_unary(
            "/pydanube.storage.v1.StorageAdmin/BeginImport",
            storage_admin_pb2.BeginImportRequest.SerializeToString,
            storage_admin_pb2.BeginImportResponse.FromString,
        )
        request = storage_admin_pb2.BeginImportRequest(topic="/shop/imported")
        metadata = [("authorization", f"Bearer {self._realm.token('admin')}")]
        topic_id: int = (await begin(request, metadata=metadata)).topic_id
        return topic_id


def request_type(path: str) -> Any:
    service, method = path[1:].split("/")
    for module in MODULES:
        for known in module.DESCRIPTOR.services_by_name.values():
            if known.full_name == service:
                return getattr(module, known.methods_by_name[method].input_type.name)
    raise AssertionError(path)


def request_for(path: str, rule: Rule, ids: dict[ResourceFrom, int]) -> Any:
    """A request about TOPIC, its namespace, or what has been made on OTHER."""
    request = target = request_type(path)()
    *outer, field = rule.field.split(".")
    for name in outer:
        target = getattr(target, name)
    if rule.resource in ids:
        setattr(target, field, ids[rule.resource])
    elif rule.kind is ResourceKind.BROKER:
        setattr(target, field, "1")
    elif rule.field:
        setattr(target, field, NAMESPACE if rule.kind is ResourceKind.NAMESPACE else TOPIC)
    return request


@pytest.fixture
async def ports(secured: RunningBroker, realm: Any) -> AsyncIterator[Ports]:
    ports = Ports(secured, realm)
    yield ports
    await ports.close()


@pytest.fixture
async def ids(secured: RunningBroker, realm: Any, ports: Ports) -> dict[ResourceFrom, int]:
    """A consumer and an import that exist, both in the namespace."""
    root = secured.client(realm.credentials(realm.token("admin")))
    namespace = danube_admin_pb2.NamespaceRequest(name=NAMESPACE)
    await ports.call("/danube_admin.NamespaceAdmin/CreateNamespace", namespace, "admin")
    await root.create_producer(OTHER)
    consumer = await root.subscribe(OTHER)
    return {ResourceFrom.CONSUMER: consumer.id, ResourceFrom.IMPORT: await ports.begin_import()}


async def test_nobody_gets_past_without_a_token_or_a_role(ports: Ports, ids: dict[ResourceFrom, int]) -> None:
    for path in RPCS:
        rule = OPERATIONS[path]
        request = request_for(path, rule, ids)
        assert (await ports.call(path, request, None)).status is Status.UNAUTHENTICATED, path
        answer = await ports.call(path, request, "stranger")
        assert answer.is_denied == (rule.permission is not None), (path, answer)


async def test_a_permission_opens_its_calls_and_no_others_in_each_scope(
    ports: Ports, ids: dict[ResourceFrom, int], admin: Any
) -> None:
    for permission in Permission:
        await admin.role(f"only-{permission}", permission)
        await admin.role(f"not-{permission}", *(other for other in Permission if other != permission))
        await admin.bind(f"{permission}-everywhere", [f"only-{permission}"])
        await admin.bind(f"{permission}-lacking", [f"not-{permission}"])
        await admin.bind(f"{permission}-here", [f"only-{permission}"], "namespace", f"/{NAMESPACE}")
        await admin.bind(f"{permission}-elsewhere", [f"only-{permission}"], "namespace", "sho")
        for name, topic in (("on", TOPIC), ("off", TOPIC + "s")):
            await admin.bind(f"{permission}-{name}", [f"only-{permission}"], "topic", topic)
    for path in RPCS:
        rule = OPERATIONS[path]
        if rule.permission is None:
            continue
        request = request_for(path, rule, ids)
        has_namespace = rule.kind not in (ResourceKind.CLUSTER, ResourceKind.BROKER)
        is_about_topic = rule.kind in (ResourceKind.TOPIC, ResourceKind.SUBJECT) and rule.resource not in ids
        expected = {
            "lacking": False,
            "elsewhere": False,
            "off": False,
            "on": is_about_topic,
            "here": has_namespace,
            "everywhere": True,
        }
        for scope, may in expected.items():
            if path.endswith("/AbandonImport") and scope == "everywhere":
                request.topic_id = ids[ResourceFrom.IMPORT] = await ports.begin_import()
            answer = await ports.call(path, request, f"{rule.permission}-{scope}")
            assert answer.is_denied is not may, (path, scope, answer)
            assert answer.status is not Status.UNAUTHENTICATED, path


async def test_a_denied_caller_does_not_learn_what_else_is_wrong(ports: Ports, admin: Any) -> None:
    class Nonsense:
        def SerializeToString(self) -> bytes:
            return b"\xff\xff\xff"

    for path in RPCS:
        if OPERATIONS[path].permission is not None:
            assert (await ports.call(path, Nonsense(), "stranger")).is_denied, path
            assert not (await ports.call(path, Nonsense(), "admin")).is_denied, path
