"""What the guard needs to know of a connection, whatever protocol it speaks."""

import asyncio
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.security.guard import Guard
from pydanube.security.peer_identity import certificate_principal
from pydanube.security.principals import Principal, Verified

LOOK_MS: Final = 1_000
"""How often a gate looks at the time: who would expire before the next look counts as expired."""


class Visitor(NamedTuple):
    """The other end of a connection."""

    peer: str
    """Its address, for the audit log."""
    certificate: Principal | None
    """Whom its verified certificate speaks for."""


@dataclass(frozen=True, slots=True)
class Gatekeeper:
    """The guard, the time, and whose certificates speak for brokers: shared by the gates of all connections."""

    guard: Guard
    clock: Clock
    trust_domain: str

    def visitor(self, transport: asyncio.BaseTransport) -> Visitor:
        address = transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else ""
        # The event loop has a certificate to show only if it was verified.
        certificate = certificate_principal(transport.get_extra_info("peercert"), self.trust_domain)
        return Visitor(peer, certificate)

    def is_over(self, verified: Verified) -> bool:
        """Whether what was proved no longer holds, or will not when this is asked next."""
        return self.clock.now_ms() + LOOK_MS >= verified.expires_ms


def expired(verified: Verified) -> Rejected:
    return Rejected(
        f"the token of {verified.principal} has expired: connect with a new one", ErrorCode.TOKEN_EXPIRED
    )
