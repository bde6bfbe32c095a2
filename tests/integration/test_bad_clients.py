"""Clients that are broken, hostile or asleep: they are told so, and everybody else is served as before."""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from broker_harness.broker_process import BrokerProcess
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import (
    KEY_SHARED,
    METHODS,
    RECEIVE,
    SHARED,
    Status,
    WireClient,
    eventually,
    refused,
)

from pydanube.protocol import danube_pb2 as pb

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
MIB = 1024 * 1024


@pytest.fixture
async def broker(start_broker: StartBroker) -> AsyncIterator[RunningBroker]:
    """A broker that must serve a normal client as ever, whatever the test did to it."""
    broker = await start_broker()
    yield broker
    client = broker.client()
    producer = await client.create_producer("/default/normal")
    stream = await client.consume("/default/normal")
    await producer.send_all("one", "two")
    assert await stream.take_acked(2) == ["one", "two"]


# --- requests that say nonsense

MALFORMED = {
    "cut off number": b"\x08",
    "endless number": b"\x08" + b"\xff" * 11,
    "length beyond the end": b"\x12\x7f",
    "field zero": b"\x00\x00",
    "group that never ends": b"\x0b",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=list(MALFORMED))
async def test_bytes_that_are_no_message_are_invalid_to_every_method(
    broker: RunningBroker, client: WireClient, body: bytes
) -> None:
    for method in (*METHODS, RECEIVE):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call_raw(method, body)
        assert caught.value.code() in (Status.INVALID_ARGUMENT, Status.NOT_FOUND), (method, caught.value)


async def test_a_msg_id_that_is_no_message_is_invalid(broker: RunningBroker, client: WireClient) -> None:
    for method in ("ProducerService/SendMessage", "ConsumerService/Ack", "ConsumerService/Nack"):
        for body in (b"\x12\x02\x08\xff", b"\x12\x02\xff\xff", b"\x12\x03\x12\x05x"):
            with refused(Status.INVALID_ARGUMENT):
                await client.call_raw("/danube." + method, body)


async def test_random_bytes_never_break_a_method(broker: RunningBroker, client: WireClient) -> None:
    dice = random.Random(7)
    errors = []
    for _ in range(40):
        body = dice.randbytes(dice.randrange(1, 60))
        for method in (*METHODS, RECEIVE):
            try:
                await client.call_raw(method, body)
            except grpc.aio.AioRpcError as error:
                errors.append((error.code(), error.details(), method, body))
    assert errors
    assert {code for code, *_ in errors} <= {Status.INVALID_ARGUMENT, Status.NOT_FOUND}, errors


