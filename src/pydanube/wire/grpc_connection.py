"""gRPC on an event loop: drives the pure core, calls the handlers, writes once per loop tick.

Nothing here happens per message beyond one call of a handler: no task, no future, no `call_soon`. What the
handlers say while bytes are being read goes out in one write at the end of the read; what they say later
(when a journal group is committed, say, for hundreds of connections) goes out in one pass over the
connections that have something to say.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.protocol.grpc import MESSAGE_BYTES_MAX, Call, GrpcServerConnection
from pydanube.protocol.http2 import Headers, Http2Limits
from pydanube.wire.connections import ConnectionRegister, ServedConnection, WritePass

if TYPE_CHECKING:
    from pydanube.wire.grpc_gate import GrpcGate

log = logging.getLogger("pydanube.wire")

_WRITE_BUFFER_BYTES: Final = 256 * 1024
# How long a connection that is being closed may take to write its last words.
_CLOSE_SECONDS: Final = 5.0


class GrpcServer:
    """One gRPC service table: routes, limits, counters."""

    def __init__(
        self,
        routes: "dict[str, Handler]",
        *,
        limits: Http2Limits | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        write_pass: WritePass | None = None,
        new_gate: "Callable[[GrpcConnection], GrpcGate] | None" = None,
    ) -> None:
        """`new_gate` makes what guarded routes ask of a connection; without it, routes are open to everybody."""
        self.new_gate: Final = new_gate
        self.routes: Final = routes
        self.limits: Final = limits or Http2Limits(body_bytes_max=message_bytes_max + 5)
        self.message_bytes_max: Final = message_bytes_max
        self.write_pass: Final = write_pass or WritePass()
        self.connections: Final = ConnectionRegister()
        # Counters, read by the metrics page
        self.calls_total = 0
        self.failures_total = 0
        self.resets_total = 0
        self.protocol_errors_total = 0

    def new_connection(self, on_lost: Callable[[], None] | None = None) -> "GrpcConnection":
        """A protocol for one accepted connection; `on_lost` is called once when it is over."""
        return GrpcConnection(self, on_lost)


class GrpcConnection(ServedConnection):
    """One connection as the event loop and the services see it. An asyncio protocol by shape, not by base.

    Services use `reply`, `fail`, `start`, `send`, `finish`, `room`, `on_closed` and `on_drained`; all of them
    are harmless for a stream that is gone.
    """

    def __init__(self, server: GrpcServer, on_lost: Callable[[], None] | None) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self._server: Final = server
        self._on_lost = on_lost
        self._core: Final = GrpcServerConnection(server.limits, message_bytes_max=server.message_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._closed_callbacks: dict[int, Callable[[], None]] = {}
        self._drained_callbacks: dict[int, Callable[[], None]] = {}
        self._reading = False
        self._dirty = False
        self._paused = False
        self._closing_since = 0.0
        self._resets_seen = 0
        self.gate: GrpcGate | None = None if server.new_gate is None else server.new_gate(self)
        """What the guard says of this connection's callers; None where everybody may do everything."""

    # For services

    def reply(self, stream_id: int, message: bytes) -> None:
        """Answer a unary call."""
        if self._closed_callbacks:
            self._closed_callbacks.pop(stream_id, None)
        self._core.reply(stream_id, message)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def fail(self, stream_id: int, error: DanubeError) -> None:
        """End a call with an error's status and text."""
        self.finish(stream_id, error)

    def start(self, stream_id: int) -> None:
        """Open a stream of answers; the client hears of it at once, before the first message."""
        self._core.start(stream_id)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def send(self, stream_id: int, message: bytes, suffix: bytes = b"") -> None:
        """Send one message, `message` followed by `suffix`, on a started stream. Ask `room` before."""
        self._core.send(stream_id, message, suffix)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def finish(self, stream_id: int, error: DanubeError | None = None) -> None:
        """End a call after everything sent on it, with status OK or an error's."""
        self._closed_callbacks.pop(stream_id, None)
        self._drained_callbacks.pop(stream_id, None)
        if error is None:
            self._core.finish(stream_id)
        else:
            self._server.failures_total += 1
            self._core.finish(stream_id, error.status, error.text)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def cut(self, stream_id: int, error: DanubeError | None = None) -> None:
        """End a stream now: messages queued but not begun are taken back, for somebody else may get them."""
        self._core.cut(stream_id)
        self.finish(stream_id, error)

    def is_open(self, stream_id: int) -> bool:
        return self._transport is not None and self._core.is_open(stream_id)

    def revoke(self, stream_id: int, error: DanubeError) -> None:
        """End a stream over its service's head: to the service it is as if the client had gone."""
        self._call_closed(stream_id)
        self.cut(stream_id, error)

    def stop_reading(self) -> None:
        """Read nothing more, so that TCP slows the client down, until `go_on_reading`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def room(self, stream_id: int) -> int:
        """How many messages may be sent now. After a 0, `on_drained` tells when it is worth asking again."""
        return self._core.room(stream_id)

    def on_closed(self, stream_id: int, callback: Callable[[], None]) -> None:
        """Call back once if the call ends before `finish` or `reply`: cancelled, reset or connection lost."""
        if self._transport is None or self._closing_since or not self._core.is_open(stream_id):
            callback()
        else:
            self._closed_callbacks[stream_id] = callback

    def on_drained(self, stream_id: int, callback: Callable[[], None]) -> None:
        """Call back each time a stream that had no room has some again."""
        self._drained_callbacks[stream_id] = callback

    def extra_info(self, name: str) -> Any:
        """What the transport knows of the peer: `peername`, `peercert`, `ssl_object` …"""
        return None if self._transport is None else self._transport.get_extra_info(name)

    # For the server

    def shutdown(self) -> None:
        self._core.shutdown()
        self.flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def tick(self) -> None:
        """Let the core see the time; give up on a peer that does not let us say goodbye."""
        now = self.loop.time()
        if self._closing_since:
            if now - self._closing_since > _CLOSE_SECONDS:
                self.abort()
            return
        for event in self._core.tick(now):
            self._call_closed(event.stream_id)
        if self.gate is not None:
            self.gate.tick()
        self.flush()

    def flush(self) -> None:
        """Write everything the peer's windows and the transport allow."""
        self._dirty = False
        transport = self._transport
        if transport is None or self._closing_since or transport.is_closing():
            return
        if not self._paused:
            data = self._core.data_to_send()
            if data:
                transport.write(data)
            for stream_id in self._core.take_drained():
                self._call_drained(stream_id)
            if self._core.has_more_to_send and not self._dirty:
                self._mark_dirty()
        if self._core.closing:
            self._close(transport)

    # For the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._server.connections.opened(self)
        if self.gate is not None:
            self.gate.opened(transport)
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._reading = True
        routes = self._server.routes
        for event in self._core.receive(data, self.loop.time()):
            if isinstance(event, Call):
                self._server.calls_total += 1
                handler = routes.get(event.path)
                try:
                    if handler is None:
                        raise _unknown_method(event.path)
                    handler(self, event.stream_id, event.body, event.headers)
                except DanubeError as error:
                    self.fail(event.stream_id, error)
                except Exception:
                    self.fail_by_bug(event.stream_id, event.path)
            else:
                self._call_closed(event.stream_id)
        self._server.write_pass.before_write()
        self._reading = False
        self.flush()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True
        self._core.pause()

    def resume_writing(self) -> None:
        self._paused = False
        self._core.resume()
        if not self._dirty:
            self._mark_dirty()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._count_ends()
        self._server.connections.lost(self)
        if self.gate is not None:
            self.gate.lost()
        self._call_all_closed()
        if self._on_lost is not None:
            self._on_lost()
            self._on_lost = None

    def _mark_dirty(self) -> None:
        self._dirty = True
        self._server.write_pass.add(self)

    def _close(self, transport: asyncio.Transport) -> None:
        self._closing_since = self.loop.time()
        if self._paused:
            transport.abort()
        elif transport.can_write_eof():
            # Closing with unread bytes in the socket would reset it, and the peer might never see the
            # GOAWAY that tells it why: stop writing, and let the peer close.
            transport.write_eof()
        else:
            transport.close()
        self._call_all_closed()

    def _count_ends(self) -> None:
        self._server.resets_total += self._core.resets
        fault = self._core.fault
        if fault is not None:
            self._server.protocol_errors_total += 1
            log.info("connection closed error=%d reason=%s", fault.code, fault.text)

    def _call_closed(self, stream_id: int) -> None:
        self._drained_callbacks.pop(stream_id, None)
        callback = self._closed_callbacks.pop(stream_id, None)
        if callback is not None:
            _guarded(callback)

    def _call_all_closed(self) -> None:
        for stream_id in list(self._closed_callbacks):
            self._call_closed(stream_id)
        self._drained_callbacks = {}

    def _call_drained(self, stream_id: int) -> None:
        callback = self._drained_callbacks.get(stream_id)
        if callback is not None:
            _guarded(callback)

    def fail_by_bug(self, stream_id: int, path: str) -> None:
        """To be called while an exception is handled: it is logged here, the client learns no details."""
        log.exception("a handler failed path=%s", path)
        self.fail(stream_id, DanubeError("internal error: see the broker's log", ErrorCode.INTERNAL))


Handler = Callable[[GrpcConnection, int, bytes, Headers], None]


def asynchronous(answer: Callable[[bytes, Headers], Awaitable[bytes]]) -> Handler:
    """A handler from a coroutine function, for calls rare enough to deserve a task each."""

    async def run(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        try:
            connection.reply(stream_id, await answer(body, headers))
        except DanubeError as error:
            connection.fail(stream_id, error)
        except Exception:
            connection.fail_by_bug(stream_id, headers.path)

    def handle(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        task = connection.loop.create_task(run(connection, stream_id, body, headers))
        connection.on_closed(stream_id, task.cancel)  # type: ignore[arg-type]
        tasks = connection._server.connections.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    return handle


def _guarded(callback: Callable[[], None]) -> None:
    """Run a service's callback; its failure must not take the connection's other calls with it."""
    try:
        callback()
    except Exception:
        log.exception("a stream callback failed")


def _unknown_method(path: str) -> DanubeError:
    return DanubeError(f"unknown method {path}", ErrorCode.METHOD_UNKNOWN)
