"""gRPC callers of a secured broker: who they are, and when what they may do ends."""

import asyncio
from typing import Any

import grpc
import pytest
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import PATIENCE_SECONDS, Status, refused

from pydanube.protocol import danube_pb2 as pb

SEND = "/danube.ProducerService/SendMessage"
TOPIC = "/default/orders"
HOUR_MS = 3_600_000
LEEWAY_MS = 60_000


async def test_a_caller_without_a_token_is_asked_who_they_are(secured: RunningBroker, realm: Any) -> None:
    client = secured.client(realm.credentials())
    with refused(Status.UNAUTHENTICATED, "send a token"):
        await client.lookup(TOPIC)
    with refused(Status.UNAUTHENTICATED):
        await client.health(0, 1)


async def test_a_token_of_somebody_else_s_key_is_refused(secured: RunningBroker, realm: Any) -> None:
    header, claims, _ = realm.token("admin").split(".")
    forged = ".".join((header, claims, realm.token("ada").split(".")[2]))
    with refused(Status.UNAUTHENTICATED, "signature"):
        await secured.client(realm.credentials(forged)).lookup(TOPIC)


async def test_the_super_admin_may_do_everything(secured: RunningBroker, realm: Any) -> None:
    client = secured.client(realm.credentials(realm.token("admin")))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("hello")
    assert await stream.take_acked(1) == ["hello"]


