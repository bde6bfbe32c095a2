"""How a native connection begins and ends (docs/protocol.md: Connection, Frames)."""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trustme
from broker_harness.native_wire import NativeClient, refused_with
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.tokens import TRUSTED, root_credentials, root_token

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import encode_credit, encode_ranges
from pydanube.protocol.native.frames import encode_frame, publish_header
from pydanube.wire.native_limits import NativeLimits
from pydanube.wire.native_server import NativeServer

TOPIC = "/default/t"
HELLO = pb.Hello(version_min=1, version_max=1, client="test").SerializeToString()
GREETING = frames.PREFACE + encode_frame(frames.HELLO, 0, 1, HELLO)


async def test_the_broker_welcomes_and_states_its_limits(broker: RunningBroker) -> None:
    welcome = (await broker.native()).welcome
    assert welcome.version == 1
    assert welcome.broker.startswith("pydanube ")
    assert welcome.frame_bytes_max == 4 * 1024 * 1024 + 64 * 1024
    assert welcome.publish_window_bytes == 32 * 1024 * 1024
    assert welcome.channels_max == 10_000
    assert welcome.idle_seconds_max == 60
    assert (welcome.batch_bytes_max, welcome.batch_messages_max) == (4 * 1024 * 1024, 65_536)


@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 17, 1000])
async def test_the_greeting_may_come_in_any_pieces(broker: RunningBroker, size: int) -> None:
    client = await broker.dial()
    for at in range(0, len(GREETING), size):
        client.write(GREETING[at : at + size])
        await client.drain()
        await asyncio.sleep(0)
    assert (await client.answer(1)).kind == frames.WELCOME  # type: ignore[union-attr]
    assert await client.ping() == b"ping"


async def test_requests_may_follow_hello_without_waiting_for_welcome(broker: RunningBroker) -> None:
    client = await broker.dial()
    lookup = pb.Lookup(topic=TOPIC).SerializeToString()
    client.write(GREETING + encode_frame(frames.LOOKUP, 0, 2, lookup))
    assert (await client.answer(1)).kind == frames.WELCOME  # type: ignore[union-attr]
    assert (await client.answer(2)).kind == frames.LOOKED_UP  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("lowest", "highest", "welcome"), [(1, 1, True), (0, 9, True), (2, 3, False), (0, 0, False)]
)
async def test_a_version_both_speak_is_chosen(
    broker: RunningBroker, lowest: int, highest: int, welcome: bool
) -> None:
    client = await broker.dial()
    hello = pb.Hello(version_min=lowest, version_max=highest).SerializeToString()
    client.write(frames.PREFACE + encode_frame(frames.HELLO, 0, 1, hello))
    if welcome:
        assert (await client.answer(1)).kind == frames.WELCOME  # type: ignore[union-attr]
    else:
        assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION


FIRST_FRAMES = {
    "ping": encode_frame(frames.PING, 0, 1, b""),
    "lookup": encode_frame(frames.LOOKUP, 0, 1, b""),
    "publish": publish_header(1, 1, 0, 3) + b"abc",
    "credit": encode_frame(frames.CREDIT, 1, 0, encode_credit(1, 1)),
    "ack": encode_frame(frames.ACK, 1, 1, encode_ranges([(0, 0)])),
    "nack": encode_frame(frames.NACK, 1, 1, b""),
    "close": encode_frame(frames.CLOSE, 1, 1, b""),
    "welcome": encode_frame(frames.WELCOME, 0, 1, b""),
}


@pytest.mark.parametrize("name", FIRST_FRAMES)
async def test_the_first_frame_is_hello(broker: RunningBroker, name: str) -> None:
    client = await broker.dial()
    client.write(frames.PREFACE + FIRST_FRAMES[name])
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION
    assert len(client.received) == 1


