"""The metrics port: a minimal HTTP server on the broker's own event loop.

Probes of health are answered `OK` whoever asks, every other path the metrics, behind the gate if there is one. Counters
are read on the loop, the text is rendered in a thread: ten thousand series take tens of milliseconds, during which
publishing must go on. Whatever a visitor does is bounded: connections, request size and time.
"""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ssl import SSLContext
from typing import Final

import structlog

from pydanube.kernel.errors import DanubeError
from pydanube.server.listeners import Address
from pydanube.server.metrics import Source, read, render
from pydanube.wire.http_gate import METRICS, HttpGate, refusal
from pydanube.wire.http_requests import parse_head

log = structlog.get_logger("pydanube.server")

CONNECTIONS_MAX: Final = 32
REQUEST_BYTES_MAX: Final = 16 * 1024
REQUEST_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 1.0
PROBES: Final = frozenset({"/health", "/healthz", "/readyz"})
"""Asked by whoever restarts brokers and leads clients to them. The port is open while the broker serves."""
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

NewGate = Callable[[asyncio.BaseTransport], HttpGate]


class Exporter:
    """Serves a source's metrics; a port that cannot be bound is logged and done without."""

    def __init__(
        self,
        address: Address,
        source: Source,
        *,
        broker_id: str,
        tls: SSLContext | None = None,
        new_gate: NewGate | None = None,
    ) -> None:
        self._address = address
        self._source = source
        self._broker_id = broker_id
        self._tls = tls
        self._new_gate = new_gate
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._rendering = asyncio.Lock()
        self.port = 0

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._visit,
                self._address.host,
                self._address.port,
                limit=REQUEST_BYTES_MAX,
                ssl=self._tls,
                ssl_handshake_timeout=REQUEST_SECONDS_MAX if self._tls else None,
                ssl_shutdown_timeout=CLOSE_SECONDS_MAX if self._tls else None,
            )
        except OSError as error:
            log.warning(
                "metrics are off: the port cannot be bound",
                address=str(self._address),
                reason=error.strerror or str(error),
            )
            return
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics ready", address=str(Address(self._address.host, self.port)))

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        await self._server.wait_closed()

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._visits.add(task)
        gate = None if self._new_gate is None else self._new_gate(writer.transport)
        try:
            if len(self._visits) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n"), gate))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the visitor went away, was too slow or sent something else: nothing to tell it
        except asyncio.CancelledError:
            pass  # the exporter stops; this task is nobody else's
        finally:
            if gate is not None:
                gate.lost()
            await _close(writer)
            self._visits.discard(task)

    async def _answer(self, head: bytes, gate: HttpGate | None) -> bytes:
        try:
            method, path, fields = parse_head(head)
            if method not in ("GET", "HEAD"):
                return _response(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"}, b"use GET\n")
            if path in PROBES:
                body, kind = b"OK", "text/plain"
            else:
                if gate is not None:
                    gate.check(fields, METRICS)
                body, kind = await self._metrics(), _METRICS_TYPE
        except DanubeError as error:
            return _response(*refusal(error))
        return _response(HTTPStatus.OK, {"Content-Type": kind}, body, with_body=method == "GET")

    async def _metrics(self) -> bytes:
        # One rendering at a time: impatient scrapers must not take all threads.
        async with self._rendering:
            samples = read(self._source)
            return await asyncio.to_thread(render, samples, broker_id=self._broker_id)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close politely, or at once if the visitor does not take what is left."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def _response(status: HTTPStatus, fields: Mapping[str, str], body: bytes, *, with_body: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {fields[name]}" for name in fields)]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + (body if with_body else b"")
