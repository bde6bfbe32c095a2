"""Non-reliable topics: at once or not at all (data-plane spec, §11.6)."""

import asyncio

import pytest
from broker_harness.running_broker import StartBroker
from broker_harness.wire_client import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    KINDS,
    SHARED,
    Status,
    WireClient,
    eventually,
    refused,
)

from pydanube.broker import housekeeping
from pydanube.protocol import danube_pb2 as pb

TOPIC = "/default/live"


async def test_tens_of_messages_reach_every_subscription_without_loss(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    streams = [await client.consume(TOPIC, f"s{n}", kind=kind) for n, kind in enumerate(KINDS.values())]
    sent = [str(n) for n in range(80)]
    await producer.send_all(*sent)
    for stream in streams:
        messages = await stream.take(80)
        assert [message.payload.decode() for message in messages] == sent
        assert {message.msg_id.topic_offset for message in messages} == {0}


async def test_shared_divides_evenly(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    streams = [await client.consume(TOPIC, name=f"c{n}", kind=SHARED) for n in range(3)]
    await producer.send_all(*(str(n) for n in range(36)))
    for first, stream in enumerate(streams):
        assert await stream.payloads(12) == [str(n) for n in range(first, 36, 3)]
        await stream.assert_silent(0.05)


async def test_acks_are_accepted_and_mean_nothing(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    stream = await client.consume(TOPIC)
    await producer.send("one")
    message = await stream.next()
    await stream.ack(message, message)
    await stream.nack(message, delay_ms=1, reason="why not")
    await stream.assert_silent()
    with refused(Status.INTERNAL):
        await client.ack(pb.StreamMessage(msg_id=pb.MsgID(topic_name=TOPIC)), "unknown")


async def test_nothing_is_kept_for_those_who_are_not_there(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    await producer.send("before anybody")
    consumer = await client.subscribe(TOPIC)
    await producer.send("before the stream")
    stream = await consumer.open()
    await stream.assert_silent(0.1)
    await producer.send("now")
    assert await stream.payloads(1) == ["now"]


async def test_more_than_ten_are_outstanding_without_any_ack(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    stream = await client.consume(TOPIC)
    for n in range(30):
        await producer.send(str(n))
        assert await stream.payloads(1) == [str(n)]


async def test_an_exclusive_live_subscription_is_exclusive(client: WireClient) -> None:
    await client.create_producer(TOPIC, reliable=False)
    await client.subscribe(TOPIC, name="first", kind=EXCLUSIVE)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="second", kind=EXCLUSIVE)


@pytest.mark.parametrize("kind", [FAILOVER, SHARED, KEY_SHARED])
async def test_those_who_stay_get_what_the_one_who_left_would_have(client: WireClient, kind: int) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    leaver = await client.subscribe(TOPIC, name="leaves", kind=kind)
    leaves = await leaver.open()
    stays = await client.consume(TOPIC, name="stays", kind=kind)
    await producer.send("0", routing_key="k")
    assert await leaves.payloads(1) == ["0"]
    await leaves.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(leaver.id)

    await eventually(is_gone)
    for n in range(1, 5):
        await producer.send(str(n), routing_key="k")
    assert await stays.payloads(4) == ["1", "2", "3", "4"]


async def test_keys_stick_and_filters_hold_on_live_topics_too(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    a = await client.consume(TOPIC, name="a", kind=KEY_SHARED, key_filters=["a*"])
    b = await client.consume(TOPIC, name="b", kind=KEY_SHARED, key_filters=["b*"])
    for key in ("a1", "b1", "a2", "c", "b1", "a1"):
        await producer.send(key, routing_key=key)
    assert await a.payloads(3) == ["a1", "a2", "a1"]
    assert await b.payloads(2) == ["b1", "b1"]


async def test_a_subscription_nobody_listens_to_is_removed_after_a_minute(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SWEEP_MS", 20)
    broker = await start_broker()
    client = broker.client()
    producer = await client.create_producer(TOPIC, reliable=False)
    consumer = await client.subscribe(TOPIC)
    stream = await consumer.open()
    await stream.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(consumer.id)

    await eventually(is_gone)
    await producer.send("to nobody")
    broker.clock.advance(50_000)
    assert (await client.subscribe(TOPIC)).id == consumer.id, "back within the minute: the same id"
    broker.clock.advance(20_000)

    async def is_removed() -> bool:
        try:
            await client.ack(pb.StreamMessage(msg_id=pb.MsgID(topic_name=TOPIC)))
        except Exception:
            return True
        return False

    await eventually(is_removed)
    with refused(Status.UNAVAILABLE):
        await consumer.open()
    again = await client.subscribe(TOPIC)
    assert again.id != consumer.id


async def test_a_listening_subscription_is_never_removed(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SWEEP_MS", 20)
    broker = await start_broker()
    client = broker.client()
    producer = await client.create_producer(TOPIC, reliable=False)
    stream = await client.consume(TOPIC)
    broker.clock.advance(3_500_000)
    await stream.assert_silent(0.2)
    await producer.send("hello")
    assert await stream.payloads(1) == ["hello"]


async def test_a_consumer_that_does_not_read_loses_messages_and_costs_the_others_nothing(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(metrics=True)
    client = broker.client()
    producer = await client.create_producer(TOPIC, reliable=False)
    sleeper = await broker.client().subscribe(TOPIC, "sleeper")
    call = broker.client().receive_call(sleeper.id)
    await call.initial_metadata()
    reader = await client.consume(TOPIC, "reader")
    count, payload = 400, b"x" * 32_768
    for n in range(count):
        await producer.send(payload, request_id=n)
        assert (await reader.next()).request_id == n
    received = []
    while True:
        try:
            message = await asyncio.wait_for(call.read(), 0.5)
        except TimeoutError:
            break
        received.append(message.request_id)
    assert received == sorted(received)
    assert 0 < len(received) < count, "what did not fit its buffer was dropped"
    assert await broker.metric("danube_subscription_dropped_total") == count - len(received)
    call.cancel()
