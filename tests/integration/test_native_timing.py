"""Delivery times and times to live, by attributes and by the head of a batch (docs/protocol.md: Times)."""

import pytest
from broker_harness.native_wire import EARLIEST, LATEST, NativeClient, NativeProducer, refused_with
from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import KINDS, SHARED, Status, WireClient, refused

from pydanube.kernel.errors import ErrorCode

TOPIC = "/default/t"
HOUR = 3_600_000


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await native.open_producer(TOPIC)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_delayed_row_waits_and_holds_back_nobody(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer, kind: str
) -> None:
    consumer = await native.subscribe(TOPIC, kind=KINDS[kind])
    await producer.send(producer.row("after", attributes={"x-deliver-after": str(HOUR)}, routing_key="a"))
    at = str(broker.clock.now_ms() + 2 * HOUR)
    await producer.send(producer.row("at", attributes={"x-deliver-at": at}, routing_key="b"))
    await producer.send(producer.row("now", routing_key="c"))
    assert await consumer.payloads(1) == ["now"]
    await consumer.assert_silent()
    broker.clock.advance(HOUR + 1_000)
    (after,) = await consumer.take(1)
    assert (after.payload, after.attempt, after.offset) == ("after", 1, 0)
    await consumer.assert_silent(0.1)
    broker.clock.advance(HOUR)
    assert await consumer.payloads(1) == ["at"]


