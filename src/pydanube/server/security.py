"""Security of a broker, put together: policies, the guard, the certificate and their upkeep."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

from pydanube.kernel.clock import Clock
from pydanube.metadata import MetadataStore
from pydanube.security.policy_store import PolicyStore
from pydanube.server.config import Settings
from pydanube.wire.gatekeeper import Gatekeeper

if TYPE_CHECKING:
    from pydanube.security.certificates import ServerTls
    from pydanube.security.policy_guard import PolicyGuard

RELOAD_SECONDS: Final = 10.0
"""Between looks at the files of the certificate and of the token keys."""


@dataclass(frozen=True, slots=True)
class Security:
    """Mode none: only the policies are there, so that they can be made before they count."""

    policies: PolicyStore
    guard: "PolicyGuard | None" = None
    gatekeeper: Gatekeeper | None = None
    client_tls: SSLContext | None = None
    admin_tls: SSLContext | None = None


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
    upkeep = asyncio.create_task(_follow_files(tls, guard), name="certificate and key files")
    closing.push_async_callback(_cancel, upkeep)
    return Security(
        policies,
        guard,
        Gatekeeper(guard, clock, auth.trust_domain),
        client_tls=tls.context,
        admin_tls=tls.context if settings.admin_tls or auth.mode == "mtls" else None,
    )


async def _follow_files(tls: "ServerTls", guard: "PolicyGuard") -> None:
    while True:
        await asyncio.sleep(RELOAD_SECONDS)
        tls.reload_if_changed()
        guard.reload_keys()


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