async def test_text_that_is_not_utf8_is_invalid(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    topic = pb.ProducerRequest(topic_name="/default/t", dispatch_strategy=1).SerializeToString()
    with refused(Status.INVALID_ARGUMENT):
        await client.call_raw("/danube.ProducerService/CreateProducer", topic + b"\x12\x02\xc3\x28")
    topic = pb.ConsumerRequest(topic_name="/default/t", consumer_name="c").SerializeToString()
    with refused(Status.INVALID_ARGUMENT):
        await client.call_raw("/danube.ConsumerService/Subscribe", topic + b"\x22\x02\xc3\x28")
    message = producer.message("x").SerializeToString()
    for field in (b"\x2a\x02\xc3\x28", b"\x52\x01\xff", b"\x3a\x05\x0a\x01k\x12\x00"[:-2] + b"\x12\xff"):
        with refused(Status.INVALID_ARGUMENT):
            await client.call_raw("/danube.ProducerService/SendMessage", message + field)
    stream = await client.consume("/default/t")
    await producer.send("good")
    assert await stream.offsets(1) == [0], "nothing of it was stored"


async def test_control_characters_are_no_names(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer("/default/t")
    for name in ("a\nb", "\x00", "tab\t", "x" * 10_000):
        with refused(Status.INVALID_ARGUMENT):
            await client.create_producer("/default/t", name)
        with refused(Status.INVALID_ARGUMENT):
            await client.subscribe("/default/t", name, "consumer")
        with refused(Status.INVALID_ARGUMENT):
            await client.subscribe("/default/t", "subscription", name)


async def test_names_with_slashes_and_percents_stay_apart(broker: RunningBroker) -> None:
    names = ["a/b", "a%2Fb", "..", "../x", "a/failure_policy", "ü", "名前", "%"]
    client = broker.client()
    await client.create_producer("/default/t")
    consumers = {name: await client.subscribe("/default/t", name, name) for name in names}
    producers = {name: await client.create_producer("/default/t", name) for name in names}
    await broker.restart()
    client = broker.client()
    for name in names:
        assert (await client.subscribe("/default/t", name, name)).id == consumers[name].id
        assert (await client.create_producer("/default/t", name)).id == producers[name].id


# --- connections that say nonsense


async def _say(broker: RunningBroker, data: bytes) -> bytes:
    """Send bytes, then read until the broker closes or has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    answer = b""
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(data)
        await writer.drain()
        while chunk := await asyncio.wait_for(reader.read(65_536), 1.0):
            answer += chunk
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return answer


async def test_garbage_on_the_port_is_turned_away(broker: RunningBroker) -> None:
    dice = random.Random(11)
    garbage = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the start of a TLS handshake
        b"\x00" * 1_000,
        b"SSH-2.0-client\r\n",
        PREFACE[:10] + b"nonsense",
        PREFACE + b"\x00" * 5,
        PREFACE + EMPTY_SETTINGS + b"\xff" * 100,
        *(dice.randbytes(500) for _ in range(5)),
        *(PREFACE + EMPTY_SETTINGS + dice.randbytes(500) for _ in range(5)),
    ]
    await asyncio.gather(*(_say(broker, data) for data in garbage))


async def test_a_browser_is_told_what_this_port_speaks(broker: RunningBroker) -> None:
    answer = await _say(broker, b"GET / HTTP/1.1\r\nhost: broker\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 505")
    assert b"gRPC" in answer


async def test_two_thousand_idle_connections_leave_room_for_normal_ones(broker: RunningBroker) -> None:
    async def connect(hello: bytes) -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(hello)
        return writer

    writers = []
    for _ in range(20):
        hellos = [PREFACE + EMPTY_SETTINGS, b"", PREFACE[:5], PREFACE + EMPTY_SETTINGS] * 25
        writers += await asyncio.gather(*(connect(hello) for hello in hellos))
    client = broker.client()
    producer = await client.create_producer("/default/crowded")
    await producer.send("there is room")
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def test_connections_beyond_the_limit_are_closed_and_room_is_given_back(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(limits={"max_connections": 5})
    held = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(5)]
    assert await _say(broker, PREFACE + EMPTY_SETTINGS) == b""
    for _, writer in held:
        writer.close()
        await writer.wait_closed()
    client = broker.client()

    async def is_served() -> bool:
        try:
            await client.partitions("/default/t")
        except grpc.aio.AioRpcError:
            return False
        return True

    await eventually(is_served)


async def test_calls_cancelled_by_the_thousand_disturb_nobody(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    hasty = broker.client()
    for n in range(10):
        calls = [asyncio.create_task(hasty.partitions("/default/t")) for _ in range(100)]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await producer.send(str(n))
    assert await stream.take_acked(10) == [str(n) for n in range(10)]


async def test_streams_opened_and_dropped_without_end_lose_nothing(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer("/default/t")
    consumer = await client.subscribe("/default/t", kind=SHARED)
    await producer.send_all("0", "1", "2")
    for _ in range(30):
        call = client.receive_call(consumer.id)
        await call.initial_metadata()
        call.cancel()
    stream = await client.consume("/default/t", kind=SHARED)
    assert await stream.take_acked(3) == ["0", "1", "2"]


# --- clients that want too much


async def test_oversize_requests_over_and_over(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    huge = b"x" * (5 * MIB)
    for _ in range(5):
        with refused(Status.OUT_OF_RANGE):
            await producer.send(huge)
    await producer.send("small")


async def test_producers_by_the_hundred(broker: RunningBroker, client: WireClient) -> None:
    for batch in range(5):
        producers = await asyncio.gather(
            *(client.create_producer("/default/t", f"p{batch}-{n}") for n in range(100))
        )
        assert len({producer.id for producer in producers}) == 100
    await producers[-1].send("the last one works")


async def test_key_filters_have_a_bound(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer("/default/t")
    for filters in (["*"] * 257, ["x" * 256]):
        with refused(Status.INVALID_ARGUMENT, "key filter"):
            await client.subscribe("/default/t", kind=KEY_SHARED, key_filters=filters)
    await client.subscribe("/default/t", kind=KEY_SHARED, key_filters=["*a*" * 85] * 256)


async def test_pings_for_ids_nobody_has(broker: RunningBroker, client: WireClient) -> None:
    for first in range(1, 1_000, 100):
        answers = await asyncio.gather(
            *(client.producer_is_healthy(first + n) for n in range(100)), return_exceptions=True
        )
        assert answers == [False] * 100


async def test_more_streams_than_one_connection_may_have(start_broker: StartBroker) -> None:
    broker = await start_broker(limits={"max_streams_per_connection": 100})
    client = broker.client()
    await client.create_producer("/default/t")
    greedy = broker.client()
    consumers = [await client.subscribe("/default/t", f"s{n}") for n in range(130)]
    calls = [greedy.receive_call(consumer.id) for consumer in consumers]
    opening = [asyncio.ensure_future(call.initial_metadata()) for call in calls]

    async def are_open() -> bool:
        return sum(task.done() for task in opening) == 100

    await eventually(are_open)
    producer = await client.create_producer("/default/t", "other")
    await producer.send("served on another connection")
    for call in calls:
        call.cancel()
    await asyncio.gather(*opening, return_exceptions=True)


# --- consumers that sleep


async def test_a_sleeping_reader_of_a_reliable_topic_loses_nothing_and_delays_nobody(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(dispatch={"max_unacked_messages": 10_000})
    client = broker.client()
    producer = await client.create_producer("/default/t")
    sleeper = await client.subscribe("/default/t", "sleeper")
    call = broker.client().receive_call(sleeper.id)
    await call.initial_metadata()
    awake = await client.consume("/default/t", "awake")
    count, payload = 300, os.urandom(16_384)
    for n in range(count):
        await producer.send(payload)
        message = await awake.next()
        assert message.msg_id.topic_offset == n
        await awake.ack(message)
    for n in range(count):
        message = await asyncio.wait_for(call.read(), 10)
        assert message.msg_id.topic_offset == n
    call.cancel()


async def test_a_sleeping_shared_consumer_does_not_stop_the_others(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer("/default/t")
    sleeper = await client.subscribe("/default/t", name="sleeper", kind=SHARED)
    call = broker.client().receive_call(sleeper.id)
    await call.initial_metadata()
    awake = await client.consume("/default/t", name="awake", kind=SHARED)
    for n in range(8):
        await producer.send(str(n))
    # Half of them wait for the sleeper, within the window; the rest flows.
    assert await awake.take_acked(4) == ["1", "3", "5", "7"]
    call.cancel()
    assert await awake.take_acked(4) == ["0", "2", "4", "6"]


async def test_memory_stays_bounded_while_nobody_reads(tmp_path: Path) -> None:
    wal = {
        "rotation": {"max_bytes": 4 * MIB},
        "unstaged_bytes_max": 16 * MIB,
        "cache_bytes_max": MIB,
        "fsync": "never",
    }
    async with BrokerProcess(tmp_path, storage={"wal": wal}) as process:
        client = process.client()
        producer = await client.create_producer("/default/t")
        calls = []
        for n in range(4):
            sleeper = await client.subscribe("/default/t", f"sleeper {n}")
            calls.append(process.client().receive_call(sleeper.id))
            await calls[-1].initial_metadata()
        payload = os.urandom(MIB)

        async def is_published() -> bool:
            try:
                await producer.send(payload)
            except grpc.aio.AioRpcError as error:
                if error.code() != Status.UNAVAILABLE:  # else: more than the bound waits to be staged
                    raise
                return False
            return True

        async def publish(messages: int) -> None:
            for _ in range(messages):
                await eventually(is_published)

        await publish(24)  # buffers and windows are full now
        before = process.resident_bytes()
        await publish(72)
        grown = process.resident_bytes() - before
        assert grown < 24 * MIB, f"{grown / MIB:.0f} MiB more after 72 MiB that four sleepers do not read"
        for call in calls:
            call.cancel()