async def test_producing_needs_no_more_than_produce_and_consuming_no_more_than_consume(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    await admin.role("writer", "Produce")
    await admin.role("reader", "Consume")
    await admin.bind("ada", ["writer"], "topic", TOPIC)
    await admin.bind("bob", ["reader"], "topic", TOPIC)
    ada = secured.client(realm.credentials(realm.token("ada")))
    bob = secured.client(realm.credentials(realm.token("bob")))
    producer = await ada.create_producer(TOPIC)
    stream = await bob.consume(TOPIC)
    await producer.send_all("one", "two")
    first = await stream.next()
    await stream.nack(first, delay_ms=0)
    assert (await stream.next()).payload in (b"one", b"two")
    with refused(Status.PERMISSION_DENIED, "Consume"):
        await ada.subscribe(TOPIC, "mine")
    with refused(Status.PERMISSION_DENIED, "Produce"):
        await bob.create_producer(TOPIC)
    with refused(Status.PERMISSION_DENIED, "Consume"):
        await ada.ack(first)
    with refused(Status.PERMISSION_DENIED, "Produce"):
        await bob.call(SEND, producer.message("forged"))


async def test_what_is_checked_is_what_is_published(secured: RunningBroker, realm: Any, admin: Any) -> None:
    """A message that names a topic twice counts for the last, as protobuf has it."""
    await admin.role("writer", "Produce")
    await admin.bind("ada", ["writer"], "topic", TOPIC)
    root = secured.client(realm.credentials(realm.token("admin")))
    ada = secured.client(realm.credentials(realm.token("ada")))
    hers, foreign = await ada.create_producer(TOPIC), await root.create_producer("/default/payroll")
    await hers.send("fine")
    twice = (
        hers.message("x").SerializeToString()
        + pb.StreamMessage(
            msg_id=pb.MsgID(producer_id=foreign.id, topic_name=foreign.topic)
        ).SerializeToString()
    )
    with refused(Status.PERMISSION_DENIED, "/default/payroll"):
        await ada.call_raw(SEND, twice)


async def test_a_role_taken_away_ends_publishing_at_once_and_streams_soon(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    await admin.role("both", "Produce", "Consume")
    await admin.bind("ada", ["both"], "namespace", "default")
    client = secured.client(realm.credentials(realm.token("ada")))
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    stream = await consumer.open()
    await producer.send("seen")
    message = await stream.next()
    await admin.unbind("ada", "namespace", "default")
    with refused(Status.PERMISSION_DENIED):
        await producer.send("late")
    assert await stream.ended() is Status.PERMISSION_DENIED
    with refused(Status.PERMISSION_DENIED):
        await stream.ack(message)
    with refused(Status.PERMISSION_DENIED):
        await consumer.open()
    # What was not acknowledged is for whoever may have it.
    await admin.bind("ada", ["both"], "topic", TOPIC)
    assert (await (await consumer.open()).next()).payload == b"seen"


async def test_an_expired_token_ends_its_streams(secured: RunningBroker, realm: Any) -> None:
    client = secured.client(realm.credentials(realm.token("admin", seconds=3600)))
    await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    secured.clock.advance(HOUR_MS - 5_000)
    await client.lookup(TOPIC)
    secured.clock.advance(LEEWAY_MS + 5_000)
    assert await stream.ended() is Status.UNAUTHENTICATED
    with refused(Status.UNAUTHENTICATED, "expired"):
        await client.lookup(TOPIC)


async def test_a_broker_is_who_shows_a_broker_s_certificate_and_says_so(
    secured: RunningBroker, realm: Any
) -> None:
    async def roles(credentials: grpc.ChannelCredentials, *metadata: tuple[str, str]) -> grpc.StatusCode:
        async with grpc.aio.secure_channel(secured.admin_address, credentials) as channel:
            call = channel.unary_unary("/danube_admin.SecurityAdmin/ListRoles")(b"", metadata=metadata)
            return await call.code()

    header = ("x-danube-internal-broker", "broker/7")
    ca = realm.files.ca.read_bytes()
    broker = grpc.ssl_channel_credentials(
        ca, realm.files.server_key.read_bytes(), realm.files.server.read_bytes()
    )
    assert await roles(broker, header) is Status.OK
    assert await roles(broker) is Status.UNAUTHENTICATED
    assert await roles(realm.credentials(), header) is Status.UNAUTHENTICATED
    assert await roles(realm.credentials(certificate=True), header) is Status.UNAUTHENTICATED
    stranger = ("authorization", f"Bearer {realm.token('stranger')}")
    assert await roles(realm.credentials(), header, stranger) is Status.PERMISSION_DENIED


async def test_in_mode_mtls_a_certificate_is_enough_and_required(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth("mtls"))
    ada = broker.client(realm.credentials(certificate=True))
    await ada.create_producer(TOPIC)
    # A token that comes along is what counts.
    with refused(Status.PERMISSION_DENIED):
        await broker.client(realm.credentials(realm.token("stranger"), certificate=True)).lookup(TOPIC)
    with refused(Status.UNAVAILABLE):
        await broker.client(realm.credentials(realm.token("admin"))).lookup(TOPIC)
    async with grpc.aio.secure_channel(broker.admin_address, realm.credentials(certificate=True)) as channel:
        await channel.unary_unary("/danube_admin.SecurityAdmin/ListRoles")(b"", timeout=PATIENCE_SECONDS)


async def test_without_admin_tls_the_admin_port_is_plain_and_wants_tokens_all_the_same(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth())
    async with grpc.aio.insecure_channel(broker.admin_address) as channel:
        call = channel.unary_unary("/danube_admin.SecurityAdmin/ListRoles")
        with refused(Status.UNAUTHENTICATED):
            await call(b"", timeout=PATIENCE_SECONDS)
        token = ("authorization", f"Bearer {realm.token('admin')}")
        assert await call(b"", metadata=[token], timeout=PATIENCE_SECONDS) == b""


async def test_a_token_without_keys_to_check_it_is_a_matter_of_configuration(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth() | {"jwt": None})
    with refused(Status.FAILED_PRECONDITION, "auth.jwt"):
        await broker.client(realm.credentials(realm.token("admin"))).lookup(TOPIC)


async def test_limits_of_a_principal(start_broker: StartBroker, realm: Any) -> None:
    limits = {"connections_max": 1, "requests_per_second": 5}
    broker = await start_broker(auth=realm.auth(principal_limits={"ada": limits}))
    ada, root = realm.credentials(realm.token("ada")), realm.credentials(realm.token("admin"))
    first = broker.client(ada)
    with refused(Status.PERMISSION_DENIED):
        await first.lookup(TOPIC)
    with refused(Status.RESOURCE_EXHAUSTED, "1 connections"):
        await broker.client(ada).lookup(TOPIC)
    codes = set()
    for _ in range(10):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await first.lookup(TOPIC)
        codes.add(caught.value.code())
    assert Status.RESOURCE_EXHAUSTED in codes
    for _ in range(10):
        assert await broker.client(root).partitions(TOPIC) == []


async def test_publishes_beyond_the_limit_wait_and_keep_their_order(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"publish_bytes_per_second": 20_000}))
    client = broker.client(realm.credentials(realm.token("admin")))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.gather(*(producer.send(f"{number:04}" + "x" * 5_000) for number in range(8)))
    # 40,000 bytes of which a second's worth may come at once, the last of those on credit.
    assert loop.time() - begun > 0.5
    assert len(await stream.take_acked(8)) == 8


async def test_decisions_are_counted_by_scope_and_permission(secured: RunningBroker, realm: Any) -> None:
    client = secured.client(realm.credentials(realm.token("stranger")))
    for _ in range(3):
        with refused(Status.PERMISSION_DENIED):
            await client.lookup(TOPIC)
    scraper = realm.context(), realm.token("admin")
    assert await secured.metric("danube_authz_deny_total", *scraper) == 3
    await secured.client(realm.credentials(realm.token("admin"))).create_producer(TOPIC)
    assert await secured.metric("danube_authz_allow_total", *scraper) == 1 + 2, "and both readings of metrics"
