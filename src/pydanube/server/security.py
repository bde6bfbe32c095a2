"""Security of a broker, put together: policies, the guard, the certificate and their upkeep."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

from pydanube.kernel.clock import Clock
from pydanube.metadata import MetadataStore
from pydanube.security.policy_store import PolicyStore
from pydanube.server.config import Settings
from pydanube.wire.gatekeeper import Gatekeeper
from pydanube.wire.http_gate import HttpGate

if TYPE_CHECKING:
    from pydanube.security.certificates import ServerTls
    from pydanube.security.policy_guard import PolicyGuard

RELOAD_SECONDS: Final = 10.0
"""Between looks at the files of the certificate and of the token keys."""
HTTP_ALPN: Final = ("http/1.1",)


@dataclass(frozen=True, slots=True)
class Security:
    """Mode none: only the policies are there, so that they can be made before they count."""

    policies: PolicyStore
    guard: "PolicyGuard | None" = None
    gatekeeper: Gatekeeper | None = None
    client_tls: SSLContext | None = None
    admin_tls: SSLContext | None = None
    http_tls: SSLContext | None = None
    new_metrics_gate: Callable[[asyncio.BaseTransport], HttpGate] | None = None


async def open_security(
    settings: Settings, metadata: MetadataStore, clock: Clock, closing: AsyncExitStack
) -> Security:
    """Read the policies, the keys and the certificate; what has to be closed again goes onto `closing`."""
    auth = settings.auth
    policies = PolicyStore(metadata, super_admins=frozenset(auth.super_admins))
    await policies.start()
    closing.push_async_callback(policies.close)
    if auth.mode == "none" or auth.tls is None:
        return Security(policies)
    # A broker without security does not load what only security needs.
    from pydanube.security.audit import AuditLog  # noqa: PLC0415
    from pydanube.security.certificates import ServerTls  # noqa: PLC0415
    from pydanube.security.policy_guard import policy_guard  # noqa: PLC0415

    audit = AuditLog(auth.audit, clock)
    closing.callback(audit.close)
    guard = policy_guard(auth, policies, audit, clock)
    tls = ServerTls(auth.mode, auth.tls, clock)
    # Probes of health have no certificate to show, so this port never insists on one; the guard does, if need be.
    http_tls = ServerTls("tls", auth.tls, clock, alpn=HTTP_ALPN)
    upkeep = asyncio.create_task(_follow_files((tls, http_tls), guard), name="certificate and key files")
    closing.push_async_callback(_cancel, upkeep)
    gatekeeper = Gatekeeper(guard, clock, auth.trust_domain)
    return Security(
        policies,
        guard,
        gatekeeper,
        client_tls=tls.context,
        admin_tls=tls.context if settings.admin_tls or auth.mode == "mtls" else None,
        http_tls=http_tls.context,
        new_metrics_gate=None if auth.anonymous_metrics else partial(HttpGate, gatekeeper),
    )


async def _follow_files(ports: "Sequence[ServerTls]", guard: "PolicyGuard") -> None:
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        for tls in ports:
            tls.reload_if_changed()
        guard.reload_keys()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
