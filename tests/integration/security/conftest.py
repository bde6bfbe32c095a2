"""A realm of trust made once: an authority, certificates and a key for tokens; and brokers that go by it."""

import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import PATIENCE_SECONDS

from pydanube.client import TLS
from pydanube.protocol import danube_admin_pb2 as admin_pb
from pydanube.protocol.native.frames import ALPN
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.quickstart import ISSUER, KEY_ID, quickstart
from pydanube.security.token_keys import private_signing_key
from pydanube.security.tokens import mint_token

ROOT = "admin"
"""The super admin."""


class Realm:
    def __init__(self, folder: Path) -> None:
        self.files = quickstart(folder, now_ms=time.time_ns() // 1_000_000)
        self._key = private_signing_key(self.files.token_key.read_bytes(), KEY_ID)

    def auth(self, mode: str = "tls", **more: Any) -> dict[str, Any]:
        """The block `auth` of a broker's settings."""
        block: dict[str, Any] = yaml.safe_load(self.files.broker_config.read_text())["auth"]
        return block | {"mode": mode} | more

    def token(self, name: str, kind: str = "user", *, seconds: int = 3600, now_ms: int | None = None) -> str:
        now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        principal = Principal(PrincipalKind(kind), name)
        return mint_token(self._key, principal, issuer=ISSUER, ttl_seconds=seconds, now_ms=now)

    def credentials(self, token: str | None = None, *, certificate: bool = False) -> grpc.ChannelCredentials:
        """Of a gRPC client; with the admin's certificate if asked for."""
        files = self.files
        shown = (files.client_key.read_bytes(), files.client.read_bytes()) if certificate else (None, None)
        channel = grpc.ssl_channel_credentials(files.ca.read_bytes(), *shown)
        if token is None:
            return channel
        return grpc.composite_channel_credentials(channel, grpc.access_token_call_credentials(token))

    def context(self) -> ssl.SSLContext:
        """Of a native client without a certificate."""
        context = ssl.create_default_context(cafile=str(self.files.ca))
        context.set_alpn_protocols([ALPN])
        return context

    @property
    def tls(self) -> TLS:
        return TLS(ca=self.files.ca)

    @property
    def mutual_tls(self) -> TLS:
        return TLS(ca=self.files.ca, certificate=self.files.client, key=self.files.client_key)


class Admin:
    """Roles and bindings made over the admin port by the super admin."""

    def __init__(self, realm: Realm, broker: RunningBroker) -> None:
        self._channel = grpc.aio.secure_channel(
            broker.admin_address, realm.credentials(realm.token(ROOT)), [("grpc.enable_http_proxy", 0)]
        )

    async def close(self) -> None:
        await self._channel.close()

    async def call(self, method: str, request: Any, response: Any) -> Any:
        path = f"/danube_admin.SecurityAdmin/{method}"
        call = self._channel.unary_unary(path, type(request).SerializeToString, response.FromString)
        return await call(request, timeout=PATIENCE_SECONDS)

    async def role(self, name: str, *permissions: str) -> None:
        role = admin_pb.RoleDefinition(name=name, permissions=permissions)
        await self.call("CreateRole", admin_pb.CreateRoleRequest(role=role), admin_pb.CreateRoleResponse)

    async def bind(
        self, name: str, roles: Sequence[str], scope: str = "cluster", resource: str = "", kind: str = "user"
    ) -> None:
        binding = admin_pb.BindingDefinition(
            id=f"b-{name}",
            principal_type=kind,
            principal_name=name,
            role_names=roles,
            scope=scope,
            resource_name=resource,
        )
        request = admin_pb.CreateBindingRequest(binding=binding)
        await self.call("CreateBinding", request, admin_pb.CreateBindingResponse)

    async def unbind(self, name: str, scope: str = "cluster", resource: str = "") -> None:
        request = admin_pb.DeleteBindingRequest(scope=scope, resource_name=resource, binding_id=f"b-{name}")
        await self.call("DeleteBinding", request, admin_pb.DeleteBindingResponse)


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    return Realm(tmp_path_factory.mktemp("realm") / "made")


@pytest.fixture
async def secured(start_broker: StartBroker, realm: Realm) -> RunningBroker:
    """A broker of mode tls with TLS on both ports."""
    return await start_broker(auth=realm.auth(), admin_tls=True, metrics=True)


@pytest.fixture
async def make_admin(realm: Realm) -> AsyncIterator[Callable[[RunningBroker], Admin]]:
    made: list[Admin] = []

    def make(broker: RunningBroker) -> Admin:
        made.append(Admin(realm, broker))
        return made[-1]

    yield make
    for admin in made:
        await admin.close()


@pytest.fixture
def admin(secured: RunningBroker, make_admin: Callable[[RunningBroker], Admin]) -> Admin:
    return make_admin(secured)
