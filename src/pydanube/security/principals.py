"""Who is calling."""

from enum import StrEnum
from typing import Final, NamedTuple

from pydanube.kernel.names import check_name


class PrincipalKind(StrEnum):
    USER = "user"
    SERVICE_ACCOUNT = "service_account"
    BROKER_INTERNAL = "broker_internal"
    """Another broker of the cluster: may do everything."""
    ANONYMOUS = "anonymous"
    """Everybody, where security is off. No token and no certificate gives this."""


class Principal(NamedTuple):
    """A caller. A tuple, because every check of a call hashes it."""

    kind: PrincipalKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Verified(NamedTuple):
    """A caller who has proved it, and how long the proof holds."""

    principal: Principal
    expires_ms: int
    """Unix time. Whoever keeps a connection open by a token must end it then."""


ANONYMOUS: Final = Principal(PrincipalKind.ANONYMOUS, "anonymous")

_CLAIMED_KINDS: Final = {
    "user": PrincipalKind.USER,
    "broker_internal": PrincipalKind.BROKER_INTERNAL,
}


def claimed_principal(kind: str, name: str) -> Principal:
    """The principal a verified token or certificate speaks of; a kind not known by name is a service account."""
    return Principal(
        _CLAIMED_KINDS.get(kind, PrincipalKind.SERVICE_ACCOUNT), check_name(name, what="principal name")
    )