async def test_attributes_of_grpc_messages_work_the_same(
    broker: RunningBroker, native: NativeClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    consumer = await native.subscribe(TOPIC, "native")
    await producer.send("late", attributes={"x-deliver-after": str(HOUR)})
    await producer.send("expires", attributes={"x-deliver-after": str(2 * HOUR), "x-ttl": str(HOUR)})
    await producer.send("now")
    assert await stream.take_acked(1) == ["now"]
    assert await consumer.take_acked(1) == ["now"]
    broker.clock.advance(HOUR + 1_000)
    assert await stream.take_acked(1) == ["late"]
    assert await consumer.take_acked(1) == ["late"]
    broker.clock.advance(HOUR)
    await stream.assert_silent(0.7)
    await consumer.close()
    assert (await native.subscribe(TOPIC, "native")).subscribed.next_offset == 3


@pytest.mark.parametrize("by_grpc", [False, True])
async def test_the_head_of_a_batch_delays_all_of_it(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer, client: WireClient, by_grpc: bool
) -> None:
    consumer = await (client.consume(TOPIC, kind=SHARED) if by_grpc else native.subscribe(TOPIC, kind=SHARED))
    await producer.send(producer.batch(["a", "b"], producer.head(deliver_after=HOUR)))
    at = broker.clock.now_ms() + 2 * HOUR
    await producer.send(producer.batch(["c", "d"], producer.head(deliver_at=at)))
    await producer.send_batch("now", "too")
    assert await consumer.payloads(2) == ["now", "too"]
    await consumer.assert_silent()
    broker.clock.advance(HOUR + 1_000)
    assert await consumer.payloads(2) == ["a", "b"]
    await consumer.assert_silent(0.1)
    broker.clock.advance(HOUR)
    assert await consumer.payloads(2) == ["c", "d"]


@pytest.mark.parametrize("as_batch", [False, True])
async def test_what_has_expired_is_not_delivered(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer, as_batch: bool
) -> None:
    consumer = await native.subscribe(TOPIC, credit=(0, 0))
    if as_batch:
        await producer.send(producer.batch(["old", "older"], producer.head(ttl=HOUR)))
    else:
        await producer.send(producer.row("old", attributes={"x-ttl": str(HOUR)}))
        await producer.send(producer.row("older", attributes={"x-ttl": str(HOUR)}))
    broker.clock.advance(HOUR + 1_000)
    await producer.send(producer.batch(["young"], producer.head(ttl=HOUR)))
    consumer.give(10)
    (young,) = await consumer.take(1)
    assert (young.payload, young.offset) == ("young", 2)
    await consumer.ack(2)
    await consumer.close()
    assert (await native.subscribe(TOPIC)).subscribed.next_offset == 3


async def test_times_count_from_the_append_also_after_a_restart(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    await native.subscribe(TOPIC)
    await producer.send(producer.batch(["late"], producer.head(deliver_after=2 * HOUR)))
    await producer.send(producer.batch(["gone"], producer.head(ttl=HOUR)))
    broker.clock.advance(HOUR + 1_000)
    await broker.restart()
    consumer = await (await broker.native()).subscribe(TOPIC)
    await consumer.assert_silent()
    broker.clock.advance(HOUR)
    assert await consumer.payloads(1) == ["late"]
    await consumer.assert_silent(0.1)


async def test_readers_see_every_message_at_once(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send(producer.row("late", attributes={"x-deliver-after": str(HOUR)}))
    await producer.send(producer.batch(["gone"], producer.head(ttl=1)))
    broker.clock.advance(HOUR // 2)
    reader = await native.open_reader(TOPIC, EARLIEST, LATEST)
    assert [received.payload for received in await reader.rest()] == ["late", "gone"]


@pytest.mark.parametrize("name", ["x-deliver-at", "x-deliver-after", "x-ttl"])
async def test_numbers_that_are_none_are_refused(
    native: NativeClient, producer: NativeProducer, client: WireClient, name: str
) -> None:
    sender = await client.create_producer(TOPIC)
    for text in ("", "soon", "-1", "1.5", " 1", "1_000", "9" * 20, "٣"):
        with refused_with(ErrorCode.ARGUMENT_INVALID, name):
            await producer.send(producer.row("x", attributes={name: text}))
        with refused(Status.INVALID_ARGUMENT, name):
            await sender.send("x", attributes={name: text})
    with refused_with(ErrorCode.BATCH_INVALID, name):
        await producer.send(producer.batch(["x"], producer.head(attributes={name: "5"})))
    with refused_with(ErrorCode.BATCH_INVALID, name):
        await producer.send(producer.batch(["x", "y"], attributes=[None, {name: "5"}]))
    field = name.removeprefix("x-").replace("-", "_")
    with refused_with(ErrorCode.BATCH_INVALID, field):
        await producer.send(producer.batch(["x"], producer.head(**{field: 1 << 63})))
    assert (await producer.send(producer.row("x", attributes={name: "0"}))).offset == 0


async def test_the_furthest_future_is_taken(native: NativeClient, producer: NativeProducer) -> None:
    consumer = await native.subscribe(TOPIC)
    furthest = str((1 << 63) - 1)
    for name in ("x-deliver-at", "x-deliver-after"):
        await producer.send(producer.row("never", attributes={name: furthest}))
    await producer.send(producer.row("always", attributes={"x-ttl": furthest}))
    assert await consumer.payloads(1) == ["always"]
    await consumer.assert_silent(0.6)


async def test_a_thousand_delayed_messages_hold_back_nobody(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer, client: WireClient
) -> None:
    stream = await client.consume(TOPIC)  # whose window is ten messages
    await producer.send(producer.batch([str(n) for n in range(1000)], producer.head(deliver_after=HOUR)))
    await producer.send_rows("now")
    assert await stream.take_acked(1) == ["now"]
    broker.clock.advance(HOUR + 1_000)
    assert await stream.take_acked(1000) == [str(n) for n in range(1000)]


async def test_a_delayed_message_may_be_nacked_and_moved_over_like_any_other(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC, kind=SHARED)
    await producer.send(producer.batch(["a", "b", "c"], producer.head(deliver_after=HOUR)))
    await consumer.seek(EARLIEST)
    await consumer.seeked()
    await consumer.assert_silent(0.1)
    broker.clock.advance(HOUR + 1_000)
    await consumer.take(3)
    await consumer.nack(1)
    broker.clock.advance(5_000)
    (again,) = await consumer.take(1)
    assert (again.payload, again.attempt) == ("b", 2)
    await consumer.ack(0, 2)
    await consumer.seek(LATEST)
    assert await consumer.seeked() == 3
