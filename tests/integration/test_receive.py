"""ReceiveMessages and HealthCheck: the life of a stream (data-plane spec, §9 and §10)."""

import asyncio

from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import SHARED, Status, WireClient, eventually, refused

TOPIC = "/default/t"


async def test_headers_come_at_once_on_an_idle_topic(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    call = client.receive_call(consumer.id)
    assert await asyncio.wait_for(call.initial_metadata(), 5) is not None
    assert not call.done()
    call.cancel()


async def test_an_unknown_consumer_is_refused_without_a_stream(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    for unknown in (0, 1, producer.id):
        with refused(Status.NOT_FOUND):
            await client.receive(unknown)


async def test_a_second_stream_takes_over_and_the_first_ends_ok(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    first = await consumer.open()
    second = await consumer.open()
    assert await first.ended() == Status.OK
    await producer.send("hello")
    assert await second.payloads(1) == ["hello"]


async def test_an_idle_disconnect_is_noticed(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    stream = await consumer.open()
    assert await client.consumer_is_healthy(consumer.id)
    await stream.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(consumer.id)

    await eventually(is_gone, within=2)


async def test_a_lost_connection_is_noticed(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    doomed = broker.client()
    consumer = await doomed.subscribe(TOPIC)
    await consumer.open()
    await doomed.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(consumer.id)

    await eventually(is_gone, within=2)


async def test_an_idle_stream_stays_open(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    broker.clock.advance(24 * 3_600_000)
    await stream.assert_silent(1.2)  # two ticks of the broker
    producer = await client.create_producer(TOPIC)
    await producer.send("still here")
    assert await stream.payloads(1) == ["still here"]


async def test_many_consumers_stream_over_one_connection(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = [await client.consume(TOPIC, f"s{n}") for n in range(100)]
    await producer.send("for all")
    for stream in streams:
        assert await stream.payloads(1) == ["for all"]


async def test_known_ids_are_healthy(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    assert await client.producer_is_healthy(producer.id)
    stream_owner = await client.subscribe(TOPIC)
    await stream_owner.open()
    assert await client.consumer_is_healthy(stream_owner.id)


async def test_a_consumer_that_has_not_opened_its_stream_yet_is_not_closed(
    broker: RunningBroker, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    assert await client.consumer_is_healthy(consumer.id)
    broker.clock.advance(29_000)
    assert await client.consumer_is_healthy(consumer.id)
    broker.clock.advance(5_000)
    assert not await client.consumer_is_healthy(consumer.id)


async def test_resubscribing_heals_a_closed_consumer(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    broker.clock.advance(60_000)
    assert not await client.consumer_is_healthy(consumer.id)
    assert not await client.consumer_is_healthy(consumer.id), "a known id is told CLOSE as often as it asks"
    await client.subscribe(TOPIC)
    assert await client.consumer_is_healthy(consumer.id)


async def test_an_unknown_id_hears_close_once_and_then_not_found(client: WireClient) -> None:
    for healthy in (client.producer_is_healthy, client.consumer_is_healthy):
        identifier = 4_711 if healthy == client.producer_is_healthy else 4_712
        assert not await healthy(identifier)
        for _ in range(2):
            with refused(Status.NOT_FOUND):
                await healthy(identifier)


async def test_producer_and_consumer_ids_are_not_mixed_up(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    assert not await client.consumer_is_healthy(producer.id)
    assert not await client.producer_is_healthy(consumer.id)


async def test_an_unknown_client_type_is_invalid(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    for kind in (2, -1):
        with refused(Status.INVALID_ARGUMENT):
            await client.health(kind, producer.id)


async def test_a_stream_opened_again_within_moments_keeps_the_consumer(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=SHARED)
    for n in range(3):
        stream = await consumer.open()
        await producer.send(str(n))
        assert await stream.take_acked(1) == [str(n)]
        await stream.close()
    assert await client.subscribe(TOPIC, kind=SHARED) == consumer
