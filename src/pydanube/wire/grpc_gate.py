"""The guard at the gRPC door: each call is checked here, in front of its handler, by the table of operations.

`guarded_routes` puts the check before every handler; a broker without security serves the bare routes. Each connection
has a `GrpcGate`, which remembers who called on it and which topics they may publish to and consume from, until the
policies change; and watches the streams that stay open, so that they end when a token expires or a role is taken away.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.protocol import (
    danube_admin_pb2,
    danube_pb2,
    pydanube_admin_pb2,
    schema_registry_pb2,
    storage_admin_pb2,
)
from pydanube.protocol.http2.headers import Headers
from pydanube.protocol.messages import PublishScan, scan_ack, scan_publish
from pydanube.security.guard import AUTHORIZATION, INTERNAL_BROKER
from pydanube.security.operations import OPERATIONS, ResourceFrom, Rule
from pydanube.security.permissions import Permission, Resource, topic_resource
from pydanube.security.principals import Principal, Verified
from pydanube.wire.gatekeeper import Gatekeeper, expired
from pydanube.wire.grpc_connection import GrpcConnection, Handler
from pydanube.wire.producer_service import ProducerService

SEND: Final = "/danube.ProducerService/SendMessage"
RECEIVE: Final = "/danube.ConsumerService/ReceiveMessages"
SETTLE: Final = ("/danube.ConsumerService/Ack", "/danube.ConsumerService/Nack")

CALLERS_MAX: Final = 256
"""Callers remembered on one connection; a proxy may speak for many."""
TOPICS_MAX: Final = 10_000
"""Topics remembered of one caller."""
REMEMBERED_MS: Final = 30_000
"""After this a token is looked at again, in case its key is not accepted any more."""

TopicOf = Callable[[int], str]
"""The topic behind a number of the request, "" if there is none."""

_MODULES: Final = (
    danube_pb2,
    danube_admin_pb2,
    pydanube_admin_pb2,
    schema_registry_pb2,
    storage_admin_pb2,
)


def guarded_routes(
    routes: dict[str, Handler],
    *,
    producer: ProducerService | None = None,
    topic_of_consumer: TopicOf = lambda consumer_id: "",
    topic_of_import: TopicOf = lambda import_id: "",
) -> dict[str, Handler]:
    """The same routes behind the guard; `producer` is whose SendMessage is among them."""
    guarded = {}
    for path, handler in routes.items():
        if path == SEND and producer is not None:
            guarded[path] = _guarded_send(producer)
        elif path in SETTLE:
            guarded[path] = _guarded_settle(path, handler)
        else:
            name_of = _name_of(path, topic_of_consumer, topic_of_import)
            guarded[path] = _guarded(path, handler, name_of, is_watched=path == RECEIVE)
    return guarded


class Caller:
    """Somebody who called on a connection, and what is known of their rights."""

    __slots__ = ("consumes", "produces", "verified")

    def __init__(self, verified: Verified) -> None:
        self.verified = verified
        self.produces: set[bytes] = set()
        """Topics the caller may publish to, as messages name them; empty again when policies change."""
        self.consumes: set[bytes] = set()


class _Watched(NamedTuple):
    """A stream that stays open, and what it was allowed for."""

    verified: Verified
    operation: str
    resource: Resource


Send = Callable[[GrpcConnection, int, bytes, PublishScan], None]


class _Held(NamedTuple):
    """A message that came faster than its principal may send."""

    principal: Principal
    send: Send
    stream_id: int
    body: bytes
    scan: PublishScan


class GrpcGate:
    """The gate of one connection."""

    def __init__(self, keeper: Gatekeeper, connection: GrpcConnection) -> None:
        self._keeper = keeper
        self.guard = keeper.guard
        self._quotas = keeper.guard.quotas
        self._connection = connection
        self._peer = ""
        self._certificate: Principal | None = None
        self.revision = keeper.guard.revision
        """Of the policies, as far as what is remembered here goes by them."""
        self.sender: str | None = ""
        """The header `authorization` of whoever published last, and below what they may publish to."""
        self.sender_topics: set[bytes] = set()
        self._callers: dict[tuple[str | None, str | None], Caller] = {}
        self._callers_since_ms = keeper.clock.monotonic_ms()
        self._last_headers: Headers | None = None
        self._last_caller: Caller | None = None
        self._streams: dict[int, _Watched] = {}
        self._counted: set[Principal] = set()
        """Principals this connection counts for."""
        self._held: deque[_Held] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # For the connection

    def opened(self, transport: asyncio.BaseTransport) -> None:
        self._peer, self._certificate = self._keeper.visitor(transport)

    def tick(self) -> None:
        """A second has passed."""
        now_ms = self._keeper.clock.monotonic_ms()
        is_long_ago = now_ms - self._callers_since_ms >= REMEMBERED_MS
        if is_long_ago or any(self._keeper.is_over(each.verified) for each in self._callers.values()):
            self._forget_callers()
        if self.revision != self.guard.revision:
            self._policies_changed()
        for stream_id, watched in list(self._streams.items()):
            if not self._connection.is_open(stream_id):
                del self._streams[stream_id]
            elif self._keeper.is_over(watched.verified):
                self._end(stream_id, expired(watched.verified))

    def lost(self) -> None:
        """The connection is gone."""
        self._streams = {}
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._quotas is not None:
            for principal in self._counted:
                self._quotas.disconnect(principal)
        self._counted = set()

    # For the routes

    def caller(self, headers: Headers) -> Caller:
        """Who is calling; Rejected if they cannot say."""
        if headers is self._last_headers and self._last_caller is not None:
            caller = self._last_caller
        else:
            key = (headers.get(AUTHORIZATION), headers.get(INTERNAL_BROKER))
            known = self._callers.get(key)
            caller = self._admitted(headers, key) if known is None else known
            self._last_headers, self._last_caller = headers, caller
        if self._quotas is not None:
            self._quotas.request(caller.verified.principal, self._keeper.clock.monotonic_ms())
        return caller

    def check(self, caller: Caller, operation: str, resource: Resource) -> None:
        """Return if the call is allowed, else raise Rejected."""
        self.guard.check(caller.verified.principal, operation, resource, peer=self._peer)

    def check_send(self, headers: Headers, topic: bytes) -> Caller:
        """Who publishes, if they may: asked for every message."""
        if self.revision != self.guard.revision:
            self._policies_changed()
        caller = self.caller(headers)
        if topic not in caller.produces:
            self._check_topic(caller, SEND, topic, caller.produces)
        # A broker's powers are asked for at every call: without the header, its certificate is no identity.
        if self._quotas is None and headers.get(INTERNAL_BROKER) is None:
            self.sender, self.sender_topics = headers.get(AUTHORIZATION), caller.produces
        return caller

    def check_settle(self, headers: Headers, operation: str, topic: bytes) -> None:
        """May a message of the topic be acknowledged?"""
        if self.revision != self.guard.revision:
            self._policies_changed()
        caller = self.caller(headers)
        if topic not in caller.consumes:
            self._check_topic(caller, operation, topic, caller.consumes)

    def watch(self, stream_id: int, caller: Caller, operation: str, resource: Resource) -> None:
        """A stream stays open for as long as the caller may have it."""
        self._streams[stream_id] = _Watched(caller.verified, operation, resource)

    def send(self, caller: Caller, send: Send, stream_id: int, body: bytes, scan: PublishScan) -> None:
        """Send a message on, at once or when its principal may."""
        if self._quotas is None:
            send(self._connection, stream_id, body, scan)
            return
        held = _Held(caller.verified.principal, send, stream_id, body, scan)
        wait_ms = 1 if self._held else self._wait_ms(held)
        if not wait_ms:
            send(self._connection, stream_id, body, scan)
            return
        if not self._held:
            # What else was read already waits behind it; more is not read.
            self._connection.stop_reading()
            self._timer = self._connection.loop.call_later(wait_ms / 1000, self._go_on)
        self._held.append(held)

    def _admitted(self, headers: Headers, key: tuple[str | None, str | None]) -> Caller:
        verified = self.guard.admit(headers, self._certificate, peer=self._peer)
        if self._quotas is not None and verified.principal not in self._counted:
            self._quotas.connect(verified.principal, self._keeper.clock.monotonic_ms())
            self._counted.add(verified.principal)
        caller = Caller(verified)
        if len(self._callers) >= CALLERS_MAX:
            self._forget_callers()
        self._callers[key] = caller
        return caller

    def _check_topic(self, caller: Caller, operation: str, topic: bytes, allowed: set[bytes]) -> None:
        self.check(caller, operation, topic_resource(topic.decode(errors="replace")))
        if len(allowed) >= TOPICS_MAX:
            allowed.clear()
        allowed.add(topic)

    def _forget_callers(self) -> None:
        self._callers_since_ms = self._keeper.clock.monotonic_ms()
        self._callers = {}
        self._last_headers = self._last_caller = None
        self.sender, self.sender_topics = "", set()

    def _policies_changed(self) -> None:
        self.revision = self.guard.revision
        self._forget_callers()
        for stream_id, watched in list(self._streams.items()):
            try:
                self.guard.check(
                    watched.verified.principal, watched.operation, watched.resource, peer=self._peer
                )
            except DanubeError as error:
                self._end(stream_id, error)

    def _end(self, stream_id: int, error: DanubeError) -> None:
        del self._streams[stream_id]
        self._connection.revoke(stream_id, error)

    def _wait_ms(self, held: _Held) -> int:
        assert self._quotas is not None
        return self._quotas.publish_wait_ms(held.principal, len(held.body), self._keeper.clock.monotonic_ms())

    def _go_on(self) -> None:
        """The wait is over for the first of those held, and perhaps for more."""
        connection = self._connection
        self._timer = None
        while self._held:
            held = self._held[0]
            if connection.is_open(held.stream_id):
                wait_ms = self._wait_ms(held)
                if wait_ms:
                    self._timer = connection.loop.call_later(wait_ms / 1000, self._go_on)
                    return
                self._held.popleft()
                _send(connection, held)
            else:
                self._held.popleft()
        connection.go_on_reading()


def _guarded(path: str, handler: Handler, name_of: Callable[[bytes], str], *, is_watched: bool) -> Handler:
    rule = OPERATIONS.get(path, _NO_RULE)

    def handle(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        gate = _gate_of(connection)
        caller = gate.caller(headers)
        resource = rule.on(name_of(body))
        gate.check(caller, path, resource)
        handler(connection, stream_id, body, headers)
        if is_watched:
            gate.watch(stream_id, caller, path, resource)

    return handle


def _guarded_settle(path: str, handler: Handler) -> Handler:
    def handle(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        try:
            topic = scan_ack(body).topic_name
        except DanubeError:
            topic = b""  # may this caller know what is wrong with it?
        _gate_of(connection).check_settle(headers, path, topic)
        handler(connection, stream_id, body, headers)

    return handle


def _guarded_send(producer: ProducerService) -> Handler:
    """What is checked is what is published: the message is scanned once, for both."""
    send = producer.send_scanned

    def handle(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        gate = _gate_of(connection) if connection.gate is None else connection.gate
        try:
            scan = scan_publish(body)
        except DanubeError:
            gate.check_send(headers, b"")
            raise
        # Nearly always the sender and the topic are those of the last message: that must cost nothing.
        if (
            scan.topic_name in gate.sender_topics
            and headers.get(AUTHORIZATION) == gate.sender
            and gate.guard.revision == gate.revision
        ):
            send(connection, stream_id, body, scan)
        else:
            gate.send(gate.check_send(headers, scan.topic_name), send, stream_id, body, scan)

    return handle


def _send(connection: GrpcConnection, held: _Held) -> None:
    try:
        held.send(connection, held.stream_id, held.body, held.scan)
    except DanubeError as error:
        connection.fail(held.stream_id, error)
    except Exception:
        connection.fail_by_bug(held.stream_id, SEND)


_NO_RULE: Final = Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER)
"""Of a path that is not in the table: the guard refuses it whatever the resource."""


def _gate_of(connection: GrpcConnection) -> GrpcGate:
    gate = connection.gate
    if gate is None:
        raise DanubeError("a guarded route on a connection without a gate", ErrorCode.INTERNAL)
    return gate


def _name_of(path: str, topic_of_consumer: TopicOf, topic_of_import: TopicOf) -> Callable[[bytes], str]:
    """How the name of a call's resource is found in its request."""
    rule = OPERATIONS.get(path, _NO_RULE)
    if not rule.field:
        return lambda body: ""
    kind = _request_type(path)
    fields = rule.field.split(".")

    def value_of(body: bytes) -> Any:
        try:
            value: Any = kind.FromString(body)
        except DecodeError:
            # Access is checked before form: whoever may do this everywhere hears what is wrong.
            value = kind()
        for field in fields:
            value = getattr(value, field)
        return value

    if rule.resource is ResourceFrom.CONSUMER:
        return lambda body: topic_of_consumer(value_of(body))
    if rule.resource is ResourceFrom.IMPORT:
        return lambda body: topic_of_import(value_of(body))
    return lambda body: str(value_of(body))


def _request_type(path: str) -> type[Message]:
    service, _, method = path[1:].partition("/")
    for module in _MODULES:
        for known in module.DESCRIPTOR.services_by_name.values():
            if known.full_name == service:
                kind: type[Message] = getattr(module, known.methods_by_name[method].input_type.name)
                return kind
    raise KeyError(f"no proto file describes {path}")
