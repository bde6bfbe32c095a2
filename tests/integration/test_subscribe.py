"""Subscribe: order of checks, position, takeover, places freed (data-plane spec, §8)."""

import asyncio
import contextlib

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    Status,
    WireClient,
    eventually,
    refused,
)

TOPIC = "/default/t"


async def test_an_exclusive_subscription_refuses_another_name(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, name="first")
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="second")
    await client.subscribe(TOPIC, "another", "second")


async def test_the_type_is_its_creators_whatever_a_later_consumer_asks_for(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, "exclusive", "first", kind=EXCLUSIVE)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, "exclusive", "second", kind=SHARED)
    await client.subscribe(TOPIC, "shared", "first", kind=SHARED)
    await client.subscribe(TOPIC, "shared", "second", kind=EXCLUSIVE)


async def test_an_unknown_type_is_invalid_on_a_new_subscription(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    for kind in (4, 100, -1):
        with refused(Status.INVALID_ARGUMENT):
            await client.subscribe(TOPIC, kind=kind)
    await client.subscribe(TOPIC, kind=SHARED)


async def test_limits_are_checked_before_the_type(start_broker: StartBroker) -> None:
    client = (await start_broker(policies={"max_subscriptions_per_topic": 1})).client()
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, "first")
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, "second", kind=99)


async def test_takeover_passes_every_limit(start_broker: StartBroker) -> None:
    limits = {
        "max_consumers_per_topic": 1,
        "max_consumers_per_subscription": 1,
        "max_subscriptions_per_topic": 1,
    }
    client = (await start_broker(policies=limits)).client()
    await client.create_producer(TOPIC)
    first = await client.subscribe(TOPIC)
    assert (await client.subscribe(TOPIC, kind=99)).id == first.id


async def test_the_position_is_fixed_when_subscribe_returns(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    await producer.send("before")
    consumer = await client.subscribe(TOPIC)
    await producer.send_all("after", "later")
    stream = await consumer.open()
    assert await stream.payloads(2) == ["after", "later"]
    await stream.assert_silent()


async def test_the_first_position_survives_a_restart_before_any_ack(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    await producer.send("before")
    await client.subscribe(TOPIC)
    await broker.restart()
    client = broker.client()
    await (await client.create_producer(TOPIC)).send("after")
    assert await (await client.consume(TOPIC)).payloads(1) == ["after"]


async def test_the_same_name_gets_the_same_id_and_the_old_stream_ends_ok(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    first = await client.subscribe(TOPIC)
    old = await first.open()
    await producer.send("one")
    await old.next()
    second = await client.subscribe(TOPIC)
    assert second.id == first.id
    assert await old.ended() == Status.OK
    new = await second.open()
    assert await new.payloads(1) == ["one"]


async def test_takeover_repeats_the_unacked_in_order_and_leaks_nothing_else(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    old = await client.consume(TOPIC)
    await producer.send_all(*(str(n) for n in range(25)))
    window = await old.take(10)
    await old.ack(window[0], window[4])
    acked_more = await old.take(2)
    assert [message.msg_id.topic_offset for message in acked_more] == [10, 11]
    new = await broker.client().consume(TOPIC)
    received = []
    while len(received) < 23:
        message = await new.next()
        received.append(message.msg_id.topic_offset)
        await new.ack(message)
    assert received == [1, 2, 3, *range(5, 25)]
    await new.assert_silent()


async def test_the_late_end_of_an_old_stream_changes_nothing(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    old = await consumer.open()
    new = await broker.client().receive(consumer.id, topic=TOPIC, subscription="subscription")
    assert await old.ended() == Status.OK
    await old.close()
    await client.close()
    other = broker.client()
    assert await other.consumer_is_healthy(consumer.id)
    await (await other.create_producer(TOPIC, producer.name)).send("hello")
    assert await new.payloads(1) == ["hello"]


async def test_an_exclusive_place_is_freed_some_seconds_after_its_holder_left(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    holder = await client.subscribe(TOPIC, name="holder")
    stream = await holder.open()
    await producer.send("unacked")
    await stream.next()
    await stream.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(holder.id)

    await eventually(is_gone)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="heir")
    broker.clock.advance(6_000)
    heir = await client.subscribe(TOPIC, name="heir")
    assert heir.id != holder.id
    assert await (await heir.open()).payloads(1) == ["unacked"]
    with refused(Status.UNAVAILABLE):
        await holder.open()
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="holder")


async def test_a_holder_that_is_streaming_keeps_its_place(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, name="holder")
    broker.clock.advance(3_600_000)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="heir")
    await stream.assert_silent(0.05)


async def test_a_holder_that_never_opened_its_stream_is_waited_for(
    broker: RunningBroker, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, name="holder")
    broker.clock.advance(20_000)
    with refused(Status.PERMISSION_DENIED):
        await client.subscribe(TOPIC, name="heir")
    broker.clock.advance(20_000)
    await client.subscribe(TOPIC, name="heir")


async def test_key_filters_are_adopted_anew(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KEY_SHARED, key_filters=["a*"])
    await producer.send("1", routing_key="apple")
    await producer.send("skipped", routing_key="pear")
    assert await stream.take_acked(1) == ["1"]
    stream = await client.consume(TOPIC, kind=KEY_SHARED, key_filters=["p*"])
    await producer.send("skipped", routing_key="apple")
    await producer.send("2", routing_key="pear")
    assert await stream.take_acked(1) == ["2"]
    await stream.assert_silent()


async def test_new_key_filters_survive_a_restart(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, kind=KEY_SHARED, key_filters=["a"])
    consumer = await client.subscribe(TOPIC, kind=KEY_SHARED, key_filters=["b"])
    await broker.restart()
    client = broker.client()
    stream = await client.receive(consumer.id)
    producer = await client.create_producer(TOPIC)
    await producer.send("skipped", routing_key="a")
    await producer.send("taken", routing_key="b")
    assert await stream.payloads(1) == ["taken"]


async def test_other_filters_leave_the_join_order_alone(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = [await client.consume(TOPIC, name=name, kind=FAILOVER) for name in ("first", "second", "third")]
    second = await client.consume(TOPIC, name="second", kind=FAILOVER, key_filters=["ignored"])
    await streams[0].close()
    await producer.send("for the second")
    assert await second.payloads(1) == ["for the second"]
    await streams[2].assert_silent(0.1)


async def test_a_fight_over_a_name_is_damped_and_its_last_winner_served(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await producer.send("prize")
    fighters = [broker.client(), broker.client()]
    rounds = served = 0
    until = asyncio.get_running_loop().time() + 1.5
    while asyncio.get_running_loop().time() < until:
        stream = await fighters[rounds % 2].receive(consumer.id)
        rounds += 1
        with contextlib.suppress(AssertionError):  # held back
            await stream.next(within=0.1)
            served += 1
    assert 3 <= served < rounds - 3, "the first few at once, the others later"
    winner = await fighters[0].receive(consumer.id)
    assert await winner.payloads(1) == ["prize"]


async def test_parallel_subscribes_of_one_name_agree_on_one_id(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    consumers = await asyncio.gather(*(client.subscribe(TOPIC) for _ in range(10)))
    assert len({consumer.id for consumer in consumers}) == 1


async def test_parallel_subscribes_of_many_names_fill_one_exclusive_place(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    attempts = [client.subscribe(TOPIC, name=f"c{n}") for n in range(10)]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 1


async def test_names_must_be_given(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    for subscription, name in (("", "consumer"), ("subscription", ""), ("s" * 300, "consumer")):
        with refused(Status.INVALID_ARGUMENT):
            await client.subscribe(TOPIC, subscription, name)
