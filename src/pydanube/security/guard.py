"""The one place where callers are let in and calls are allowed. Every front door asks here, and only here.

    principal = guard.authenticate(headers, certificate, peer=address)      once per call, or per connection
    guard.check(principal, "/danube.ProducerService/SendMessage", topic_resource(name), peer=address)

A door that handles many messages on one channel may keep the answer "allowed" as long as `guard.revision` is the same.
This module is what doors know: the guard that is really there is `OPEN`, or one of `policy_guard.py`, which a broker
without security need not load.
"""

from typing import Final, Protocol

from pydanube.security.permissions import CLUSTER, Resource
from pydanube.security.principals import ANONYMOUS, Principal, Verified
from pydanube.security.quotas import Quotas

FOREVER_MS: Final = (1 << 62) - 1
AUTHORIZATION: Final = "authorization"
INTERNAL_BROKER: Final = "x-danube-internal-broker"
"""Metadata by which a caller says who they are."""


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
