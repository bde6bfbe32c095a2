"""A proxy between a store and its server that does to requests what networks and busy servers do."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

_HEAD_MAX = 1 << 16
_PIECE = 1 << 16


@dataclass(frozen=True)
class Request:
    method: str
    target: str


Matching = Callable[[Request], bool]


@dataclass
class Fault:
    """What happens to the next `times` requests that match."""

    kind: str
    """answer (with a status), reset, silence, truncate (half of the answer's body), lose_answer (or turn it into a status), hold."""
    times: int
    matching: Matching
    status: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has met it."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """What a held request waits for."""


def any_request(_: Request) -> bool:
    return True


class FaultProxy:
    """One request a connection: enough to be right, and every fault hits exactly one request."""

    def __init__(self, upstream_port: int, rewrite: Callable[[bytes], bytes] = lambda head: head) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._upstream_port = upstream_port
        self._rewrite = rewrite
        self._faults: list[Fault] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def plan(self, kind: str, *, times: int = 1, matching: Matching = any_request, status: int = 0) -> Fault:
        fault = Fault(kind, times, matching, status)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        for fault in self._faults:
            fault.release.set()
        self._faults.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Either side may go away, which is what this proxy is for.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._exchange(reader, writer)
        finally:
            await _closed(writer)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
        request = Request(method, target)
        self.requests.append(request)
        body = await reader.readexactly(_content_length(head))
        fault = self._next_fault(request)
        kind = fault.kind if fault else ""
        if fault is not None:
            fault.met.set()
        if kind == "reset":
            _reset_on_close(writer)
            return
        if kind == "silence":
            await reader.read()  # Until the client gives up.
            return
        if kind == "hold" and fault is not None:
            await fault.release.wait()
        if kind == "answer" and fault is not None:
            writer.write(_answer_of(fault.status))
            return
        await self._forward(head, body, writer, kind, fault.status if fault else 0)

    async def _forward(
        self, head: bytes, body: bytes, writer: asyncio.StreamWriter, kind: str, status: int
    ) -> None:
        upstream, to_upstream = await asyncio.open_connection(
            "127.0.0.1", self._upstream_port, limit=_HEAD_MAX
        )
        try:
            to_upstream.write(self._rewrite(head)[:-2] + b"Connection: close\r\n\r\n" + body)
            answer = await upstream.readuntil(b"\r\n\r\n")
            if kind == "lose_answer" and status:
                writer.write(_answer_of(status))
                return
            if kind == "lose_answer":
                _reset_on_close(writer)
                return
            writer.write(answer)
            left = _content_length(answer) // 2 if kind == "truncate" else -1
            while left and (piece := await upstream.read(_PIECE if left < 0 else min(_PIECE, left))):
                writer.write(piece)
                await writer.drain()
                left -= len(piece) if left > 0 else 0
        finally:
            await _closed(to_upstream)

    def _next_fault(self, request: Request) -> Fault | None:
        for fault in self._faults:
            if fault.times and fault.matching(request):
                fault.times -= 1
                return fault
        return None


def _answer_of(status: int) -> bytes:
    return f"HTTP/1.1 {status} Planned\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
