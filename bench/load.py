"""The load generators: h2load sends unary publishes, our Go reader takes streams."""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.danube_api import PublishRequest

SEND_MESSAGE = "/danube.ProducerService/SendMessage"
READER_SECONDS_MAX = 60


class LoadError(Exception):
    """A load generator broke off, or the server answered with errors: the figures are worthless."""


@dataclass(frozen=True, slots=True)
class Tally:
    messages: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """How the publishing clients behave."""

    connections: int
    in_flight: int

    def __str__(self) -> str:
        return f"{self.connections}×{self.in_flight}"


def publish(
    address: str, request: PublishRequest, shape: Shape, *, seconds: float = 0, count: int = 0
) -> Tally:
    """Send one framed gRPC request over and over, for some time or some number of messages.

    h2load does not read grpc-status, but an error carries no message: if every answer brought its
    `response_bytes`, every publish was accepted.
    """
    amount = ["-n", str(count)] if count else ["-D", f"{round(seconds * 1000)}ms"]
    command = ["h2load", *amount, "-t", "1", "-c", str(shape.connections), "-m", str(shape.in_flight)]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]  # codespell:ignore te
    url = f"http://{address}{SEND_MESSAGE}"
    done = subprocess.run(
        [*command, *headers, "-d", str(request.body), url], capture_output=True, text=True, check=False
    )
    finished = re.search(r"finished in ([\d.]+)(us|ms|s),", done.stdout)
    requests = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", done.stdout)
    traffic = re.search(r"\((\d+)\) data", done.stdout)
    if finished is None or requests is None or traffic is None:
        raise LoadError(f"h2load gave no result for {url}: {done.stdout[-500:]}{done.stderr[-500:]}")
    succeeded = int(requests[2])
    if succeeded == 0 or int(requests[3]) or int(traffic[1]) < succeeded * request.response_bytes:
        raise LoadError(f"{url} refused publishes: {requests[0]}, {traffic[1]} bytes of answers")
    unit = {"us": 1e-6, "ms": 1e-3, "s": 1.0}[finished[2]]
    return Tally(messages=succeeded, seconds=float(finished[1]) * unit)


class Reader:
    """A running stream reader; `finish` stops it, `wait` lets it reach its count."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def wait(self) -> Tally:
        return self._result(close_input=False)

    def finish(self) -> Tally:
        return self._result(close_input=True)

    def _result(self, *, close_input: bool) -> Tally:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if close_input:
            self._process.stdin.close()
        line = self._process.stdout.readline()
        if not line:
            raise LoadError("the stream reader ended without a result; its complaint is above")
        return Tally(**json.loads(line))


@contextmanager
def reading(
    consume: Path,
    address: str,
    consumer_ids: Sequence[int],
    *,
    subscription: str = "",
    ack_workers: int = 0,
    count: int | None = None,
    seconds: float = READER_SECONDS_MAX,
) -> Iterator[Reader]:
    """Open the consumers' streams; the body starts when the server has answered every one."""
    command = [str(consume), "-address", address, "-duration", f"{seconds}s"]
    command += ["-consumers", ",".join(map(str, consumer_ids)), "-ack-workers", str(ack_workers)]
    command += ["-subscription", subscription]
    if count is not None:
        command += ["-count", str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise LoadError("the stream reader could not open its streams; its complaint is above")
            yield Reader(process)
        finally:
            process.kill()
