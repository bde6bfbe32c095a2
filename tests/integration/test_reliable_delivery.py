"""Reliable delivery: acks, nacks, deadlines, windows, cursors (data-plane spec, §11.1 to §11.3)."""

import asyncio

import pytest
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import KINDS, SHARED, Status, WireClient, refused

from pydanube.kernel.policies import BackoffStrategy, FailurePolicy
from pydanube.protocol import danube_pb2 as pb

TOPIC = "/default/t"
QUICK = FailurePolicy(
    base_redelivery_delay_ms=50, max_redelivery_delay_ms=1_000, backoff_strategy=BackoffStrategy.FIXED
)
SLOW = FailurePolicy(base_redelivery_delay_ms=3_600_000, max_redelivery_delay_ms=3_600_000)


async def _broker(start_broker: StartBroker, policy: FailurePolicy) -> RunningBroker:
    return await start_broker({(TOPIC, "subscription"): policy})


@pytest.mark.parametrize("kind", KINDS)
async def test_acked_messages_do_not_come_back(client: WireClient, kind: str) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=KINDS[kind])
    stream = await consumer.open()
    for n in range(5):
        await producer.send(str(n), routing_key=str(n))
    messages = await stream.take(5)
    await stream.ack(messages[0], messages[2], messages[4])
    await stream.close()
    again = await consumer.open()
    assert await again.payloads(2) == ["1", "3"]
    await again.assert_silent()


@pytest.mark.parametrize("kind", KINDS)
async def test_ten_messages_are_outstanding_by_default(client: WireClient, kind: str) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    for n in range(15):
        await producer.send(str(n), routing_key=str(n))
    window = await stream.take(10)
    await stream.assert_silent()
    await stream.ack(window[5])
    assert (await stream.next()).payload == b"10"
    await stream.assert_silent()
    await stream.ack(*window[:5])
    assert await stream.payloads(4) == ["11", "12", "13", "14"]


