"""Policies: what is limited, how it is said, and who counts (data-plane spec, §7.4)."""

import asyncio

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import SHARED, Status, WireClient, eventually, refused

from pydanube.kernel.policies import Policies


async def _client(start_broker: StartBroker, **policies: int) -> tuple[RunningBroker, WireClient]:
    broker = await start_broker(policies=policies)
    return broker, broker.client()


async def test_producers_per_topic(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_producers_per_topic=2)
    for name in ("a", "b"):
        await client.create_producer("/default/t", name)
    with refused(Status.RESOURCE_EXHAUSTED, "max_producers_per_topic"):
        await client.create_producer("/default/t", "c")
    await client.create_producer("/default/t", "a")
    await client.create_producer("/default/other", "c")


async def test_producers_that_neither_send_nor_ping_no_longer_count(start_broker: StartBroker) -> None:
    broker, client = await _client(start_broker, max_producers_per_topic=2)
    pinging = await client.create_producer("/default/t", "pinging")
    silent = await client.create_producer("/default/t", "silent")
    broker.clock.advance(59_000)
    assert await client.producer_is_healthy(pinging.id)
    broker.clock.advance(2_000)
    await client.create_producer("/default/t", "new")
    with refused(Status.RESOURCE_EXHAUSTED):
        await client.create_producer("/default/t", "one too many")
    await silent.send("an id stays good")


async def test_a_producer_that_sends_counts(start_broker: StartBroker) -> None:
    broker, client = await _client(start_broker, max_producers_per_topic=1)
    sending = await client.create_producer("/default/t", "sending")
    broker.clock.advance(61_000)
    await sending.send("alive")
    with refused(Status.RESOURCE_EXHAUSTED):
        await client.create_producer("/default/t", "new")


async def test_subscriptions_per_topic_count_when_one_is_made_not_when_joined(
    start_broker: StartBroker,
) -> None:
    _, client = await _client(start_broker, max_subscriptions_per_topic=1)
    await client.create_producer("/default/t")
    await client.subscribe("/default/t", "first", "a", kind=SHARED)
    await client.subscribe("/default/t", "first", "b", kind=SHARED)
    with refused(Status.PERMISSION_DENIED, "max_subscriptions_per_topic"):
        await client.subscribe("/default/t", "second")


async def test_consumers_per_topic(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_consumers_per_topic=2)
    await client.create_producer("/default/t")
    await client.subscribe("/default/t", "first", "a", kind=SHARED)
    await client.subscribe("/default/t", "second", "b", kind=SHARED)
    with refused(Status.RESOURCE_EXHAUSTED, "max_consumers_per_topic"):
        await client.subscribe("/default/t", "second", "c", kind=SHARED)
    await client.subscribe("/default/t", "first", "a", kind=SHARED)


async def test_consumers_per_subscription(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_consumers_per_subscription=1)
    await client.create_producer("/default/t")
    await client.subscribe("/default/t", "first", "a", kind=SHARED)
    with refused(Status.PERMISSION_DENIED, "max_consumers_per_subscription"):
        await client.subscribe("/default/t", "first", "b", kind=SHARED)
    await client.subscribe("/default/t", "second", "b", kind=SHARED)


async def test_the_topic_limit_is_checked_before_the_subscription_limit(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_consumers_per_topic=1, max_consumers_per_subscription=1)
    await client.create_producer("/default/t")
    await client.subscribe("/default/t", name="a")
    with refused(Status.RESOURCE_EXHAUSTED):
        await client.subscribe("/default/t", name="b")


async def test_consumers_that_left_no_longer_count(start_broker: StartBroker) -> None:
    broker, client = await _client(start_broker, max_consumers_per_topic=1)
    await client.create_producer("/default/t")
    consumer = await client.subscribe("/default/t", name="a", kind=SHARED)
    stream = await consumer.open()
    with refused(Status.RESOURCE_EXHAUSTED):
        await client.subscribe("/default/t", name="b", kind=SHARED)
    await stream.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(consumer.id)

    await eventually(is_gone)
    broker.clock.advance(6_000)
    await client.subscribe("/default/t", name="b", kind=SHARED)


async def test_the_publish_rate_is_noted_but_never_enforced(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_publish_rate=1)
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    await producer.send_all(*(str(n) for n in range(10)))
    assert await stream.offsets(10) == list(range(10))


async def test_pacing_delays_delivery_and_loses_nothing(start_broker: StartBroker) -> None:
    _, client = await _client(start_broker, max_subscription_dispatch_rate=20)
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    await producer.send_all(*(str(n) for n in range(50)))
    started = asyncio.get_running_loop().time()
    assert await stream.take_acked(50) == [str(n) for n in range(50)]
    assert asyncio.get_running_loop().time() - started > 0.5, "fifty at twenty a second, twenty saved up"


async def test_a_topic_of_its_own_policies_does_not_follow_the_namespace(start_broker: StartBroker) -> None:
    broker, client = await _client(start_broker, max_producers_per_topic=1)
    await client.create_producer("/default/generous", "a")
    await broker.stop()
    await broker.put_topic_policies("/default/generous", Policies(max_producers_per_topic=2))
    await broker.start()
    client = broker.client()
    await client.create_producer("/default/generous", "b")
    with refused(Status.RESOURCE_EXHAUSTED):
        await client.create_producer("/default/generous", "c")
