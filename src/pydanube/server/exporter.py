"""The metrics port: a minimal HTTP server on the broker's own event loop.

`/health` answers `OK`, every other path the metrics. Counters are read on the loop, the text is rendered in a
thread: ten thousand series take tens of milliseconds, during which publishing must go on. Whatever a
visitor does is bounded: connections, request size and time.
"""

import asyncio
from typing import Final

import structlog

from pydanube.server.listeners import Address
from pydanube.server.metrics import Source, read, render

log = structlog.get_logger("pydanube.server")

CONNECTIONS_MAX: Final = 32
REQUEST_BYTES_MAX: Final = 16 * 1024
REQUEST_SECONDS_MAX: Final = 10.0
CLOSE_SECONDS_MAX: Final = 1.0
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    """Serves a source's metrics; a port that cannot be bound is logged and done without."""

    def __init__(self, address: Address, source: Source, *, broker_id: str) -> None:
        self._address = address
        self._source = source
        self._broker_id = broker_id
        self._server: asyncio.Server | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._rendering = asyncio.Lock()
        self.port = 0

    async def start(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._visit, self._address.host, self._address.port, limit=REQUEST_BYTES_MAX
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
        try:
            if len(self._visits) > CONNECTIONS_MAX:
                return
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(await self._answer(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the visitor went away, was too slow or sent something else: nothing to tell it
        except asyncio.CancelledError:
            pass  # the exporter stops; this task is nobody else's
        finally:
            await _close(writer)
            self._visits.discard(task)

    async def _answer(self, request: bytes) -> bytes:
        method, _, rest = request.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "text/plain", b"use GET\n")
        if path == b"/health":
            body, kind = b"OK", "text/plain"
        else:
            body, kind = await self._metrics(), _METRICS_TYPE
        return _response("200 OK", kind, body, with_body=method == b"GET")

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


def _response(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
