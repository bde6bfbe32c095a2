"""One port for every protocol: the first bytes, or ALPN under TLS, say which one a connection speaks."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydanube.protocol.http2.frames import PREFACE
from pydanube.protocol.native.frames import ALPN as NATIVE_ALPN
from pydanube.protocol.native.frames import PREFACE as NATIVE_PREFACE

log = logging.getLogger("pydanube.wire")

# A protocol object for one connection. It must call the callback it is given when that connection is lost.
ProtocolFactory = Callable[[Callable[[], None]], Any]

_GOODBYE_SECONDS = 1.0
"""How long a TLS peer may take to answer our goodbye: some just close, and some not even that."""
_HTTP1_METHODS = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
)
_HTTP1_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\n"
    b"content-type: text/plain\r\n"
    b"content-length: 46\r\n"
    b"connection: close\r\n\r\n"
    b"this port speaks gRPC and the native protocol\n"
)


@dataclass(frozen=True, slots=True)
class Door:
    """A protocol served on the port: how its connections begin, and who takes them over."""

    first_bytes: bytes
    alpn: str
    open: ProtocolFactory


def http2_door(factory: ProtocolFactory) -> Door:
    """The door for gRPC. A few bytes of the preface tell it apart; the core checks all of it."""
    return Door(PREFACE[:14], "h2", factory)


def native_door(factory: ProtocolFactory) -> Door:
    """The door for the native protocol."""
    return Door(NATIVE_PREFACE, NATIVE_ALPN, factory)


class Listener:
    """Accepts connections on one port and leads each to its protocol.

    Bounds: `connections_max` open at once, further ones are closed at once; `first_bytes_seconds` for a new
    connection to say what it speaks, TLS handshake not counted (that has its own limit).
    """

    def __init__(
        self,
        doors: Sequence[Door],
        *,
        connections_max: int = 10_000,
        first_bytes_seconds: float = 10.0,
        handshake_seconds: float = 10.0,
    ) -> None:
        self._doors = tuple(doors)
        self._connections_max = connections_max
        self._first_bytes_seconds = first_bytes_seconds
        self._handshake_seconds = handshake_seconds
        self._server: asyncio.AbstractServer | None = None
        self._waiting: set[_Threshold] = set()
        # Counters, read by the metrics page
        self.connections_open = 0
        self.connections_refused_total = 0
        self.connections_unknown_total = 0

    async def open(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Listen; port 0 picks a free one, see `port`."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: cast(asyncio.Protocol, _Threshold(self)),
            host,
            port,
            backlog=1024,
            ssl=tls,
            ssl_handshake_timeout=self._handshake_seconds if tls else None,
            ssl_shutdown_timeout=_GOODBYE_SECONDS if tls else None,
        )

    @property
    def port(self) -> int:
        """The port actually listened on."""
        if self._server is None:
            raise RuntimeError("the listener is not open")
        number: int = self._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return number

    def stop_accepting(self) -> None:
        """Take no new connections; open ones are their protocols' business."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """Stop accepting and drop connections that have not yet said what they speak."""
        self.stop_accepting()
        for threshold in list(self._waiting):
            threshold.drop()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    def _arrived(self, threshold: "_Threshold") -> bool:
        """Count a new connection; False if there is no room for it."""
        if self.connections_open >= self._connections_max:
            self.connections_refused_total += 1
            return False
        self.connections_open += 1
        self._waiting.add(threshold)
        return True

    def _left(self) -> None:
        self.connections_open -= 1


class _Threshold:
    """A connection that has not yet said what it speaks: an asyncio protocol by shape."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._counted = False
        self._received = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if not self._listener._arrived(self):
            transport.abort()
            return
        self._counted = True
        _keep_alive(transport)
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            chosen = ssl_object.selected_alpn_protocol()
            for door in self._listener._doors:
                if chosen == door.alpn:
                    self._enter(door, transport)
                    return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._listener._first_bytes_seconds, self.drop)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._received += data
        for door in self._listener._doors:
            if self._received.startswith(door.first_bytes):
                self._enter(door, self._transport)
                return
        if not any(door.first_bytes.startswith(self._received) for door in self._listener._doors):
            self._turn_away(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        if self._counted:
            self._counted = False
            self._listener._left()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass

    def drop(self) -> None:
        """Close: the connection said nothing in time, or the listener is closing."""
        if self._transport is not None:
            self._transport.abort()

    def _enter(self, door: Door, transport: asyncio.Transport) -> None:
        self._stop_waiting()
        self._counted = False
        protocol = door.open(self._listener._left)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._received:
            protocol.data_received(self._received)

    def _turn_away(self, transport: asyncio.Transport) -> None:
        self._listener.connections_unknown_total += 1
        if self._received.startswith(_HTTP1_METHODS):
            transport.write(_HTTP1_ANSWER)
        transport.close()

    def _stop_waiting(self) -> None:
        self._listener._waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _keep_alive(transport: asyncio.Transport) -> None:
    """Let the kernel find peers that vanished while nothing was said."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