async def test_the_window_is_shared_by_all_consumers_of_a_subscription(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    streams = [await client.consume(TOPIC, name=f"c{n}", kind=SHARED) for n in range(2)]
    await producer.send_all(*(str(n) for n in range(15)))
    for stream in streams:
        await stream.take(5)
    for stream in streams:
        await stream.assert_silent()


async def test_the_window_of_the_whole_broker_can_be_set(start_broker: StartBroker) -> None:
    client = (await start_broker(dispatch={"max_unacked_messages": 3})).client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("0", "1", "2", "3")
    await stream.take(3)
    await stream.assert_silent()


async def test_the_window_of_one_subscription_can_be_set(broker: RunningBroker) -> None:
    await broker.stop()
    await broker.put_window(TOPIC, "narrow", 1)
    await broker.start()
    client = broker.client()
    producer = await client.create_producer(TOPIC)
    narrow, wide = await client.consume(TOPIC, "narrow"), await client.consume(TOPIC, "wide")
    await producer.send_all("0", "1")
    await wide.take(2)
    await narrow.take(1)
    await narrow.assert_silent()


async def test_late_duplicate_and_unknown_acks_and_nacks_are_ok_and_mean_nothing(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("one")
    message = await stream.next()
    await stream.ack(message, message)
    await stream.nack(message)
    for offset in (1, 99, (1 << 64) - 1):
        unknown = pb.StreamMessage(msg_id=pb.MsgID(topic_name=TOPIC, topic_offset=offset))
        await stream.ack(unknown)
        await stream.nack(unknown)
    await stream.assert_silent()
    await producer.send("two")
    assert await stream.payloads(1) == ["two"]


async def test_any_consumer_may_ack_and_the_producer_id_plays_no_part(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    first = await client.consume(TOPIC, name="first", kind=SHARED)
    second = await client.consume(TOPIC, name="second", kind=SHARED)
    await producer.send_all("0", "1")
    message = await first.next()
    await second.next()
    message.msg_id.producer_id = 42
    message.msg_id.broker_addr = "elsewhere"
    await broker.client().ack(message)
    await first.close()
    await second.assert_silent()


async def test_an_ack_before_delivery_means_nothing(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await producer.send("one")
    await client.ack(pb.StreamMessage(msg_id=pb.MsgID(topic_name=TOPIC, topic_offset=0)))
    assert await (await consumer.open()).payloads(1) == ["one"]


async def test_acks_and_nacks_name_topic_and_subscription(client: WireClient) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC)
    for call in (client.ack, client.nack):
        with refused(Status.INTERNAL):
            await call(pb.StreamMessage(msg_id=pb.MsgID(topic_name=TOPIC)), "unknown")
        with refused(Status.UNAVAILABLE):
            await call(pb.StreamMessage(msg_id=pb.MsgID(topic_name="/default/unknown")))
    for method, request in (
        ("/danube.ConsumerService/Ack", pb.AckRequest(subscription_name="subscription")),
        ("/danube.ConsumerService/Nack", pb.NackRequest(subscription_name="subscription")),
    ):
        with refused(Status.INVALID_ARGUMENT, "msg_id"):
            await client.call(method, request)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_nacked_message_comes_back_as_it_was(start_broker: StartBroker, kind: str) -> None:
    client = (await _broker(start_broker, QUICK)).client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send("again", routing_key="key", attributes={"a": "b"})
    first = await stream.next()
    await stream.nack(first)
    assert await stream.next() == first
    await stream.ack(first)
    await stream.assert_silent()


async def test_a_nacked_message_comes_back_behind_what_was_sent_already(start_broker: StartBroker) -> None:
    client = (await _broker(start_broker, QUICK)).client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("0", "1", "2")
    first, *_ = await stream.take(3)
    await stream.nack(first)
    assert await stream.payloads(1) == ["0"]


async def test_the_nacks_delay_is_the_larger_of_policy_and_request_up_to_the_cap(
    start_broker: StartBroker,
) -> None:
    policy = FailurePolicy(
        base_redelivery_delay_ms=100_000,
        max_redelivery_delay_ms=300_000,
        backoff_strategy=BackoffStrategy.FIXED,
    )
    broker = await _broker(start_broker, policy)
    client = broker.client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("policy", "request", "capped")
    by_policy, by_request, capped = await stream.take(3)
    await stream.nack(by_policy, delay_ms=1)
    await stream.nack(by_request, delay_ms=200_000)
    await stream.nack(capped, delay_ms=3_600_000)
    await stream.assert_silent()
    for expected in ("policy", "request", "capped"):
        broker.clock.advance(90_000)
        await stream.assert_silent(0.6)  # more than a tick
        broker.clock.advance(10_000)
        assert await stream.take_acked(1) == [expected]


async def test_exponential_delays_double_with_every_send(start_broker: StartBroker) -> None:
    policy = FailurePolicy(base_redelivery_delay_ms=20_000, max_redelivery_delay_ms=1_000_000)
    broker = await _broker(start_broker, policy)
    client = broker.client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("again")
    for delay in (20_000, 40_000, 80_000):
        await stream.nack(await stream.next())
        broker.clock.advance(delay - 5_000)
        await stream.assert_silent(0.6)
        broker.clock.advance(5_000)
    await stream.next()


async def test_an_ack_deadline_that_passes_brings_the_message_back(start_broker: StartBroker) -> None:
    policy = FailurePolicy(
        ack_timeout_ms=200, base_redelivery_delay_ms=50, backoff_strategy=BackoffStrategy.FIXED
    )
    client = (await _broker(start_broker, policy)).client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("again")
    first = await stream.next()
    second = await stream.next()
    assert second == first
    await stream.ack(second)
    await stream.assert_silent(0.6)


async def test_the_default_ack_deadline_is_thirty_seconds(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("again")
    await stream.next()
    broker.clock.advance(25_000)
    await stream.assert_silent(0.6)
    broker.clock.advance(5_000)
    await stream.assert_silent(0.6)  # now it waits for the delay of a second
    await stream.next()


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_a_lost_stream_makes_everything_due_at_once_retry_delays_too(
    start_broker: StartBroker, kind: str
) -> None:
    client = (await _broker(start_broker, SLOW)).client()
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=KINDS[kind])
    stream = await consumer.open()
    await producer.send_all("0", "1", "2")
    messages = await stream.take(3)
    await stream.nack(messages[0])
    await stream.ack(messages[1])
    await stream.close()
    again = await consumer.open()
    assert await again.payloads(2) == ["0", "2"]


async def test_losing_a_stream_is_no_failure(start_broker: StartBroker) -> None:
    # The first failure would exhaust the message, and blocked it would never come again.
    client = (await _broker(start_broker, FailurePolicy(max_redelivery_count=0))).client()
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await producer.send("one")
    for _ in range(3):
        stream = await consumer.open()
        assert await stream.payloads(1) == ["one"]
        await stream.close()


async def test_others_outstanding_messages_are_not_resent_when_a_shared_consumer_leaves(
    client: WireClient,
) -> None:
    producer = await client.create_producer(TOPIC)
    stays = await client.consume(TOPIC, name="stays", kind=SHARED)
    leaves = await client.consume(TOPIC, name="leaves", kind=SHARED)
    await producer.send_all("0", "1", "2", "3")
    assert await stays.payloads(2) == ["0", "2"]
    assert await leaves.payloads(2) == ["1", "3"]
    await leaves.close()
    assert await stays.payloads(2) == ["1", "3"]
    await stays.assert_silent()


async def test_a_message_nacked_elsewhere_waits_though_another_consumer_leaves(
    start_broker: StartBroker,
) -> None:
    client = (await _broker(start_broker, SLOW)).client()
    producer = await client.create_producer(TOPIC)
    stays = await client.consume(TOPIC, name="stays", kind=SHARED)
    leaves = await client.consume(TOPIC, name="leaves", kind=SHARED)
    await producer.send_all("0", "1")
    await stays.nack(await stays.next())
    await leaves.next()
    await leaves.close()
    assert await stays.payloads(1) == ["1"]
    await stays.assert_silent(0.6)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_cursor_is_the_contiguous_prefix_and_survives_a_restart(
    broker: RunningBroker, client: WireClient, kind: str
) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    for n in range(6):
        await producer.send(str(n), routing_key=str(n))
    messages = await stream.take(6)
    await stream.ack(messages[0], messages[1], messages[3])
    await broker.restart()
    again = await broker.client().consume(TOPIC, kind=KINDS[kind])
    # 3 was acked behind a hole: at least once, so it may come again.
    assert await again.payloads(4) == ["2", "3", "4", "5"]
    await again.assert_silent()


async def test_subscriptions_are_independent(client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    quick, slow = await client.consume(TOPIC, "quick"), await client.consume(TOPIC, "slow")
    await producer.send_all(*(str(n) for n in range(30)))
    assert len(await quick.take_acked(30)) == 30
    assert await slow.offsets(10) == list(range(10))
    await slow.assert_silent()


async def test_a_backlog_beyond_the_window_is_delivered_after_a_restart(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    await client.subscribe(TOPIC)
    await asyncio.gather(*(producer.send(f"{n}" * 1_000) for n in range(300)))
    await broker.restart()
    stream = await broker.client().consume(TOPIC)
    for n in range(300):
        message = await stream.next()
        assert message.msg_id.topic_offset == n
        await stream.ack(message)
