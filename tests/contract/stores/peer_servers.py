"""Real object stores on loopback, started by the tests that need them.

SeaweedFS comes as a wheel with its server in it, so every machine with pip has a real S3 store. Azurite needs npm:
it is used only where DANUBE_STORE_PEERS names it.
"""

import base64
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException
from pathlib import Path

WRITER = ("writer-key", "writer-secret-7d1f")
READER = ("reader-key", "reader-secret-93ac")
BUCKET = "history"
OPEN_BUCKET = "open-history"
"""Anybody may read and write here."""

AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Printed in Azurite's manual: every Azurite has it."""

_START_SECONDS = 60


@dataclass
class PeerServer:
    port: int
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        # Nobody reads again what it holds, and asked to end it waits for connections that clients keep.
        self.process.kill()
        self.process.wait()


def start_seaweedfs(folder: Path) -> PeerServer:
    identities = [
        {"name": "writer", "credentials": [_key(WRITER)], "actions": ["Admin", "Read", "Write", "List"]},
        {"name": "reader", "credentials": [_key(READER)], "actions": ["Read", "List"]},
        {"name": "anonymous", "actions": [f"{do}:{OPEN_BUCKET}" for do in ("Read", "Write", "List")]},
    ]
    config = folder / "identities.json"
    config.write_text(json.dumps({"identities": identities}))
    names = ("master", "volume", "filer", "s3", "admin")
    ports = _free_ports(2 * len(names))
    options = [f"-{name}.port={ports[2 * i]}" for i, name in enumerate(names)]
    options += [f"-{name}.port.grpc={ports[2 * i + 1]}" for i, name in enumerate(names)]
    options += [
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.autoCreateBucket=false",
        f"-s3.localSocket={folder / 's3.sock'}",
        f"-s3.config={config}",
        f"-bucket={BUCKET},{OPEN_BUCKET}",
    ]
    weed = Path(sys.executable).with_name("weed")
    server = _started([str(weed), "mini", *options], folder, ports[2 * names.index("s3")])
    _wait_for(server, f"/{OPEN_BUCKET}?list-type=2", 200)
    # Refused, not unknown: only then is the bucket there.
    _wait_for(server, f"/{BUCKET}?list-type=2", 403)
    return server


def start_azurite(folder: Path) -> PeerServer:
    program = shutil.which("azurite-blob")
    assert program is not None, "DANUBE_STORE_PEERS asks for azurite, but azurite-blob is not on the path"
    (port,) = _free_ports(1)
    options = ["--disableTelemetry", "--skipApiVersionCheck", "--silent", "--blobHost", "127.0.0.1"]
    server = _started([program, *options, "--blobPort", str(port), "--location", str(folder)], folder, port)
    _wait_for(server, f"/{AZURITE_ACCOUNT}?comp=list", 403)
    return server


def _key(pair: tuple[str, str]) -> dict[str, str]:
    return {"accessKey": pair[0], "secretKey": pair[1]}


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _started(command: list[str], folder: Path, port: int) -> PeerServer:
    with (folder / "server.log").open("wb") as log:
        return PeerServer(port, subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))


def _wait_for(server: PeerServer, path: str, status: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while _status_of(server.port, path) != status:
        if server.process.poll() is not None or time.monotonic() > deadline:
            server.stop()
            raise AssertionError(f"{server.process.args!r} does not answer {status} to {path}")
        time.sleep(0.05)


def _status_of(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()


def make_azure_container(server: PeerServer, name: str) -> None:
    """Signed by hand: the library that stores objects does not make containers."""
    stamp = formatdate(usegmt=True)
    headers = {"x-ms-date": stamp, "x-ms-version": "2021-08-06", "Content-Length": "0"}
    canonical = f"x-ms-date:{stamp}\nx-ms-version:2021-08-06\n/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/{name}\nrestype:container"
    to_sign = "PUT" + "\n" * 12 + canonical
    digest = hmac.new(base64.b64decode(AZURITE_KEY), to_sign.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURITE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("PUT", f"/{AZURITE_ACCOUNT}/{name}?restype=container", headers=headers)
        assert connection.getresponse().status == 201
    finally:
        connection.close()
