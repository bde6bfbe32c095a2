"""Our client over an encrypted port."""

import asyncio
from pathlib import Path

import pytest
import trustme
from broker_harness.running_broker import StartBroker
from broker_harness.tokens import TRUSTED, root_token

from pydanube.client.grpc import CallFailed, Client, Consumer, Producer, Retries


async def test_messages_travel_encrypted_to_those_who_trust_the_certificate(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    broker = await start_broker(
        auth={
            "mode": "tls",
            "tls": {"cert_file": f"{tmp_path}/server.crt", "key_file": f"{tmp_path}/server.key"},
            **TRUSTED,
        }
    )
    url = f"https://{broker.address}"
    async with (
        Client(url, token=root_token(), ca_certificate=authority.cert_pem.bytes()) as client,
        Producer(client, "/default/tls", name="p", reliable=True) as producer,
    ):
        await producer.send(b"first")
        async with Consumer(client, "/default/tls", name="c", subscription="s") as consumer:
            await producer.send(b"secret")
            message = await asyncio.wait_for(consumer.receive(), 20)
            await consumer.ack(message)
    assert (message.payload, message.offset) == (b"secret", 1)

    async with Client(
        url, ca_certificate=trustme.CA().cert_pem.bytes(), retries=Retries(base_ms=1)
    ) as stranger:
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            async with Producer(stranger, "/default/tls", name="p2", reliable=True):
                pass
