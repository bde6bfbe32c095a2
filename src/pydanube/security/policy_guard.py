"""The guard of modes tls and mtls: callers prove who they are, and may do what a role bound to them grants."""

from typing import NoReturn

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import check_name
from pydanube.security.audit import AuditLog, Outcome
from pydanube.security.guard import AUTHORIZATION, FOREVER_MS, INTERNAL_BROKER, Fields
from pydanube.security.operations import OPERATIONS
from pydanube.security.permissions import CLUSTER, Permission, Resource, Scope, narrowest_scope
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import Principal, PrincipalKind, Verified
from pydanube.security.quotas import Quotas
from pydanube.security.settings import Limits, Mode, SecuritySettings
from pydanube.security.tokens import TokenVerifier

Counts = dict[tuple[Scope, Permission], int]


class PolicyGuard:
    """Asks tokens and certificates who is calling, the policies what they may, and writes down what matters."""

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

    def reload_keys(self) -> None:
        """Let changed token keys count. Call it on a timer."""
        if self._verifier is not None:
            self._verifier.reload_if_changed()

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


def policy_guard(
    settings: SecuritySettings, policies: PolicyStore, audit: AuditLog, clock: Clock
) -> PolicyGuard:
    """The guard these settings ask for; their mode is not none."""
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
