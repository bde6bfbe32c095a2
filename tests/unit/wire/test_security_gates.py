"""The gate of a gRPC connection on its own: what it remembers must never be more than what is granted."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.metadata import MemoryStore
from pydanube.protocol import (
    danube_admin_pb2,
    danube_pb2,
    pydanube_admin_pb2,
    schema_registry_pb2,
    storage_admin_pb2,
)
from pydanube.protocol.http2.headers import Headers
from pydanube.security.audit import AuditLog
from pydanube.security.operations import OPERATIONS
from pydanube.security.permissions import Scope
from pydanube.security.policy_guard import PolicyGuard
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.rbac import Binding, Role
from pydanube.security.settings import AuditSettings
from pydanube.server.process import SystemClock
from pydanube.wire.gatekeeper import Gatekeeper
from pydanube.wire.grpc_gate import SEND, GrpcGate, guarded_routes

MODULES = (danube_pb2, danube_admin_pb2, pydanube_admin_pb2, schema_registry_pb2, storage_admin_pb2)
TOPIC = "/default/t"


def test_every_method_of_every_service_has_a_rule() -> None:
    methods = {
        f"/{service.full_name}/{method}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods_by_name
    }
    assert methods - OPERATIONS.keys() == set()


def test_every_rule_finds_its_field() -> None:
    paths = [path for path in OPERATIONS if path.startswith("/") and "EdgeReplicator" not in path]
    routes = guarded_routes(dict.fromkeys(paths, lambda *call: None))
    assert routes.keys() == set(paths)


@dataclass
class Connection:
    """A connection of one visitor, and what it was told."""

    certificate: dict[str, Any] | None
    gate: GrpcGate | None = None
    sent: list[str] = field(default_factory=list)
    revoked: list[tuple[int, ErrorCode]] = field(default_factory=list)

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 1), "peercert": self.certificate}[name]

    def is_open(self, stream_id: int) -> bool:
        return True

    def revoke(self, stream_id: int, error: DanubeError) -> None:
        self.revoked.append((stream_id, error.code))

    def send_scanned(self, connection: Any, stream_id: int, body: bytes, scan: Any) -> None:
        self.sent.append(scan.topic_name.decode())


@pytest.fixture
async def policies() -> AsyncIterator[PolicyStore]:
    store = PolicyStore(MemoryStore(SystemClock()))
    await store.start()
    yield store
    await store.close()


class Visit:
    """Publishes over a guarded route of a broker in mode mtls."""

    def __init__(self, policies: PolicyStore, uri: str) -> None:
        clock = SystemClock()
        guard = PolicyGuard("mtls", None, policies, AuditLog(AuditSettings(), clock))
        self.connection: Any = Connection({"subjectAltName": (("URI", uri),)})
        self.gate = self.connection.gate = GrpcGate(Gatekeeper(guard, clock, "danube"), self.connection)
        self.gate.opened(self.connection)
        bare: Any = {SEND: None}
        self._send: Any = guarded_routes(bare, producer=self.connection)[SEND]

    def publish(self, topic: str = TOPIC, **fields: str) -> ErrorCode | None:
        """None if the message was let through."""
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        body = danube_pb2.StreamMessage(msg_id=danube_pb2.MsgID(topic_name=topic)).SerializeToString()
        try:
            self._send(self.connection, 1, body, Headers("POST", SEND, named, -1))
        except DanubeError as error:
            return error.code
        return None


async def test_a_broker_has_its_powers_only_in_calls_that_claim_them(policies: PolicyStore) -> None:
    visit = Visit(policies, "spiffe://danube/broker/7")
    for _ in range(2):
        assert visit.publish(x_danube_internal_broker="broker/7") is None
        assert visit.publish() is ErrorCode.CREDENTIALS_MISSING


async def test_what_is_remembered_is_forgotten_when_policies_change(policies: PolicyStore) -> None:
    visit = Visit(policies, "spiffe://danube/user/ada")
    assert visit.publish() is ErrorCode.PERMISSION_DENIED
    await policies.put_role(Role(name="w", permissions=("Produce",)))
    binding = Binding(
        id="b",
        principal_type="user",
        principal_name="ada",
        role_names=("w",),
        scope=Scope.TOPIC,
        resource_name=TOPIC,
    )
    await policies.put_binding(binding)
    assert [visit.publish(), visit.publish(), visit.publish("/default/u")] == [
        None,
        None,
        ErrorCode.PERMISSION_DENIED,
    ]
    # The one denied does not make the gate forget, nor remember too much.
    assert [visit.publish(), visit.publish("/default/u")] == [None, ErrorCode.PERMISSION_DENIED]
    await policies.delete_binding("topic", TOPIC, "b")
    assert visit.publish() is ErrorCode.PERMISSION_DENIED
    assert visit.connection.sent == [TOPIC] * 3


async def test_a_broken_message_of_a_stranger_is_denied_not_described(policies: PolicyStore) -> None:
    visit = Visit(policies, "spiffe://danube/user/ada")
    with pytest.raises(DanubeError) as caught:
        visit._send(visit.connection, 1, b"\xff", Headers("POST", SEND, {}, -1))
    assert caught.value.code is ErrorCode.PERMISSION_DENIED
    assert Principal(PrincipalKind.USER, "ada").name in caught.value.text
