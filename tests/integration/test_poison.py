"""What happens to a message that fails too often (data-plane spec, §11.4)."""

import pytest
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import KINDS, Stream, WireClient, eventually

from pydanube.kernel.policies import BackoffStrategy, FailurePolicy, PoisonPolicy

TOPIC = "/default/t"
DEAD = "/default/t-dlq"


def _policy(
    poison: PoisonPolicy, *, redeliveries: int = 0, dead_letter_topic: str | None = None
) -> FailurePolicy:
    return FailurePolicy(
        max_redelivery_count=redeliveries,
        base_redelivery_delay_ms=20,
        backoff_strategy=BackoffStrategy.FIXED,
        poison_policy=poison,
        dead_letter_topic=dead_letter_topic,
    )


async def _start(start_broker: StartBroker, policy: FailurePolicy) -> tuple[RunningBroker, WireClient]:
    broker = await start_broker({(TOPIC, "subscription"): policy})
    return broker, broker.client()


async def _fail(stream: Stream, payload: str, times: int = 1) -> None:
    for _ in range(times):
        message = await stream.next()
        assert message.payload.decode() == payload
        await stream.nack(message)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_is_sent_once_more_than_it_may_be_redelivered(
    start_broker: StartBroker, kind: str
) -> None:
    _, client = await _start(start_broker, _policy(PoisonPolicy.DROP, redeliveries=2))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send("bad")
    await _fail(stream, "bad", times=3)
    await stream.assert_silent(0.6)
    await producer.send("good")
    assert await stream.take_acked(1) == ["good"]


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover"])
async def test_block_stops_everything_new_for_the_whole_subscription(
    start_broker: StartBroker, kind: str
) -> None:
    broker, client = await _start(start_broker, _policy(PoisonPolicy.BLOCK))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    other = await client.consume(TOPIC, "unaffected")
    await producer.send_all("bad", "in the window")
    bad, in_window = await stream.take(2)
    await stream.nack(bad)
    await producer.send("new")
    await stream.ack(bad)  # too late: it is blocked
    await stream.ack(in_window)
    await stream.assert_silent(0.8)
    assert await other.take_acked(3) == ["bad", "in the window", "new"]
    await broker.restart()  # which ends the block
    again = await broker.client().consume(TOPIC, kind=KINDS[kind])
    assert (await again.next()).payload == b"bad"


async def test_block_stops_only_the_key_of_a_key_shared_subscription(start_broker: StartBroker) -> None:
    _, client = await _start(start_broker, _policy(PoisonPolicy.BLOCK))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS["key-shared"])
    await producer.send("bad", routing_key="a")
    await producer.send("behind it", routing_key="a")
    await _fail(stream, "bad")
    for n in range(20):
        await producer.send(f"b{n}", routing_key="b")
    assert await stream.take_acked(20) == [f"b{n}" for n in range(20)]
    await stream.assert_silent(0.6)


@pytest.mark.parametrize("kind", KINDS)
async def test_drop_goes_on_at_once_and_keeps_what_was_queued_behind(
    start_broker: StartBroker, kind: str
) -> None:
    _, client = await _start(start_broker, _policy(PoisonPolicy.DROP))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    for text in ("bad", "second", "third"):
        await producer.send(text, routing_key="one key")
    await _fail(stream, "bad")
    assert await stream.take_acked(2) == ["second", "third"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_skipped_message_counts_as_acked(start_broker: StartBroker, kind: str) -> None:
    broker, client = await _start(start_broker, _policy(PoisonPolicy.DROP))
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send("bad", routing_key="a")
    await _fail(stream, "bad")
    await producer.send("good", routing_key="b")
    assert await stream.take_acked(1) == ["good"]
    await broker.restart()
    again = await broker.client().consume(TOPIC, kind=KINDS[kind])
    await again.assert_silent(0.6)


@pytest.mark.parametrize("kind", KINDS)
async def test_dead_letter_copies_the_message_with_its_story(start_broker: StartBroker, kind: str) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, redeliveries=1, dead_letter_topic=DEAD)
    _, client = await _start(start_broker, policy)
    await client.create_producer(DEAD, "opens the topic")
    dead = await client.consume(DEAD, "undertaker")
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC, kind=KINDS[kind])
    await producer.send("before", routing_key="k")
    assert await stream.take_acked(1) == ["before"]
    await producer.send(
        "bad",
        routing_key="k",
        schema_id=7,
        schema_version=3,
        attributes={"own": "kept", "x-poison-policy": "forged"},
    )
    await producer.send("after", routing_key="k")
    failed = 0
    while failed < 2:
        message = await stream.next()
        if message.payload == b"bad":
            failed += 1
            await stream.nack(message, reason=f"failure {failed}")
        else:
            await stream.ack(message)
    copy = await dead.next()
    assert copy.payload == b"bad"
    assert dict(copy.attributes) == {
        "own": "kept",
        "x-original-topic": TOPIC,
        "x-original-subscription": "subscription",
        "x-original-topic-offset": "1",
        "x-original-producer-id": str(producer.id),
        "x-original-broker-addr": "http://127.0.0.1:6650",
        "x-poison-policy": "dead_letter",
        "x-delivery-attempt": "2",
        "x-failure-reason": "failure 2",
    }
    assert (copy.routing_key, copy.schema_id, copy.schema_version) == ("k", 7, 3)
    assert (copy.msg_id.topic_name, copy.msg_id.topic_offset) == (DEAD, 0)
    assert copy.msg_id.producer_id not in (0, producer.id)
    assert copy.producer_name != producer.name
    assert copy.publish_time > 1_700_000_000_000
    if kind == "key-shared":
        assert await stream.take_acked(1) == ["after"]
    await stream.assert_silent(0.1)


