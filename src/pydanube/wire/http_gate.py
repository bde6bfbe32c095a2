"""The guard at the HTTP door: each request is checked here, in front of its answer, by the table of operations.

A route asks under the path of the RPC it stands for, or under an `http:` name if there is none. A server makes an
`HttpGate` for each connection, asks it at each request, tells it when the connection is gone, and answers what it raises
by `refusal`.
"""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from pydanube.kernel.errors import DanubeError, Status
from pydanube.security.guard import Fields
from pydanube.security.operations import OPERATIONS
from pydanube.security.principals import Principal
from pydanube.wire.gatekeeper import Gatekeeper

METRICS: Final = "http:metrics"

HTTP_STATUS: Final[Mapping[Status, HTTPStatus]] = {
    Status.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Status.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    Status.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    Status.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Status.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Status.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Status.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Status.ABORTED: HTTPStatus.CONFLICT,
    Status.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Status.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    Status.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Status.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}
"""What HTTP calls the status of an error; whatever is not here is a fault of the broker."""
_FURTHER_FIELDS: Final = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": 'Bearer realm="danube"'},
    # A quota of requests fills within a second.
    HTTPStatus.TOO_MANY_REQUESTS: {"Retry-After": "1"},
}


class HttpGate:
    """The gate of one connection."""

    def __init__(self, keeper: Gatekeeper, transport: asyncio.BaseTransport) -> None:
        self._keeper = keeper
        self._guard = keeper.guard
        self._quotas = keeper.guard.quotas
        self._peer, self._certificate = keeper.visitor(transport)
        self._counted: set[Principal] = set()
        """Principals this connection counts for."""

    def check(self, fields: Fields, operation: str, name: str = "") -> Principal:
        """Who is asking, if they may have what they ask for.

        Args:
            fields: the request's headers, names in lower case.
            operation: its name in `OPERATIONS`.
            name: of the resource, where the table says that there is one.

        Raises:
            Rejected: they cannot say who they are, or may not have it.
            Unavailable: they ask for too much at a time.
        """
        principal = self._guard.admit(fields, self._certificate, peer=self._peer).principal
        if self._quotas is not None:
            now_ms = self._keeper.clock.monotonic_ms()
            if principal not in self._counted:
                self._quotas.connect(principal, now_ms)
                self._counted.add(principal)
            self._quotas.request(principal, now_ms)
        self._guard.check(principal, operation, OPERATIONS[operation].on(name), peer=self._peer)
        return principal

    def lost(self) -> None:
        """The connection is gone."""
        if self._quotas is not None:
            for principal in self._counted:
                self._quotas.disconnect(principal)
        self._counted = set()


class Refusal(NamedTuple):
    """An error as an HTTP response."""

    status: HTTPStatus
    fields: Mapping[str, str]
    body: bytes
    """JSON, with the number and name that the error has on every door."""


def refusal(error: DanubeError) -> Refusal:
    status = HTTP_STATUS.get(error.status, HTTPStatus.INTERNAL_SERVER_ERROR)
    document = {"error": {"code": error.code.number, "name": error.code.name, "message": error.text}}
    fields = {"Content-Type": "application/json", **_FURTHER_FIELDS.get(status, {})}
    return Refusal(status, fields, json.dumps(document).encode() + b"\n")
