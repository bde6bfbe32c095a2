"""Lives of one broker: each is started to end at some step, all have the same data and the same port."""

import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import grpc.aio
import yaml

from pydanube.protocol import storage_admin_pb2 as pb

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 60.0
KILLED = -signal.SIGKILL


class MortalProcess:
    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = folder / "data"
        ports = _free_ports()
        self.address, self.admin = (f"127.0.0.1:{port}" for port in ports)
        self._log = folder / "broker.log"
        self._config = folder / "danube.yml"
        self._config.write_text(yaml.safe_dump(settings))
        self._process: asyncio.subprocess.Process | None = None

    async def start(
        self, *, die_at: str = "", turn: int = 1, is_armed: bool = False, later_ms: int = 0
    ) -> bool:
        """Whether it serves: if it is armed from the start on, it may have come to its end before."""
        options = ["--die-at", die_at, "--turn", str(turn), "--later-ms", str(later_ms)]
        options += ["--armed"] if is_armed else []
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.fault.storage.mortal_broker", str(self._config), str(self.data_dir),
                "--address", self.address, "--admin", self.admin, *options,
                cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), SECONDS_MAX)
        if line == b"ready\n":
            return True
        code = await asyncio.wait_for(self._process.wait(), SECONDS_MAX)
        assert is_armed, f"the broker did not start:\n{self.log_tail()}"
        assert code == KILLED, f"exit code {code} instead of a kill:\n{self.log_tail()}"
        return False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def arm(self) -> None:
        if self.is_running and self._process is not None:
            self._process.send_signal(signal.SIGUSR1)

    async def killed(self) -> None:
        """Wait for the end it was given."""
        assert self._process is not None
        code = await asyncio.wait_for(self._process.wait(), SECONDS_MAX)
        assert code == KILLED, f"exit code {code} instead of a kill:\n{self.log_tail()}"

    async def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        code = await asyncio.wait_for(self._process.wait(), SECONDS_MAX)
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.log_tail()}"

    async def kill(self) -> None:
        """Whatever it does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def seal(self, topic: str) -> pb.SealResponse:
        answer = await self.ask("Seal", pb.SealRequest(topic=topic))
        return pb.SealResponse.FromString(answer)

    async def segments(self, topic: str) -> list[pb.Segment]:
        answer = await self.ask("ListSegments", pb.ListSegmentsRequest(topic=topic))
        listed = pb.ListSegmentsResponse.FromString(answer)
        assert not listed.has_more
        return list(listed.segments)

    async def describe(self, topic: str) -> pb.DescribeStorageResponse:
        answer = await self.ask("DescribeStorage", pb.DescribeStorageRequest(topic=topic))
        return pb.DescribeStorageResponse.FromString(answer)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    async def ask(self, method: str, request: Any) -> bytes:
        """Call a method of the storage service of the admin port."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(self.admin, options) as channel:
            call = channel.unary_unary(f"/pydanube.storage.v1.StorageAdmin/{method}")
            answer: bytes = await call(request.SerializeToString(), timeout=SECONDS_MAX)
            return answer


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
