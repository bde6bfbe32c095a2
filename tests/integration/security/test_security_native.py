"""Native clients of a secured broker: greeted by token or certificate, checked at every frame that asks for something."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from broker_harness.native_wire import NativeClient, NativeRefusal, refused_with
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import PATIENCE_SECONDS

from pydanube.client import TLS, Retries, connect
from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.security.permissions import Permission

TOPIC = "/default/orders"
DENIED = ErrorCode.PERMISSION_DENIED
HOUR_MS = 3_600_000
LEEWAY_MS = 60_000


async def native(broker: RunningBroker, realm: Any, name: str) -> NativeClient:
    return await broker.native(realm.context(), realm.token(name))


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, ErrorCode.CREDENTIALS_MISSING),
        ("", ErrorCode.CREDENTIALS_MISSING),
        ("a.b.c", ErrorCode.TOKEN_INVALID),
        ("\u00fc" * 10, ErrorCode.TOKEN_INVALID),
    ],
)
async def test_a_hello_that_does_not_say_who_is_calling_is_the_last(
    secured: RunningBroker, realm: Any, token: str | None, code: ErrorCode
) -> None:
    client = await secured.dial(realm.context())
    client.write(frames.PREFACE)
    client.send(frames.HELLO, pb.Hello(version_min=1, version_max=1, token=token), request=1)
    client.send(frames.LOOKUP, pb.Lookup(topic=TOPIC), request=2)
    assert await client.closed_with() is code
    assert [frame.kind for frame in client.received] == [frames.ERROR]


CALLS: dict[Permission, Callable[[NativeClient], Awaitable[Any]]] = {
    Permission.LOOKUP: lambda client: client.look_up(TOPIC),
    Permission.PRODUCE: lambda client: client.open_producer(TOPIC),
    Permission.CONSUME: lambda client: client.subscribe(TOPIC, f"s{id(client)}"),
    Permission.MANAGE_TOPIC: lambda client: client.open_reader(TOPIC),
}
"""A reader needs Consume: it stands here to be denied to those who have another permission."""


async def test_every_request_by_callers_with_each_permission_in_each_scope(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    await (await native(secured, realm, "admin")).open_producer(TOPIC)
    scopes = {"cluster": "", "namespace": "default", "topic": TOPIC}
    for permission in CALLS:
        await admin.role(f"only-{permission}", permission)
        for scope, resource in scopes.items():
            await admin.bind(f"{permission}-{scope}", [f"only-{permission}"], scope, resource)
        await admin.bind(f"{permission}-off", [f"only-{permission}"], "topic", TOPIC + "s")
    for permission in CALLS:
        for scope in (*scopes, "off"):
            client = await native(secured, realm, f"{permission}-{scope}")
            for needed, call in CALLS.items():
                wanted = Permission.CONSUME if needed is Permission.MANAGE_TOPIC else needed
                if permission is wanted and scope != "off":
                    await call(client)
                else:
                    with refused_with(DENIED, str(wanted)):
                        await call(client)


async def test_a_denied_caller_does_not_learn_what_else_is_wrong(secured: RunningBroker, realm: Any) -> None:
    client = await native(secured, realm, "stranger")
    for kind in (frames.LOOKUP, frames.OPEN_PRODUCER, frames.SUBSCRIBE, frames.OPEN_READER):
        with refused_with(DENIED):
            await client.request(kind, b"\xff\xff", channel=9)
    assert await client.ping() == b"ping"


async def test_a_role_taken_away_counts_on_open_channels(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    await admin.role("both", "Produce", "Consume")
    await admin.bind("ada", ["both"], "namespace", "default")
    client = await native(secured, realm, "ada")
    producer = await client.open_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    reader = await client.open_reader(TOPIC)
    await producer.send_batch("one", "two")
    assert await consumer.payloads(2) == ["one", "two"]
    assert await reader.payloads(2) == ["one", "two"]
    await admin.unbind("ada", "namespace", "default")
    with refused_with(DENIED):
        await producer.send_batch("three")
    assert (await consumer.failed()).code is DENIED
    assert (await reader.failed()).code is DENIED
    with refused_with(DENIED):
        await client.open_producer(TOPIC, "another")
    # A producer's channel is as it was, once its role is back; what was not acknowledged comes again.
    await admin.bind("ada", ["both"], "topic", TOPIC)
    await producer.send_batch("four")
    again = await client.subscribe(TOPIC)
    assert await again.payloads(3) == ["one", "two", "four"]


async def test_quiet_consumers_lose_their_channel_too(secured: RunningBroker, realm: Any, admin: Any) -> None:
    await admin.role("reader", "Consume")
    await (await native(secured, realm, "admin")).open_producer(TOPIC)
    await admin.bind("bob", ["reader"])
    consumer = await (await native(secured, realm, "bob")).subscribe(TOPIC)
    await admin.unbind("bob")
    assert (await consumer.failed()).code is DENIED


async def test_a_channel_in_use_is_checked_for_what_it_was_opened_for(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    """Opening it again for something allowed is refused, and changes nothing about its rights."""
    await admin.role("writer", "Produce")
    await admin.bind("ada", ["writer"], "topic", TOPIC)
    client = await native(secured, realm, "ada")
    producer = await client.open_producer(TOPIC)
    await admin.bind("ada", ["writer"], "topic", "/default/others")
    with pytest.raises(NativeRefusal):
        await client.open_producer("/default/others", channel=producer.number)
    await admin.unbind("ada", "topic", TOPIC)
    with refused_with(DENIED, TOPIC):
        await producer.send_batch("x")


async def test_a_connection_ends_with_its_token(secured: RunningBroker, realm: Any) -> None:
    client = await native(secured, realm, "admin")
    await client.open_producer(TOPIC)
    secured.clock.advance(HOUR_MS + LEEWAY_MS)
    assert await client.closed_with() is ErrorCode.TOKEN_EXPIRED


async def test_connections_and_requests_of_a_principal_are_limited(
    start_broker: StartBroker, realm: Any
) -> None:
    limits = {"connections_max": 1, "requests_per_second": 3}
    broker = await start_broker(auth=realm.auth(principal_limits={"admin": limits}))
    first = await native(broker, realm, "admin")
    second = await broker.dial(realm.context())
    second.write(frames.PREFACE)
    hello = pb.Hello(version_min=1, version_max=1, token=realm.token("admin"))
    second.send(frames.HELLO, hello, request=1)
    assert await second.closed_with() is ErrorCode.CONNECTIONS_EXHAUSTED
    with refused_with(ErrorCode.RATE_EXCEEDED):
        for _ in range(10):
            await first.look_up(TOPIC)
    await first.close()
    await _eventually_welcome(broker, realm)


async def _eventually_welcome(broker: RunningBroker, realm: Any) -> None:
    """The place of a closed connection is free as soon as the broker has noticed."""
    while True:
        client = await broker.dial(realm.context())
        client.write(frames.PREFACE)
        hello = pb.Hello(version_min=1, version_max=1, token=realm.token("admin"))
        client.send(frames.HELLO, hello, request=1)
        while not client.received:
            await asyncio.sleep(0.01)
        if client.received[0].kind == frames.WELCOME:
            return


async def test_publishes_beyond_the_limit_wait_and_keep_their_order(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"publish_bytes_per_second": 20_000}))
    client = await native(broker, realm, "admin")
    producer = await client.open_producer(TOPIC, idempotent=True)
    begun = asyncio.get_running_loop().time()
    requests = [
        producer.publish(producer.row(f"{number}" + "x" * 5_000), sequence=number) for number in range(1, 9)
    ]
    assert [(await producer.published(request)).offset for request in requests] == list(range(8))
    # 40,000 bytes of which a second's worth may come at once, the last of those on credit.
    assert asyncio.get_running_loop().time() - begun > 0.5


async def test_publishes_beyond_the_requests_of_a_principal_are_refused(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"requests_per_second": 3}))
    client = await native(broker, realm, "admin")
    producer = await client.open_producer(TOPIC)
    with refused_with(ErrorCode.RATE_EXCEEDED, "try again in"):
        for number in range(100):
            await producer.send(producer.row(str(number)))


async def test_our_client_gets_everything_through_a_quota_of_requests(
    start_broker: StartBroker, realm: Any
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"requests_per_second": 60}))
    sent = [f"{number}".encode() for number in range(90)]
    async with (
        connect(f"danubes://{broker.address}", token=realm.token("admin"), tls=realm.tls) as client,
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        for payload in sent:
            await producer.send(payload)
        received = []
        for _ in sent:
            message = await consumer.receive(timeout=PATIENCE_SECONDS)
            received.append(message.payload)
            await consumer.ack(message)
    assert received == sent


async def test_our_client_comes_with_a_token_or_a_certificate(
    start_broker: StartBroker, secured: RunningBroker, realm: Any
) -> None:
    mutual = await start_broker(auth=realm.auth("mtls"))
    for broker, token, tls in ((secured, realm.token("admin"), realm.tls), (mutual, None, realm.mutual_tls)):
        async with (
            connect(f"danubes://{broker.address}", token=token, tls=tls) as client,
            client.producer(TOPIC) as producer,
            client.reader(TOPIC) as reader,
        ):
            await producer.send(b"hello")
            assert (await reader.receive(timeout=10)).payload == b"hello"


async def test_our_client_says_what_is_wrong(
    start_broker: StartBroker, secured: RunningBroker, realm: Any
) -> None:
    mutual = await start_broker(auth=realm.auth("mtls"))

    async def refusal(token: str | None, tls: TLS, broker: RunningBroker = secured) -> DanubeError:
        with pytest.raises(DanubeError) as caught:
            async with (
                connect(
                    f"danubes://{broker.address}", token=token, tls=tls, retries=Retries(attempts_max=1)
                ) as client,
                client.producer(TOPIC),
            ):
                pass
        return caught.value

    assert "send a token" in (await refusal(None, realm.tls)).text
    assert "not accepted" in (await refusal("a.b.c", realm.tls)).text
    assert "permission denied" in (await refusal(realm.token("stranger"), realm.tls)).text
    assert "wants to see a certificate" in (await refusal(realm.token("admin"), realm.tls, mutual)).text


async def test_a_token_may_be_renewed_while_the_client_lives(secured: RunningBroker, realm: Any) -> None:
    later_ms = secured.clock.now_ms() + HOUR_MS
    tokens = [realm.token("admin"), realm.token("admin", now_ms=later_ms)]
    asked_again = asyncio.Event()

    def fresh() -> str:
        if len(tokens) == 1:
            asked_again.set()
        return tokens.pop(0)

    async with (
        connect(f"danubes://{secured.address}", token=fresh, tls=realm.tls) as client,
        client.producer(TOPIC) as producer,
    ):
        await producer.send(b"one")
        secured.clock.advance(HOUR_MS + LEEWAY_MS)
        await asyncio.wait_for(asked_again.wait(), PATIENCE_SECONDS)
        assert (await producer.send(b"two")).offset == 1
