"""A gRPC echo server from the driver alone: the target of h2spec and of the load measurements.

    python echo_server.py [--certificate FILE --key FILE]

Prints its port, serves until its standard input closes.
"""

import argparse
import asyncio
import gc
import sys
from pathlib import Path

import uvloop

from pydanube.protocol.http2 import Headers
from pydanube.security.certificates import ServerTls
from pydanube.security.settings import TlsFiles
from pydanube.server.process import SystemClock
from pydanube.wire.grpc_connection import GrpcConnection, GrpcServer
from pydanube.wire.listener import Listener, http2_door


def echo(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
    connection.reply(stream_id, body)


def accept(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
    connection.reply(stream_id, b"\x08\x01")


def count(connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
    """Stream as many messages of 1 KiB as the request's text says."""
    left = int(body)
    payload = bytes(1024)
    connection.start(stream_id)

    def fill() -> None:
        nonlocal left
        room = min(connection.room(stream_id), left)
        while room > 0:
            for _ in range(room):
                connection.send(stream_id, payload, b"suffix")
            left -= room
            room = min(connection.room(stream_id), left)
        if left == 0:
            connection.finish(stream_id)

    connection.on_drained(stream_id, fill)
    fill()


ROUTES = {"/test.Echo/Unary": echo, "/test.Echo/Accept": accept, "/test.Echo/Count": count}


async def serve(certificate: Path | None, key: Path | None) -> None:
    server = GrpcServer(ROUTES)
    listener = Listener([http2_door(server.new_connection)])
    tls = None
    if certificate and key:
        files = TlsFiles(cert_file=str(certificate), key_file=str(key))
        tls = ServerTls("tls", files, SystemClock()).context
    await listener.open("127.0.0.1", 0, tls=tls)
    print(listener.port, flush=True)
    gc.freeze()
    gc.set_threshold(50_000)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await listener.close()
    await server.connections.drain(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    options = parser.parse_args()
    uvloop.run(serve(options.certificate, options.key))
