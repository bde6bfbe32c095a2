"""Both protocols on one topic: what one publishes the other delivers, field for field."""

import pytest
from broker_harness.native_wire import EARLIEST, LATEST, NativeClient, NativeProducer
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import FAILOVER, KEY_SHARED, KINDS, SHARED, WireClient, eventually

from pydanube.kernel.policies import BackoffStrategy, FailurePolicy, PoisonPolicy

TOPIC = "/default/t"
DEAD = "/default/t-dlq"


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await native.open_producer(TOPIC)


def _numbers(first: int, end: int) -> list[str]:
    return [str(n) for n in range(first, end)]


# ── from gRPC to native ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reliable", [True, False])
async def test_a_native_consumer_gets_grpc_messages_field_for_field(
    native: NativeClient, client: WireClient, reliable: bool
) -> None:
    producer = await client.create_producer(TOPIC, reliable=reliable)
    consumer = await native.subscribe(TOPIC)
    await native.ping()
    sent = producer.message(
        "body", attributes={"a": "1", "b": ""}, routing_key="k", schema_id=3, schema_version=4
    )
    await producer.send_message(sent)
    (received,) = await consumer.take(1)
    assert received.message == sent
    if reliable:
        assert received.offset == 0


async def test_a_reader_reads_what_grpc_published(native: NativeClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    await producer.send_all(*_numbers(0, 20))
    reader = await native.open_reader(TOPIC, EARLIEST, LATEST)
    assert [received.payload for received in await reader.rest()] == _numbers(0, 20)


# ── from native to gRPC ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
async def test_a_grpc_consumer_gets_rows_and_batches_in_order(
    producer: NativeProducer, client: WireClient, kind: str
) -> None:
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send_rows("0")
    keys = {"routing_keys": _numbers(1, 50)} if KINDS[kind] == KEY_SHARED else {}
    await producer.send(producer.batch(_numbers(1, 50), **keys))
    await producer.send_rows("50", "51")
    taken = []
    for _ in range(52):
        message = await stream.next()
        assert message.msg_id.topic_name == TOPIC
        assert message.msg_id.producer_id == producer.id
        assert message.msg_id.topic_offset == int(message.payload)
        taken.append(message.payload.decode())
        await stream.ack(message)
    assert taken == _numbers(0, 52)
    await stream.assert_silent(0.1)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
async def test_the_window_of_ten_holds_inside_a_batch(
    producer: NativeProducer, client: WireClient, kind: str
) -> None:
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send_batch(*_numbers(0, 1000))
    messages = await stream.take(10)
    await stream.assert_silent()
    await stream.ack(messages[4])
    assert await stream.payloads(1) == ["10"]
    await stream.assert_silent(0.1)


async def test_a_batch_on_a_non_reliable_topic_reaches_both(native: NativeClient, client: WireClient) -> None:
    producer = await native.open_producer(TOPIC, reliable=False)
    stream = await client.consume(TOPIC, "rows")
    whole = await native.subscribe(TOPIC, "batches")
    keyed = await native.subscribe(TOPIC, "keys", kind=KEY_SHARED)
    shared = await native.subscribe(TOPIC, "shared", kind=SHARED)
    await client.consume(TOPIC, "shared", "rows only", kind=SHARED)
    await native.ping()
    await producer.send(producer.batch(_numbers(0, 5), routing_keys=["a", "b", None, "a", "c"]))
    assert [(m.payload, m.msg_id.producer_id) for m in await stream.take(5)] == [
        (b"%d" % n, producer.id) for n in range(5)
    ]
    assert (await whole.item()).messages == 5
    assert await keyed.payloads(5) == _numbers(0, 5)
    assert set(await shared.payloads(2)) < set(_numbers(0, 5))


async def test_a_grpc_consumer_goes_on_inside_a_batch(
    broker: RunningBroker, producer: NativeProducer, client: WireClient
) -> None:
    stream = await client.consume(TOPIC)
    await producer.send_batch(*_numbers(0, 30))
    assert await stream.take_acked(13) == _numbers(0, 13)
    await broker.restart()
    again = await broker.client().consume(TOPIC)
    assert await again.take_acked(17) == _numbers(13, 30)


# ── together in one subscription ────────────────────────────────────────────────────────────────


async def test_both_share_a_subscription(
    native: NativeClient, producer: NativeProducer, client: WireClient
) -> None:
    consumer = await native.subscribe(TOPIC, name="native", kind=SHARED)
    stream = await client.consume(TOPIC, name="grpc", kind=SHARED)
    await producer.send_batch(*_numbers(0, 20))
    await producer.send_rows(*_numbers(20, 40))
    by_stream, by_consumer = set(), set()
    for _ in range(10):
        by_stream |= set(await stream.take_acked(1))
        by_consumer |= set(await consumer.take_acked(1))
    assert len(by_stream | by_consumer) == 20
    assert not by_stream & by_consumer


async def test_a_batch_sent_whole_comes_to_a_grpc_consumer_when_its_holder_goes(
    broker: RunningBroker, producer: NativeProducer, client: WireClient
) -> None:
    holder = await broker.native()
    consumer = await holder.subscribe(TOPIC, name="native", kind=SHARED)
    await producer.send_batch(*_numbers(0, 30))
    assert (await consumer.item()).messages == 30
    await consumer.ack(3, 5)
    stream = await client.consume(TOPIC, name="grpc", kind=SHARED)
    await stream.assert_silent(0.1)
    await holder.close()
    taken = await stream.take(27)
    expected = [n for n in range(30) if n not in (3, 4, 5)]
    assert [message.msg_id.topic_offset for message in taken] == expected
    assert [int(message.payload) for message in taken] == expected
    await stream.ack(*taken)
    await producer.send_rows("next")
    assert await stream.take_acked(1) == ["next"]


async def test_failover_passes_from_native_to_grpc_and_back(
    broker: RunningBroker, producer: NativeProducer, client: WireClient
) -> None:
    first = await broker.native()
    active = await first.subscribe(TOPIC, name="a", kind=FAILOVER)
    stream = await client.consume(TOPIC, name="b", kind=FAILOVER)
    await producer.send_batch(*_numbers(0, 8))
    assert await active.take_acked(3) == _numbers(0, 3)
    await active.close()
    assert await stream.take_acked(5) == _numbers(3, 8)
    await producer.send_batch(*_numbers(8, 12))
    assert await stream.take_acked(2) == ["8", "9"]
    back = await first.subscribe(TOPIC, name="c", kind=FAILOVER)
    await stream.close()
    assert await back.take_acked(2) == ["10", "11"]


async def test_key_shared_takes_batches_apart_and_keeps_the_order_of_keys(
    broker: RunningBroker, producer: NativeProducer, client: WireClient
) -> None:
    natives = [await broker.native() for _ in range(2)]
    consumers = [
        await native.subscribe(TOPIC, name=f"n{n}", kind=KEY_SHARED) for n, native in enumerate(natives)
    ]
    stream = await client.consume(TOPIC, name="g", kind=KEY_SHARED)
    for first in range(0, 120, 40):
        keys = [f"key {n % 12}" for n in range(first, first + 40)]
        await producer.send(producer.batch(_numbers(first, first + 40), routing_keys=keys))
    seen: dict[str, list[int]] = {}
    owners: dict[str, set[str]] = {}

    async def look(name: str, payload: str, key: str) -> None:
        seen.setdefault(key, []).append(int(payload))
        owners.setdefault(key, set()).add(name)

    async def drained() -> bool:
        while not stream._received.empty():
            message = await stream.next()
            await look("g", message.payload.decode(), message.routing_key)
            await stream.ack(message)
        for consumer in consumers:
            while consumer._items or not consumer.client._channels[consumer.number].empty():
                (received,) = await consumer.take(1)
                await look(str(consumer.number), received.payload, received.message.routing_key)
                await consumer.ack(received.offset)
        return sum(map(len, seen.values())) == 120

    await eventually(drained)
    assert len(seen) == 12
    for key, numbers in seen.items():
        assert numbers == sorted(set(numbers)), key
        assert len(owners[key]) == 1, key


async def test_key_filters_choose_messages_of_batches(native: NativeClient, producer: NativeProducer) -> None:
    red = await native.subscribe(TOPIC, name="red", kind=KEY_SHARED, key_filters=["red-*"])
    blue = await native.subscribe(TOPIC, name="blue", kind=KEY_SHARED, key_filters=["blue-*"])
    keys = [f"{'red' if n % 2 else 'blue'}-{n}" for n in range(20)]
    await producer.send(producer.batch(_numbers(0, 20), routing_keys=keys))
    assert await red.payloads(10) == [str(n) for n in range(1, 20, 2)]
    assert await blue.payloads(10) == [str(n) for n in range(0, 20, 2)]


# ── failures inside batches ─────────────────────────────────────────────────────────────────────


def _policy(poison: PoisonPolicy, redeliveries: int = 0) -> FailurePolicy:
    return FailurePolicy(
        max_redelivery_count=redeliveries,
        base_redelivery_delay_ms=20,
        backoff_strategy=BackoffStrategy.FIXED,
        poison_policy=poison,
        dead_letter_topic=DEAD,
    )


async def test_dead_letters_of_a_batch_are_its_messages_one_by_one(start_broker: StartBroker) -> None:
    broker = await start_broker({(TOPIC, "subscription"): _policy(PoisonPolicy.DEAD_LETTER, 1)})
    native, client = await broker.native(), broker.client()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC, kind=SHARED)
    head = producer.head(attributes={"all": "yes"}, deliver_after=1)
    await producer.send(producer.batch(_numbers(0, 10), head, attributes=[{"n": str(n)} for n in range(10)]))
    await consumer.take(10)
    await consumer.nack(4, 6, reason="first")
    assert sorted(await consumer.offsets(3)) == [4, 5, 6]
    await consumer.nack(4, 6, reason="cannot be used")
    await consumer.ack(0, 3)
    await consumer.ack(7, 9)

    async def all_copied() -> bool:
        partitions = await client.partitions(DEAD)
        if not partitions:
            return False
        reader = await native.open_reader(DEAD, EARLIEST, LATEST)
        return len(await reader.rest()) == 3

    await eventually(all_copied)
    copies = await (await native.open_reader(DEAD, EARLIEST, LATEST)).rest()
    for n, copy in zip((4, 5, 6), sorted(copies, key=lambda copy: copy.payload), strict=True):
        attributes = dict(copy.message.attributes)
        assert copy.payload == str(n)
        assert (attributes["n"], attributes["all"]) == (str(n), "yes")
        assert attributes["x-original-topic"] == TOPIC
        assert attributes["x-original-topic-offset"] == str(n)
        assert attributes["x-original-producer-id"] == str(producer.id)
        assert attributes["x-failure-reason"] == "cannot be used"
        assert attributes["x-delivery-attempt"] == "2"
        assert "x-deliver-after" not in attributes
    await broker.restart()
    assert (await (await broker.native()).subscribe(TOPIC, kind=SHARED)).subscribed.next_offset == 10


async def test_dropped_messages_of_a_batch_are_skipped(start_broker: StartBroker) -> None:
    broker = await start_broker({(TOPIC, "subscription"): _policy(PoisonPolicy.DROP)})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC)
    await producer.send_batch(*_numbers(0, 5))
    await consumer.take(5)
    await consumer.nack(1, 3)
    await consumer.ack(0)
    await consumer.ack(4)
    await consumer.close()
    again = await native.subscribe(TOPIC)
    assert again.subscribed.next_offset == 5


async def test_a_blocked_message_of_a_batch_holds_back_what_is_new(start_broker: StartBroker) -> None:
    broker = await start_broker({(TOPIC, "subscription"): _policy(PoisonPolicy.BLOCK)})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC)
    await producer.send_batch(*_numbers(0, 5))
    await consumer.take(5)
    await consumer.nack(2)
    await producer.send_batch(*_numbers(5, 10))
    await consumer.ack(0, 4)
    await consumer.assert_silent(0.6)
    assert await consumer.seek(EARLIEST) == 0  # which ends the block
    await consumer.seeked()
    assert await consumer.offsets(10) == list(range(10))