VIOLATIONS = {
    "a second HELLO": encode_frame(frames.HELLO, 0, 2, HELLO),
    "a broker's frame": encode_frame(frames.WELCOME, 0, 2, b""),
    "type 0": encode_frame(0, 0, 2, b""),
    "an unknown type": encode_frame(25, 0, 2, b""),
    "flags": bytes((0, 0, 0, 0, frames.PING, 1, 0, 0)) + bytes(8),
    "reserved": bytes((0, 0, 0, 0, frames.PING, 0, 1, 0)) + bytes(8),
    "too large": (frames.FRAME_BYTES_MAX + 1).to_bytes(4, "little") + bytes((frames.LOOKUP,)) + bytes(11),
    "a long PING": encode_frame(frames.PING, 0, 2, bytes(65)),
    "an empty PUBLISH": publish_header(1, 2, 0, 0),
    "a short CREDIT": encode_frame(frames.CREDIT, 1, 0, b"abc"),
    "half a range": encode_frame(frames.ACK, 1, 0, bytes(17)),
    "a range backwards": encode_frame(frames.ACK, 1, 0, encode_ranges([(5, 4)])),
    "10,001 ranges": encode_frame(frames.ACK, 1, 0, bytes(16 * 10_001)),
    "a NACK of no protobuf": encode_frame(frames.NACK, 1, 0, b"\xff"),
    "request number 0": encode_frame(frames.OPEN_PRODUCER, 1, 0, b""),
}


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_is_named_and_ends_the_connection_only(broker: RunningBroker, name: str) -> None:
    client, other = await broker.native(), await broker.native()
    client.write(VIOLATIONS[name])
    assert await client.closed_with() in (ErrorCode.PROTOCOL_VIOLATION, ErrorCode.MALFORMED_REQUEST)
    assert await other.ping() == b"ping"


async def test_one_request_number_cannot_be_used_twice_at_once(broker: RunningBroker) -> None:
    client = await broker.native()
    message = pb.OpenProducer(topic=TOPIC, name="p", dispatch=pb.RELIABLE)
    for channel in (1, 2):
        client.send(frames.OPEN_PRODUCER, message, channel=channel, request=77)
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION


@pytest.mark.parametrize(
    "data",
    [
        frames.PREFACE + encode_frame(frames.HELLO, 0, 1, b"\xff\xff"),
        frames.PREFACE + encode_frame(frames.HELLO, 0, 1, bytes(64 * 1024 + 1))[:40],
    ],
    ids=["no protobuf", "too large"],
)
async def test_a_bad_hello_is_refused(broker: RunningBroker, data: bytes) -> None:
    client = await broker.dial()
    client.write(data)
    assert await client.closed_with() in (ErrorCode.PROTOCOL_VIOLATION, ErrorCode.MALFORMED_REQUEST)


async def test_what_is_not_the_preface_is_turned_away(broker: RunningBroker) -> None:
    client = await broker.dial()
    client.write(b"DANUBE\n\n")
    assert await client.closed_with() is None
    assert client.received == []


async def test_ping_is_answered_with_its_own_bytes(broker: RunningBroker) -> None:
    client = await broker.native()
    for body in (b"", b"x", bytes(range(64))):
        assert await client.ping(body) == body
    client.send(frames.PONG, b"unasked", request=5)  # harmless
    assert await client.ping() == b"ping"


async def test_looking_up_a_topic(broker: RunningBroker) -> None:
    client = await broker.native()
    unknown = await client.look_up(TOPIC)
    assert (unknown.here, unknown.connect_url, list(unknown.partitions)) == (
        True,
        f"http://{broker.address}",
        [],
    )
    await client.open_producer(TOPIC)
    for number in (2, 0, 1):
        await client.open_producer(f"/default/many-part-{number}")
    assert list((await client.look_up(TOPIC)).partitions) == [TOPIC]
    assert list((await client.look_up("/default/many")).partitions) == [
        f"/default/many-part-{number}" for number in range(3)
    ]
    with refused_with(ErrorCode.TOPIC_NAME_INVALID):
        await client.look_up("no slash")


async def test_both_protocols_share_the_port(broker: RunningBroker) -> None:
    native, wire = await broker.native(), broker.client()
    producer = await wire.create_producer(TOPIC)
    consumer = await native.subscribe(TOPIC)
    await producer.send("over HTTP/2")
    assert await consumer.payloads(1) == ["over HTTP/2"]


