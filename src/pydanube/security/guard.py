"""The one place where callers are let in and calls are allowed. Every front door asks here, and only here.

    principal = guard.authenticate(headers, certificate, peer=address)      once per call, or per connection
    guard.check(principal, "/danube.ProducerService/SendMessage", topic_resource(name), peer=address)

A door that handles many messages on one channel may keep the answer "allowed" as long as `guard.revision` is the same.
"""

from typing import Final, NoReturn, Protocol

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import check_name
from pydanube.security.audit import AuditLog, Outcome
from pydanube.security.operations import OPERATIONS
from pydanube.security.permissions import CLUSTER, Permission, Resource, Scope, narrowest_scope
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import ANONYMOUS, Principal, PrincipalKind
from pydanube.security.quotas import Quotas
from pydanube.security.settings import Limits, Mode, SecuritySettings
from pydanube.security.tokens import TokenVerifier, Verified

AUTHORIZATION: Final = "authorization"
INTERNAL_BROKER: Final = "x-danube-internal-broker"
FOREVER_MS: Final = (1 << 62) - 1

Counts = dict[tuple[Scope, Permission], int]


class Fields(Protocol):
    """Metadata of a call: a dictionary, or the headers of a request. Names are lower case."""

    def get(self, name: str, /) -> str | None: ...


class Guard(Protocol):
    quotas: Quotas | None
    """Limits of each principal; None if there are none."""

    @property
    def revision(self) -> int:
        """Another number whenever a call that was allowed may no longer be."""
        ...

    def admit(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Verified:
        """Who is calling and until when that holds, by the call's metadata or a token alone.

        Args:
            credentials: metadata, or just a token.
            certificate: whom the connection's *verified* client certificate speaks for.
            peer: the caller's address, for the audit log.

        Raises:
            Rejected: the caller cannot say who they are.
        """
        ...

    def authenticate(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Principal:
        """As `admit`, for a single call."""
        ...

    def check(
        self, principal: Principal, operation: str, resource: Resource = CLUSTER, *, peer: str = ""
    ) -> None:
        """Return if the principal may do this (a name in `OPERATIONS`) to the resource, else raise Rejected."""
        ...


class OpenGuard:
    """Mode none: everybody is anonymous and may do everything."""

    quotas: Quotas | None = None
    revision: int = 0

    def admit(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Verified:
        return Verified(ANONYMOUS, FOREVER_MS)

    def authenticate(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Principal:
        return ANONYMOUS

    def check(
        self, principal: Principal, operation: str, resource: Resource = CLUSTER, *, peer: str = ""
    ) -> None:
        pass


OPEN: Final = OpenGuard()


class PolicyGuard:
    """Modes tls and mtls: callers prove who they are, and may do what a role bound to them grants."""

    def __init__(
        self,
        mode: Mode,
        verifier: TokenVerifier | None,
        policies: PolicyStore,
        audit: AuditLog,
        quotas: Quotas | None = None,
    ) -> None:
        self.quotas = quotas
        self.allowed: Counts = {}
        self.denied: Counts = {}
        """Decisions so far, by the narrowest scope that could grant them: for metrics."""
        self._certificates_identify = mode == "mtls"
        self._verifier = verifier
        self._policies = policies
        self._audit = audit

    @property
    def revision(self) -> int:
        return self._policies.revision

    def admit(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Verified:
        try:
            return self._admitted(credentials, certificate)
        except Rejected as error:
            self._audit.record(
                Outcome.REFUSED,
                principal="",
                action="authenticate",
                resource="",
                reason=error.text,
                peer=peer,
            )
            raise

    def authenticate(
        self, credentials: Fields | str | None, certificate: Principal | None = None, *, peer: str = ""
    ) -> Principal:
        return self.admit(credentials, certificate, peer=peer).principal

    def check(
        self, principal: Principal, operation: str, resource: Resource = CLUSTER, *, peer: str = ""
    ) -> None:
        rule = OPERATIONS.get(operation)
        if rule is None:
            self._deny(principal, operation, resource, "there is no rule for this call", peer)
        permission = rule.permission
        if permission is None:
            return
        if rule.kind is not resource.kind:
            # Deciding about a narrower resource than the table says would let too many through.
            raise DanubeError(
                f"{operation} was to be checked on a {rule.kind}, not on {resource}", ErrorCode.INTERNAL
            )
        decision = self._policies.decide(principal, permission, resource)
        counts = self.allowed if decision.allowed else self.denied
        key = (narrowest_scope(resource), permission)
        counts[key] = counts.get(key, 0) + 1
        if not decision.allowed:
            self._deny(principal, operation, resource, decision.why, peer)
        if rule.administrative and (rule.changes or self._audit.reads):
            self._audit.record(
                Outcome.ALLOWED,
                principal=str(principal),
                action=operation,
                resource=str(resource),
                reason=decision.why,
                peer=peer,
            )

    def _admitted(self, credentials: Fields | str | None, certificate: Principal | None) -> Verified:
        internal: str | None = None
        token: str | None = None
        if isinstance(credentials, str):
            token = credentials
        elif credentials is not None:
            internal = credentials.get(INTERNAL_BROKER)
            authorization = credentials.get(AUTHORIZATION)
            token = None if authorization is None else _bearer(authorization)
        # The header alone proves nothing, and a broker's certificate alone claims nothing: what a broker forwards for
        # a client comes over the same connection, without the header, and must not get a broker's powers.
        is_broker = certificate is not None and certificate.kind is PrincipalKind.BROKER_INTERNAL
        if internal and is_broker:
            name = check_name(internal, what="broker identity")
            return Verified(Principal(PrincipalKind.BROKER_INTERNAL, name), FOREVER_MS)
        if token:
            if self._verifier is None:
                raise Rejected(
                    "a token was sent, but this broker has no key to check it with: set auth.jwt",
                    ErrorCode.TOKENS_NOT_CONFIGURED,
                )
            return self._verifier.verify(token)
        if certificate is not None and self._certificates_identify and not is_broker:
            return Verified(certificate, FOREVER_MS)
        wanted = "a token or a certificate that names you" if self._certificates_identify else "a token"
        raise Rejected(
            f"this broker wants to know who is calling: send {wanted}", ErrorCode.CREDENTIALS_MISSING
        )

    def _deny(
        self, principal: Principal, operation: str, resource: Resource, why: str, peer: str
    ) -> NoReturn:
        self._audit.record(
            Outcome.DENIED,
            principal=str(principal),
            action=operation,
            resource=str(resource),
            reason=why,
            peer=peer,
        )
        raise Rejected(f"permission denied for {operation}: {why}", ErrorCode.PERMISSION_DENIED)


def guard_for(settings: SecuritySettings, policies: PolicyStore, audit: AuditLog, clock: Clock) -> Guard:
    """The guard these settings ask for."""
    if settings.mode == "none":
        return OPEN
    verifier = None if settings.jwt is None else TokenVerifier(settings.jwt, clock)
    limited = settings.limits != Limits() or settings.principal_limits
    quotas = Quotas(settings.limits, settings.principal_limits) if limited else None
    return PolicyGuard(settings.mode, verifier, policies, audit, quotas)


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme not in ("Bearer", "bearer") or not token:
        raise Rejected(
            "the header authorization does not hold a token: expected Bearer …", ErrorCode.TOKEN_INVALID
        )
    return token
