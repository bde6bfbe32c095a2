"""Stopping and starting again: what clients may go on with (data-plane spec, §5, §13.4; graceful stop)."""

import asyncio

import grpc
import pytest
from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import KINDS, SHARED, Producer, Status, WireClient, refused

TOPIC = "/default/t"


@pytest.mark.parametrize("reliable", [True, False])
async def test_ids_work_after_a_restart_without_creating_them_again(
    broker: RunningBroker, client: WireClient, reliable: bool
) -> None:
    producer = await client.create_producer(TOPIC, reliable=reliable)
    consumers = [await client.subscribe(TOPIC, f"s{kind}", kind=kind) for kind in KINDS.values()]
    await broker.restart()
    client = broker.client()
    streams = [await client.receive(consumer.id) for consumer in consumers]
    assert await client.producer_is_healthy(producer.id)
    await Producer(client, TOPIC, producer.name, producer.id).send("hello")
    for stream in streams:
        assert await stream.payloads(1) == ["hello"]
    for consumer in consumers:
        assert await client.consumer_is_healthy(consumer.id)


@pytest.mark.parametrize("reliable", [True, False])
async def test_names_keep_their_ids_over_a_restart(
    broker: RunningBroker, client: WireClient, reliable: bool
) -> None:
    producer = await client.create_producer(TOPIC, reliable=reliable)
    consumer = await client.subscribe(TOPIC)
    await broker.restart()
    client = broker.client()
    assert (await client.create_producer(TOPIC, reliable=reliable)).id == producer.id
    assert (await client.subscribe(TOPIC)).id == consumer.id


async def test_a_client_that_stays_goes_on_over_its_old_channel(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    stream = await consumer.open()
    await broker.restart()
    assert await stream.ended() == Status.UNAVAILABLE
    stream = await consumer.open()
    await producer.send("hello")
    assert await stream.payloads(1) == ["hello"]


async def test_a_consumer_that_does_not_come_back_after_a_restart_is_told_close(
    broker: RunningBroker, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await broker.restart()
    client = broker.client()
    assert not await client.consumer_is_healthy(consumer.id)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="too early")
    broker.clock.advance(6_000)
    await client.subscribe(TOPIC, name="heir")


@pytest.mark.parametrize("reliable", [True, False])
async def test_a_stopping_broker_ends_streams_with_unavailable(
    broker: RunningBroker, client: WireClient, reliable: bool
) -> None:
    await client.create_producer(TOPIC, reliable=reliable)
    stream = await client.consume(TOPIC)
    await broker.stop()
    assert await stream.ended() == Status.UNAVAILABLE


async def test_publishes_into_a_stopping_broker_are_kept_or_refused_as_unavailable(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    await client.subscribe(TOPIC)
    taken: list[str] = []
    refusals: list[grpc.StatusCode] = []

    async def publish() -> None:
        while not refusals:
            payload = str(len(taken))
            try:
                await producer.send(payload)
            except grpc.aio.AioRpcError as error:
                refusals.append(error.code())
            else:
                taken.append(payload)

    publishing = asyncio.create_task(publish())
    while len(taken) < 20:
        await asyncio.sleep(0)
    await broker.stop()
    await publishing
    assert refusals == [Status.UNAVAILABLE]
    await broker.start()
    stream = await broker.client().consume(TOPIC)
    assert await stream.take_acked(len(taken)) == taken
    # A message whose answer was cut off with the connection may have been kept; never more than that one.
    assert len(taken) >= 20


async def test_acks_before_a_stop_are_remembered(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all(*(str(n) for n in range(30)))
    assert await stream.take_acked(25) == [str(n) for n in range(25)]
    await broker.restart()
    again = await broker.client().consume(TOPIC)
    assert await again.payloads(5) == [str(n) for n in range(25, 30)]
    await again.assert_silent()


async def test_a_stop_is_prompt_though_clients_stay_connected(broker: RunningBroker) -> None:
    clients = [broker.client() for _ in range(5)]
    for n, client in enumerate(clients):
        await client.create_producer(TOPIC, f"p{n}")
        await client.consume(TOPIC, name=f"c{n}", kind=SHARED)
    await asyncio.wait_for(broker.stop(), 4)


async def test_many_restarts_lose_and_repeat_nothing_acked(broker: RunningBroker) -> None:
    expected = []
    for n in range(4):
        client = broker.client()
        producer = await client.create_producer(TOPIC)
        stream = await client.consume(TOPIC)
        assert await stream.take_acked(len(expected)) == expected
        await stream.assert_silent(0.1)
        await stream.close()
        expected = [f"{n} {k}" for k in range(12)]
        await producer.send_all(*expected)
        await client.close()
        await broker.restart()