class Tls:
    """A broker's certificate, and a client that trusts it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("127.0.0.1")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        certificate.cert_chain_pems[0].write_to_path(folder / "server.crt")
        files = {"cert_file": f"{folder}/server.crt", "key_file": f"{folder}/server.key"}
        self.auth = {"mode": "tls", "tls": files, **TRUSTED}

    def context(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        self.authority.configure_trust(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context


@pytest.mark.parametrize("alpn", [("danube/1",), ()], ids=["alpn", "first bytes"])
async def test_tls_with_alpn_and_without(
    start_broker: StartBroker, tmp_path: Path, alpn: tuple[str, ...]
) -> None:
    tls = Tls(tmp_path)
    broker = await start_broker(auth=tls.auth)
    client = await broker.native(tls.context(*alpn), root_token())
    producer = await client.open_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, start=pb.Position(kind=pb.Position.EARLIEST))
    await producer.send_batch("secret", "too")
    assert await consumer.payloads(2) == ["secret", "too"]
    credentials = root_credentials(tls.authority.cert_pem.bytes())
    stream = await broker.client(credentials).consume(TOPIC, "over gRPC")
    await producer.send_rows("to both")
    assert await stream.payloads(1) == ["to both"]


async def test_a_violation_under_tls_is_named_too(start_broker: StartBroker, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    broker = await start_broker(auth=tls.auth)
    client = await broker.native(tls.context("danube/1"), root_token())
    client.write(VIOLATIONS["an unknown type"])
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION


async def test_a_tls_client_that_chose_the_protocol_but_speaks_another_is_refused(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    tls = Tls(tmp_path)
    broker = await start_broker(auth=tls.auth)
    client = await broker.dial(tls.context("danube/1"))
    client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION


async def test_a_stopping_broker_says_so_on_every_channel_and_connection(broker: RunningBroker) -> None:
    client = await broker.native()
    await client.open_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    reader = await client.open_reader(TOPIC)
    await broker.stop()
    assert await client.closed_with() is ErrorCode.STOPPING
    assert (await consumer.failed()).code is ErrorCode.STOPPING
    assert (await reader.failed()).code is ErrorCode.STOPPING


async def test_a_client_that_only_closes_its_side_is_let_go(broker: RunningBroker) -> None:
    client: NativeClient = await broker.native()
    client._writer.write_eof()
    assert await client.closed_with() is None


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give brokers started from now on other limits for native connections."""

    def change(**changed: float) -> None:
        small = partial(NativeServer, limits=NativeLimits(**changed))  # type: ignore[arg-type]
        monkeypatch.setattr("pydanube.server.standalone.NativeServer", small)

    return change


async def test_a_silent_connection_is_closed(limits: Callable[..., None], start_broker: StartBroker) -> None:
    limits(idle_seconds_max=2)
    broker = await start_broker()
    silent, lively = await broker.native(), await broker.native()
    assert silent.welcome.idle_seconds_max == 2

    async def keep_talking() -> None:
        while True:
            await lively.ping()
            await asyncio.sleep(0.1)

    talking = asyncio.create_task(keep_talking())
    assert await silent.closed_with() is ErrorCode.PROTOCOL_VIOLATION
    assert not talking.done()
    talking.cancel()
    await asyncio.gather(talking, return_exceptions=True)
    assert await lively.ping() == b"ping"


async def test_hello_has_to_come_in_time_whatever_drips_in_before(
    limits: Callable[..., None], start_broker: StartBroker
) -> None:
    limits(hello_seconds=1.0)
    broker = await start_broker()
    client = await broker.dial()
    client.write(frames.PREFACE)

    async def drip() -> None:
        for byte in encode_frame(frames.HELLO, 0, 1, bytes(10_000)):
            client.write(bytes((byte,)))
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)


async def test_channels_are_bounded(limits: Callable[..., None], start_broker: StartBroker) -> None:
    limits(channels_max=3)
    broker = await start_broker()
    client = await broker.native()
    assert client.welcome.channels_max == 3
    producer = await client.open_producer(TOPIC)
    await client.subscribe(TOPIC)
    await client.open_reader(TOPIC)
    for open_another in (client.open_producer, client.open_reader, client.subscribe):
        with refused_with(ErrorCode.CHANNELS_EXHAUSTED):
            await open_another(TOPIC)
    await producer.close()
    await client.open_producer(TOPIC)


async def test_a_small_publish_window_slows_a_client_and_loses_nothing(
    limits: Callable[..., None], start_broker: StartBroker
) -> None:
    limits(publish_window_bytes=10_000)
    broker = await start_broker()
    client = await broker.native()
    producer = await client.open_producer(TOPIC)
    requests = [producer.publish(producer.row(bytes(1000))) for _ in range(500)]
    assert [(await producer.published(request)).offset for request in requests] == list(range(500))
    assert await client.ping() == b"ping"


async def test_more_requests_at_once_than_any_honest_client_has(
    limits: Callable[..., None], start_broker: StartBroker
) -> None:
    limits(requests_max=10)
    broker = await start_broker()
    client = await broker.native()
    for n in range(1, 50):
        message = pb.OpenProducer(topic=TOPIC, name=f"p{n}", dispatch=pb.RELIABLE)
        client.send(frames.OPEN_PRODUCER, message, channel=n, request=100 + n)
    assert await client.closed_with() is ErrorCode.PROTOCOL_VIOLATION
