"""A broker as a process of its own, for what must not be measured together with its client."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from broker_harness.native_wire import NativeClient
from broker_harness.wire_client import PATIENCE_SECONDS, WireClient


class BrokerProcess:
    """Started by the `danube` command; ends with the `async with` block."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._clients: list[WireClient | NativeClient] = []
        self.address = ""

    async def __aenter__(self) -> "BrokerProcess":
        file = self._folder / "danube.yml"
        file.write_text(yaml.safe_dump(self._settings))
        danube = Path(sys.executable).with_name("danube")
        addresses = "--broker-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--prom-exporter", "off"
        self._process = await asyncio.create_subprocess_exec(
            *(danube, "broker", "--config-file", file, "--data-dir", self._folder / "data", *addresses),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            self.address = await asyncio.wait_for(self._address(), 3 * PATIENCE_SECONDS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    def client(self) -> WireClient:
        client = WireClient(self.address)
        self._clients.append(client)
        return client

    async def native(self) -> NativeClient:
        """A native connection that has been welcomed."""
        client = await NativeClient.connect(self.address)
        self._clients.append(client)
        return client

    def resident_bytes(self) -> int:
        """Memory the process has at the moment."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    async def _address(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        said = b""
        async for line in self._process.stdout:
            said += line
            if b"broker ready" in line:
                found = re.search(rb"127\.0\.0\.1:\d+", line)
                assert found is not None, line
                return found[0].decode()
        raise AssertionError(f"the broker ended before it was ready: {said.decode()}")
