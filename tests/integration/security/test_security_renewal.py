"""A certificate renewed under a running broker."""

import shutil
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_harness.running_broker import StartBroker
from broker_harness.wire_client import eventually

from pydanube.security.quickstart import quickstart
from pydanube.server import security

TOPIC = "/default/t"


async def test_new_connections_get_the_new_certificate_and_open_ones_stay(
    start_broker: StartBroker, realm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "RELOAD_SECONDS", 0.02)
    cert, key = tmp_path / "server.pem", tmp_path / "server-key.pem"
    shutil.copy(realm.files.server, cert)
    shutil.copy(realm.files.server_key, key)
    tls = {"cert_file": str(cert), "key_file": str(key), "ca_file": str(realm.files.ca)}
    broker = await start_broker(auth=realm.auth(tls=tls))
    token = realm.token("admin")
    before = broker.client(realm.credentials(token))
    await before.create_producer(TOPIC)

    other = quickstart(tmp_path / "other", now_ms=time.time_ns() // 1_000_000)
    shutil.copy(other.server_key, key)  # for a moment the two do not fit: nobody notices
    shutil.copy(other.server, cert)
    trust = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(other.ca.read_bytes()), grpc.access_token_call_credentials(token)
    )

    async def serves_the_new_one() -> bool:
        try:
            await broker.client(trust).lookup(TOPIC)
        except grpc.aio.AioRpcError:
            return False
        return True

    await eventually(serves_the_new_one)
    await before.lookup(TOPIC)
