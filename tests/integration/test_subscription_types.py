"""Who receives what: failover, shared and key-shared (data-plane spec, §11.5 and §11.7)."""

from collections import Counter

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import FAILOVER, KEY_SHARED, SHARED, Stream, WireClient, eventually

from pydanube.kernel.policies import BackoffStrategy, FailurePolicy

TOPIC = "/default/t"


async def _consumers(client: WireClient, kind: int, *names: str) -> list[Stream]:
    return [await client.consume(TOPIC, name=name, kind=kind) for name in names]


# --- failover


async def test_only_the_earliest_connected_consumer_is_active(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    active, *standbys = await _consumers(client, FAILOVER, "a", "b", "c")
    await producer.send_all("0", "1")
    assert await active.payloads(2) == ["0", "1"]
    for standby in standbys:
        await standby.assert_silent(0.1)


async def test_failover_goes_by_join_order_and_resends_all_unacked_in_order(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    a, b, c = await _consumers(client, FAILOVER, "a", "b", "c")
    await producer.send_all(*(str(n) for n in range(15)))
    window = await a.take(10)
    await a.ack(window[1])
    assert await a.offsets(1) == [10]
    await a.close()
    assert await b.offsets(10) == [0, *range(2, 11)]
    await b.close()
    assert await c.take_acked(14) == ["0", *(str(n) for n in range(2, 15))]
    await c.assert_silent()


async def test_a_returning_former_active_waits_as_standby(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    a, b = await _consumers(client, FAILOVER, "a", "b")
    await a.close()
    await producer.send("0")
    assert await b.take_acked(1) == ["0"]
    (a,) = await _consumers(client, FAILOVER, "a")
    await producer.send("1")
    assert await b.take_acked(1) == ["1"]
    await a.assert_silent(0.1)
    await b.close()
    await producer.send("2")
    assert await a.take_acked(1) == ["2"]


async def test_a_new_stream_of_the_active_consumer_is_no_absence_a_standby_fills(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    a = await client.subscribe(TOPIC, name="a", kind=FAILOVER)
    await a.open()
    b = await client.consume(TOPIC, name="b", kind=FAILOVER)
    again = await a.open()
    await producer.send_all("0", "1")
    assert await again.take_acked(2) == ["0", "1"]
    await b.assert_silent(0.1)


async def test_each_partition_fails_over_on_its_own(client: WireClient) -> None:
    topics = [f"/default/p-part-{n}" for n in range(2)]
    producers = [await client.create_producer(topic) for topic in topics]
    first = [await client.consume(topic, name="first", kind=FAILOVER) for topic in topics]
    second = [await client.consume(topic, name="second", kind=FAILOVER) for topic in topics]
    await first[0].close()
    for producer in producers:
        await producer.send("hello")
    assert await second[0].payloads(1) == ["hello"]
    assert await first[1].payloads(1) == ["hello"]
    await second[1].assert_silent(0.1)


# --- shared


async def test_shared_rotates_strictly_in_join_order(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = await _consumers(client, SHARED, "a", "b", "c")
    for n in range(9):
        await producer.send(str(n))
        message = await streams[n % 3].next()
        assert message.payload == str(n).encode()
        await streams[n % 3].ack(message)


async def test_three_k_messages_give_three_consumers_k_each(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = await _consumers(client, SHARED, "a", "b", "c")
    await producer.send_all(*(str(n) for n in range(9)))
    for first, stream in enumerate(streams):
        assert await stream.take_acked(3) == [str(n) for n in range(first, 9, 3)]


async def test_a_consumer_without_a_stream_is_passed_over(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = await _consumers(client, SHARED, "a", "b")
    await client.subscribe(TOPIC, name="never opened", kind=SHARED)
    await producer.send_all(*(str(n) for n in range(8)))
    for stream in streams:
        assert len(await stream.take_acked(4)) == 4


async def test_a_nacked_message_may_go_to_another_consumer(start_broker: StartBroker) -> None:
    policy = FailurePolicy(base_redelivery_delay_ms=20, backoff_strategy=BackoffStrategy.FIXED)
    client = (await start_broker({(TOPIC, "subscription"): policy})).client()
    producer = await client.create_producer(TOPIC)
    a, b = await _consumers(client, SHARED, "a", "b")
    await producer.send("restless")
    await a.nack(await a.next())
    assert await b.take_acked(1) == ["restless"]


# --- key-shared


async def _send_keys(client: WireClient, keys: list[str], per_key: int = 1) -> None:
    producer = await client.create_producer(TOPIC)
    for n in range(per_key):
        for key in keys:
            await producer.send(f"{key} {n}", routing_key=key)


async def _take_keys(streams: list[Stream], counts: list[int]) -> list[list[str]]:
    return [await stream.take_acked(count) for stream, count in zip(streams, counts, strict=True)]


async def test_four_keys_use_both_of_two_consumers_and_stick(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    streams = await _consumers(client, KEY_SHARED, "a", "b")
    await _send_keys(client, ["k1", "k2", "k3", "k4"], per_key=3)
    owned = []
    for messages in await _take_keys(streams, [6, 6]):
        keys = Counter(text.split()[0] for text in messages)
        assert set(keys.values()) == {3}, "a key has one owner"
        for key in keys:
            assert [text for text in messages if text.startswith(key)] == [f"{key} {n}" for n in range(3)]
        owned.append(set(keys))
    assert owned[0].isdisjoint(owned[1])
    assert owned[0]
    assert owned[1]


async def test_one_message_per_key_is_outstanding(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    (stream,) = await _consumers(client, KEY_SHARED, "a")
    await _send_keys(client, ["x", "y"], per_key=3)
    first = await stream.take(2)
    assert [message.payload for message in first] == [b"x 0", b"y 0"]
    await stream.assert_silent()
    await stream.ack(first[1])
    assert await stream.payloads(1) == ["y 1"]
    await stream.assert_silent()


async def test_without_routing_key_the_producers_name_is_the_key(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    (stream,) = await _consumers(client, KEY_SHARED, "a")
    one, two = await client.create_producer(TOPIC, "one"), await client.create_producer(TOPIC, "two")
    await one.send_all("one 0", "one 1")
    await two.send("two 0")
    assert await stream.payloads(2) == ["one 0", "two 0"]
    await stream.assert_silent()


async def test_an_empty_routing_key_is_a_key(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    (stream,) = await _consumers(client, KEY_SHARED, "a")
    await producer.send("empty key", routing_key="")
    await producer.send("no key")
    assert await stream.payloads(2) == ["empty key", "no key"]


async def test_filters_are_whole_key_globs_and_any_one_suffices(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    filters = ["order-*", "v?", "exact", "[ab]"]
    stream = await client.consume(TOPIC, kind=KEY_SHARED, key_filters=filters)
    wanted = ["order-", "order-17", "v1", "exact", "[ab]"]
    for key in ("Order-1", "my-order-1", "v", "v12", "vü", "exactly", "a", "", *wanted):
        await producer.send(key, routing_key=key)
    assert await stream.take_acked(len(wanted)) == wanted
    await stream.assert_silent()


async def test_what_nobody_wants_is_skipped_for_good(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KEY_SHARED, key_filters=["wanted"])
    for n in range(30):
        await producer.send(f"unwanted {n}", routing_key="unwanted")
    await producer.send("wanted", routing_key="wanted")
    assert await stream.take_acked(1) == ["wanted"]
    await broker.restart()
    again = await broker.client().consume(TOPIC, kind=KEY_SHARED)
    await again.assert_silent()


async def test_an_unfiltered_consumer_competes_for_filtered_keys(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    filtered = await client.consume(TOPIC, name="filtered", kind=KEY_SHARED, key_filters=["a*"])
    unfiltered = await client.consume(TOPIC, name="unfiltered", kind=KEY_SHARED)
    for n in range(4):
        await producer.send(str(n), routing_key=f"a{n}")
    assert len(await filtered.take_acked(2)) == len(await unfiltered.take_acked(2)) == 2
    await producer.send("b", routing_key="b")
    assert await unfiltered.take_acked(1) == ["b"]


async def test_with_no_consumer_connected_nothing_is_skipped(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=KEY_SHARED, key_filters=["a"])
    await producer.send("kept", routing_key="a")
    stream = await consumer.open()
    assert await stream.payloads(1) == ["kept"]


async def test_a_join_moves_only_its_share_and_keeps_every_key_in_order(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    keys = [f"k{n}" for n in range(4)]
    (a,) = await _consumers(client, KEY_SHARED, "a")
    await _send_keys(client, keys, per_key=2)
    outstanding = await a.take(4)
    (b,) = await _consumers(client, KEY_SHARED, "b")
    await b.assert_silent()  # what moved still has its message with the old owner
    await a.ack(*outstanding)
    kept, moved = await a.take_acked(2), await b.take_acked(2)
    assert sorted(kept + moved) == [f"{key} 1" for key in keys]


async def test_a_consumer_back_within_the_grace_gets_its_unacked_at_once(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    a, b = await _consumers(client, KEY_SHARED, "a", "b")
    await _send_keys(client, ["x", "y"])
    mine = (await a.next()).payload
    await b.take_acked(1)
    await a.close()
    (a,) = await _consumers(client, KEY_SHARED, "a")
    assert (await a.next()).payload == mine
    await b.assert_silent(0.1)


async def test_an_evicted_consumers_messages_go_to_others_in_front_of_their_keys(
    broker: RunningBroker, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    a, b = await _consumers(client, KEY_SHARED, "a", "b")
    await _send_keys(client, ["x", "y"], per_key=2)
    left = (await a.next()).payload.decode()
    key = left.split()[0]
    assert len(await b.take_acked(2)) == 2
    await a.close()
    await b.assert_silent(0.6)  # within the grace
    broker.clock.advance(3_000)
    assert await b.take_acked(2) == [f"{key} 0", f"{key} 1"]


async def test_an_evicted_consumer_is_admitted_again(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    a_consumer = await client.subscribe(TOPIC, name="a", kind=KEY_SHARED)
    a = await a_consumer.open()
    (b,) = await _consumers(client, KEY_SHARED, "b")
    await a.close()
    broker.clock.advance(10_000)
    await _send_keys(client, ["x", "y", "z", "w"])
    assert len(await b.take_acked(4)) == 4
    again = await client.subscribe(TOPIC, name="a", kind=KEY_SHARED)
    assert again.id == a_consumer.id
    a = await again.open()
    await _send_keys(client, ["x", "y", "z", "w"])
    assert len(await a.take_acked(2)) == len(await b.take_acked(2)) == 2


async def test_a_nacked_key_waits_for_its_message_and_others_go_on(start_broker: StartBroker) -> None:
    policy = FailurePolicy(base_redelivery_delay_ms=400, backoff_strategy=BackoffStrategy.FIXED)
    client = (await start_broker({(TOPIC, "subscription"): policy})).client()
    await client.create_producer(TOPIC)
    (stream,) = await _consumers(client, KEY_SHARED, "a")
    await _send_keys(client, ["x", "y"], per_key=2)
    x, y = await stream.take(2)
    await stream.nack(x)
    await stream.ack(y)
    assert await stream.take_acked(3) == ["y 1", "x 0", "x 1"]


async def test_the_last_consumer_leaving_loses_nothing(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=KEY_SHARED)
    stream = await consumer.open()
    await _send_keys(client, ["x", "y"], per_key=2)
    await stream.take(2)
    await stream.close()

    async def is_gone() -> bool:
        return not await client.consumer_is_healthy(consumer.id)

    await eventually(is_gone)
    broker.clock.advance(60_000)
    await _send_keys(client, ["z"])
    again = await client.consume(TOPIC, kind=KEY_SHARED)
    assert sorted(await again.take_acked(5)) == ["x 0", "x 1", "y 0", "y 1", "z 0"]