async def test_a_missing_dead_letter_topic_is_made_reliable(start_broker: StartBroker) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD)
    _, client = await _start(start_broker, policy)
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("bad", "good")
    bad, good = await stream.take(2)
    await stream.nack(bad)
    await stream.ack(good)
    await producer.send("next")
    assert await stream.take_acked(1) == ["next"]

    async def is_made() -> bool:
        return await client.partitions(DEAD) == [DEAD]

    await eventually(is_made)
    await client.create_producer(DEAD, reliable=True)


async def test_a_non_reliable_dead_letter_topic_gets_its_copies_too(start_broker: StartBroker) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD)
    _, client = await _start(start_broker, policy)
    await client.create_producer(DEAD, reliable=False)
    dead = await client.consume(DEAD)
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("bad")
    await _fail(stream, "bad")
    assert await dead.payloads(1) == ["bad"]


async def test_a_nack_without_reason_leaves_none_in_the_copy(start_broker: StartBroker) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD)
    _, client = await _start(start_broker, policy)
    await client.create_producer(DEAD)
    dead = await client.consume(DEAD)
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("bad")
    await _fail(stream, "bad")
    assert "x-failure-reason" not in (await dead.next()).attributes


async def test_a_missed_deadline_is_the_reason_in_the_copy(start_broker: StartBroker) -> None:
    policy = FailurePolicy(
        max_redelivery_count=0,
        ack_timeout_ms=100,
        poison_policy=PoisonPolicy.DEAD_LETTER,
        dead_letter_topic=DEAD,
    )
    _, client = await _start(start_broker, policy)
    await client.create_producer(DEAD)
    dead = await client.consume(DEAD)
    producer = await client.create_producer(TOPIC)
    await client.consume(TOPIC)
    await producer.send("slow")
    copy = await dead.next()
    assert copy.attributes["x-failure-reason"] == "ack timeout"
    assert copy.attributes["x-delivery-attempt"] == "1"


async def test_a_dead_letter_that_cannot_be_published_is_kept_until_it_can(start_broker: StartBroker) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD)
    broker = await start_broker({(TOPIC, "subscription"): policy}, auto_create_topics=True)
    client = broker.client()
    # A partition of that name keeps the plain topic from being made.
    await client.create_producer(f"{DEAD}-part-0")
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("bad")
    await _fail(stream, "bad")
    await producer.send("good")
    assert await stream.take_acked(1) == ["good"]
    await broker.restart()
    again = await broker.client().consume(TOPIC)
    assert (await again.next()).payload == b"bad", "neither copied nor acked: not lost"


async def test_dead_letters_survive_a_restart(start_broker: StartBroker) -> None:
    policy = _policy(PoisonPolicy.DEAD_LETTER, dead_letter_topic=DEAD)
    broker, client = await _start(start_broker, policy)
    await client.create_producer(DEAD)
    await client.subscribe(DEAD)
    witness = await client.consume(DEAD, "witness")
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("bad", "good")
    bad, good = await stream.take(2)
    await stream.nack(bad)
    await stream.ack(good)
    await producer.send("next")
    assert await stream.take_acked(1) == ["next"]
    assert await witness.payloads(1) == ["bad"]
    await broker.restart()
    client = broker.client()
    assert await (await client.consume(DEAD)).payloads(1) == ["bad"]
    await (await client.consume(TOPIC)).assert_silent()
