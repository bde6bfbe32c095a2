"""What the port takes and refuses (data-plane spec, §1 and §2.4)."""

from pathlib import Path

import trustme
from broker_harness.running_broker import StartBroker
from broker_harness.tokens import TRUSTED, root_credentials
from broker_harness.wire_client import Status, WireClient, refused

from pydanube.broker.broker import MESSAGE_BYTES_MAX
from pydanube.protocol import danube_pb2 as pb

CLIENT_BYTES_MAX = 4 * 1024 * 1024
"""What every client decodes at most."""

SEND = "/danube.ProducerService/SendMessage"


async def test_the_largest_message_taken_can_be_received_by_every_client(client: WireClient) -> None:
    producer = await client.create_producer("/default/large")
    stream = await client.consume("/default/large")
    message = producer.message(b"")
    message.payload = b"x" * (MESSAGE_BYTES_MAX - message.ByteSize() - 5)
    while message.ByteSize() < MESSAGE_BYTES_MAX:
        message.payload += b"x"
    await producer.send_message(message)
    received = await stream.next()
    assert received.payload == message.payload
    assert received.ByteSize() < CLIENT_BYTES_MAX


async def test_a_message_that_could_not_be_received_is_not_taken(client: WireClient) -> None:
    producer = await client.create_producer("/default/large")
    stream = await client.consume("/default/large")
    for size in (CLIENT_BYTES_MAX - 200, MESSAGE_BYTES_MAX):
        with refused(Status.INVALID_ARGUMENT):
            await producer.send(b"x" * size)
    with refused(Status.INVALID_ARGUMENT):
        await producer.send(b"", attributes={"padding": "x" * MESSAGE_BYTES_MAX})
    await producer.send("fits")
    assert await stream.offsets(1) == [0]


async def test_a_request_beyond_the_wire_limit_is_out_of_range(client: WireClient) -> None:
    producer = await client.create_producer("/default/large")
    with refused(Status.OUT_OF_RANGE):
        await producer.send(b"x" * CLIENT_BYTES_MAX)
    with refused(Status.OUT_OF_RANGE):
        await client.call_raw(SEND, b"\x00" * (CLIENT_BYTES_MAX + 1))
    await producer.send("the connection goes on")


async def test_the_payload_policy_counts_payload_bytes_only(start_broker: StartBroker) -> None:
    client = (await start_broker(policies={"max_message_size": 100})).client()
    producer = await client.create_producer("/default/small")
    await producer.send(b"x" * 100, attributes={"note": "y" * 1_000})
    with refused(Status.INVALID_ARGUMENT, "max_message_size"):
        await producer.send(b"x" * 101)


async def test_zero_is_no_payload_limit(start_broker: StartBroker) -> None:
    client = (await start_broker(policies={"max_message_size": 0})).client()
    await (await client.create_producer("/default/large")).send(b"x" * 1_000_000)


async def test_unknown_services_and_methods_are_unimplemented(client: WireClient) -> None:
    for path in (
        "/danube.ProducerService/Close",
        "/danube.AuthService/Authenticate",
        "/grpc.health.v1.Health/Check",
    ):
        with refused(Status.UNIMPLEMENTED):
            await client.call_raw(path, b"")


async def test_fields_of_newer_clients_are_ignored_everywhere(client: WireClient) -> None:
    unknown = b"\xa2\x06\x03new\xa8\x06\x07"  # fields 100 and 101
    request = pb.ProducerRequest(
        request_id=1, producer_name="p", topic_name="/default/t", dispatch_strategy=1
    )
    answer = await client.call_raw(
        "/danube.ProducerService/CreateProducer", request.SerializeToString() + unknown
    )
    producer_id = pb.ProducerResponse.FromString(answer).producer_id
    subscribe = pb.ConsumerRequest(topic_name="/default/t", consumer_name="c", subscription="subscription")
    answer = await client.call_raw(
        "/danube.ConsumerService/Subscribe", subscribe.SerializeToString() + unknown
    )
    stream = await client.receive(pb.ConsumerResponse.FromString(answer).consumer_id)
    msg_id = pb.MsgID(producer_id=producer_id, topic_name="/default/t")
    message = pb.StreamMessage(msg_id=msg_id, payload=b"hello")
    await client.call_raw(SEND, message.SerializeToString() + unknown)
    received = await stream.next()
    assert (received.payload, received.msg_id.topic_offset) == (b"hello", 0)
    ack = pb.AckRequest(msg_id=received.msg_id, subscription_name="subscription")
    await client.call_raw("/danube.ConsumerService/Ack", ack.SerializeToString() + unknown)
    lookup = pb.TopicLookupRequest(topic="/default/t").SerializeToString() + unknown
    await client.call_raw("/danube.Discovery/TopicLookup", lookup)


async def test_a_port_with_tls_serves_those_who_trust_it(start_broker: StartBroker, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    cert_file, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert_file.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    key_file.write_bytes(certificate.private_key_pem.bytes())
    tls = {"cert_file": str(cert_file), "key_file": str(key_file)}
    broker = await start_broker(auth={"mode": "tls", "tls": tls, **TRUSTED})
    client = broker.client(root_credentials(authority.cert_pem.bytes()))
    producer = await client.create_producer("/default/secret")
    stream = await client.consume("/default/secret")
    await producer.send("hello")
    assert await stream.payloads(1) == ["hello"]
    assert (await client.lookup("/default/secret")).connect_url.startswith("https://")
    with refused(Status.UNAVAILABLE):
        await broker.client().lookup("/default/secret")
