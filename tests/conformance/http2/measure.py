"""What a request costs: CPU time of the core alone, and of a whole server under h2load.

    python measure.py            core only: microseconds per unary request and per streamed message
    python measure.py --server   the echo server under h2load (4 connections x 16 in flight) and a streaming client

Compare numbers of one run only; build with PYDANUBE_COMPILE=1 for the compiled ones.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio
from hpack import Encoder

import pydanube.protocol.grpc as grpc_core
from pydanube.protocol.grpc import GrpcServerConnection
from pydanube.protocol.http2 import Http2Limits
from pydanube.protocol.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTING_INITIAL_WINDOW_SIZE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

REQUEST_HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/danube.ProducerService/SendMessage"),
    (":authority", "127.0.0.1:6650"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-go/1.70.0"),
    ("te", "trailers"),
]
BODY = (1024).to_bytes(5, "big") + bytes(1024)
WIDE_OPEN = SETTING_INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (2**31 - 1).to_bytes(4, "big")


def measure(work: Callable[[], int], rounds: int = 7) -> float:
    """Best CPU microseconds per item over some rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        count = work()
        best = min(best, (time.process_time() - started) / count * 1e6)
    return best


def opened() -> GrpcServerConnection:
    core = GrpcServerConnection(Http2Limits())
    core.receive(PREFACE + frame(SETTINGS, 0, 0, WIDE_OPEN), 0.0)
    core.receive(frame(WINDOW_UPDATE, 0, 0, (2**31 - 1 - 65535).to_bytes(4, "big")), 0.0)
    core.data_to_send()
    return core


def unary_work(per_read: int, *, timeouts: bool) -> Callable[[], int]:
    encoder = Encoder()
    reads: list[bytes] = []
    stream_id = 1
    for number in range(20_000 // per_read):
        pieces = []
        for index in range(per_read):
            extra = []
            if timeouts:
                extra = [("grpc-timeout", f"{4_000_000 + number * per_read + index}u")]
            block = encoder.encode(REQUEST_HEADERS)
            if extra:
                block += b"\x00\x0cgrpc-timeout" + bytes([len(extra[0][1])]) + extra[0][1].encode()
            pieces.append(frame(HEADERS, END_HEADERS, stream_id, block))
            pieces.append(frame(DATA, END_STREAM, stream_id, BODY))
            stream_id += 2
        reads.append(b"".join(pieces))

    def work() -> int:
        core = opened()
        count = 0
        for read in reads:
            for event in core.receive(read, 1.0):
                core.reply(event.stream_id, b"\x08\x01")
                count += 1
            core.data_to_send()
        return count

    return work


def stream_work(per_write: int) -> Callable[[], int]:
    payload = bytes(1024)
    request = frame(HEADERS, END_HEADERS, 1, Encoder().encode(REQUEST_HEADERS)) + frame(
        DATA, END_STREAM, 1, BODY
    )

    def work() -> int:
        core = opened()
        core.receive(request, 1.0)
        core.start(1)
        for _ in range(20_000 // per_write):
            core.room(1)
            for _ in range(per_write):
                core.send(1, payload, b"suffix")
            core.data_to_send()
        return 20_000 // per_write * per_write

    return work


def measure_core() -> None:
    for per_read in (1, 16, 64):
        plain = measure(unary_work(per_read, timeouts=False))
        varied = measure(unary_work(per_read, timeouts=True))
        print(
            f"unary, {per_read:2d} per read: {plain:5.2f} us   with changing grpc-timeout: {varied:5.2f} us"
        )
    for per_write in (16, 128):
        print(f"stream, {per_write:3d} per write: {measure(stream_work(per_write)):5.2f} us")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all threads, in nanosecond precision."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9


async def read_stream(port: int, count: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        received = 0
        async for _ in channel.unary_stream("/test.Echo/Count")(b"%d" % count):
            received += 1
        assert received == count


def measure_server() -> None:
    script = Path(__file__).parent / "echo_server.py"
    with (
        subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ,
        ) as server,
        tempfile.NamedTemporaryFile() as body,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        body.write(BODY)
        body.flush()
        calls = 100_000
        for connections, in_flight in ((4, 16), (4, 64), (64, 1)):
            costs = []
            for _ in range(5):
                before = cpu_seconds(server.pid)
                subprocess.run(
                    [
                        "h2load",
                        "-n",
                        str(calls),
                        "-c",
                        str(connections),
                        "-m",
                        str(in_flight),
                        "-d",
                        body.name,
                        "-H",
                        "content-type: application/grpc",
                        "-H",
                        "te: trailers",
                        f"http://127.0.0.1:{port}/test.Echo/Accept",
                    ],
                    check=True,
                    capture_output=True,
                )
                costs.append((cpu_seconds(server.pid) - before) / calls * 1e6)
            print(f"unary, {connections} x {in_flight}: {min(costs):5.2f} us CPU (best of 5)")
        costs = []
        for _ in range(3):
            before = cpu_seconds(server.pid)
            asyncio.run(read_stream(port, 20_000))
            costs.append((cpu_seconds(server.pid) - before) / 20_000 * 1e6)
        print(f"stream of 1 KiB: {min(costs):5.2f} us CPU (best of 3, grpcio client)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", action="store_true")
    options = parser.parse_args()
    print("compiled" if grpc_core.__file__.endswith(".so") else "interpreted")
    if options.server:
        measure_server()
    else:
        measure_core()
