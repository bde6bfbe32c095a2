"""Subscriptions in an operator's hands: settings applied while messages flow, figures, cursors, a look inside."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import (
    KEY_SHARED,
    PATIENCE_SECONDS,
    SHARED,
    Status,
    WireClient,
    eventually,
    refused,
)

from pydanube.protocol.danube_pb2 import StreamMessage

TOPIC = "/default/orders"
SUBSCRIPTION = {"topic": TOPIC, "subscription": "subscription"}
FIXED, EXPONENTIAL = 0, 1
DEAD_LETTER, BLOCK, DROP = 0, 1, 2
EARLIEST, LATEST, OFFSET, TIMESTAMP = 0, 1, 2, 3


def failure_policy(**fields: Any) -> dict[str, Any]:
    return {
        "max_redelivery_count": 0,
        "ack_timeout_ms": 30_000,
        "base_redelivery_delay_ms": 10,
        "max_redelivery_delay_ms": 10,
        "backoff_strategy": FIXED,
        "poison_policy": DROP,
    } | fields


@pytest.fixture
async def admin(broker: RunningBroker) -> AsyncIterator[AdminClient]:
    async with AdminClient(broker.admin_address) as client:
        yield client


async def describe(admin: AdminClient, subscription: str = "subscription") -> Any:
    return await admin.call("DescribeSubscription", topic=TOPIC, subscription=subscription)


# Unsubscribing.


async def test_a_subscription_nobody_listens_to_is_forgotten(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send("before")
    await stream.next()
    with refused(Status.NOT_FOUND, "close consumer first"):
        await admin.call("Unsubscribe", **SUBSCRIPTION)
    await admin.call("SetSubscriptionFailurePolicy", **SUBSCRIPTION, failure_policy=failure_policy())
    await stream.close()

    async def nobody_listens() -> bool:
        return bool((await describe(admin)).figures.consumers == 0)

    await eventually(nobody_listens)
    assert (await admin.call("Unsubscribe", **SUBSCRIPTION)).success
    await broker.restart()
    async with AdminClient(broker.admin_address) as again:
        assert not (await again.call("ListSubscriptions", name=TOPIC)).subscriptions
        answer = await again.call("GetSubscriptionFailurePolicy", **SUBSCRIPTION)
        assert not answer.HasField("failure_policy")
    client = broker.client()
    stream = await client.consume(TOPIC)
    await (await client.create_producer(TOPIC)).send("after")
    assert await stream.payloads(1) == ["after"]


@pytest.mark.parametrize("topic", [TOPIC, "/default/unknown", "no name"])
async def test_an_unknown_subscription_cannot_be_deleted(
    admin: AdminClient, client: WireClient, topic: str
) -> None:
    await client.create_producer(TOPIC)
    with refused(Status.NOT_FOUND):
        await admin.call("Unsubscribe", topic=topic, subscription="subscription")


# Failure policy.


async def test_a_failure_policy_holds_for_messages_in_flight(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("bad", "good")
    bad, good = await stream.take(2)
    await admin.call("SetSubscriptionFailurePolicy", **SUBSCRIPTION, failure_policy=failure_policy())
    await stream.nack(bad)
    await stream.ack(good)
    # The default policy would have it sent again after a second, this one drops it at once.
    assert (await describe(admin)).counters["dropped"] == 1
    assert (await admin.figures(TOPIC)).backlog == 0
    # Subscribing again does not bring the old one back.
    await client.subscribe(TOPIC)
    for _ in range(2):
        async with AdminClient(broker.admin_address) as operator:
            stored = await operator.call("GetSubscriptionFailurePolicy", **SUBSCRIPTION)
        assert stored.failure_policy.poison_policy == DROP
        await broker.restart()


async def test_a_blocked_subscription_is_freed_by_another_policy(
    admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    await admin.call(
        "SetSubscriptionFailurePolicy", **SUBSCRIPTION, failure_policy=failure_policy(poison_policy=BLOCK)
    )
    stream = await client.consume(TOPIC)
    await producer.send_all("bad")
    await stream.nack(await stream.next())
    assert (await describe(admin)).figures.blocked
    await producer.send("behind it")
    await stream.assert_silent()
    dead = "/default/dead"
    await admin.call(
        "SetSubscriptionFailurePolicy",
        **SUBSCRIPTION,
        failure_policy=failure_policy(poison_policy=DEAD_LETTER, dead_letter_topic=dead),
    )
    assert await stream.payloads(1) == ["behind it"]
    assert not (await describe(admin)).figures.blocked

    async def copied() -> bool:
        return bool((await describe(admin)).counters["dead_lettered"] == 1)

    await eventually(copied)
    (copy,) = (await admin.call("PeekMessages", topic=dead)).messages
    message = StreamMessage.FromString(copy.message)
    assert (message.payload, message.attributes["x-original-topic"]) == (b"bad", TOPIC)


async def test_every_reliable_subscription_has_a_failure_policy(
    admin: AdminClient, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    await client.subscribe(TOPIC, kind=KEY_SHARED)
    answer = await admin.call("GetSubscriptionFailurePolicy", **SUBSCRIPTION)
    policy = answer.failure_policy
    assert answer.subscription_type == KEY_SHARED
    assert (policy.max_redelivery_count, policy.ack_timeout_ms) == (5, 30_000)
    assert (policy.base_redelivery_delay_ms, policy.max_redelivery_delay_ms) == (1_000, 60_000)
    assert (policy.backoff_strategy, policy.poison_policy) == (EXPONENTIAL, BLOCK)
    assert not policy.HasField("dead_letter_topic")


async def test_a_failure_policy_may_be_set_before_the_subscription_exists(
    admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    policy = failure_policy(ack_timeout_ms=2**64 - 1, dead_letter_topic=" ")
    await admin.call("SetSubscriptionFailurePolicy", **SUBSCRIPTION, failure_policy=policy)
    stream = await client.consume(TOPIC)
    await producer.send("m")
    await stream.nack(await stream.next())
    assert (await describe(admin)).counters["dropped"] == 1
    unknown = await admin.call("GetSubscriptionFailurePolicy", topic=TOPIC, subscription="unknown")
    assert not unknown.HasField("failure_policy")
    assert unknown.subscription_type == 0


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (None, "failure_policy is missing"),
        (failure_policy(backoff_strategy=9), "backoff strategy 9"),
        (failure_policy(poison_policy=9), "poison policy 9"),
        (failure_policy(poison_policy=DEAD_LETTER), "dead_letter_topic is missing"),
        (failure_policy(poison_policy=DEAD_LETTER, dead_letter_topic="  "), "dead_letter_topic is missing"),
        (failure_policy(poison_policy=DEAD_LETTER, dead_letter_topic="no name"), "invalid topic name"),
        (failure_policy(ack_timeout_ms=0), "ack_timeout_ms"),
    ],
)
async def test_a_failure_policy_that_makes_no_sense_is_refused(
    admin: AdminClient, client: WireClient, policy: dict[str, Any] | None, text: str
) -> None:
    await client.create_producer(TOPIC)
    with refused(Status.INVALID_ARGUMENT, text):
        await admin.call("SetSubscriptionFailurePolicy", **SUBSCRIPTION, failure_policy=policy)


@pytest.mark.parametrize("topic", ["/default/live", "/default/unknown"])
async def test_only_reliable_topics_have_failure_policies(
    admin: AdminClient, client: WireClient, topic: str
) -> None:
    await client.create_producer("/default/live", reliable=False)
    with refused(Status.FAILED_PRECONDITION, "reliable"):
        await admin.call(
            "SetSubscriptionFailurePolicy",
            topic=topic,
            subscription="subscription",
            failure_policy=failure_policy(),
        )


# Dispatch window and rate.


async def test_a_window_is_changed_while_messages_flow(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    await admin.call(
        "SetSubscriptionDispatchConfig", **SUBSCRIPTION, dispatch_config={"max_unacked_messages": 2}
    )
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all(*(f"m{number}" for number in range(6)))
    assert await stream.payloads(2) == ["m0", "m1"]
    await stream.assert_silent()
    await admin.call(
        "SetSubscriptionDispatchConfig", **SUBSCRIPTION, dispatch_config={"max_unacked_messages": 5}
    )
    assert await stream.payloads(3) == ["m2", "m3", "m4"]
    await stream.assert_silent()
    described = await describe(admin)
    assert (described.max_unacked_messages, described.figures.unacked, described.figures.lag) == (5, 5, 6)
    await broker.restart()
    async with AdminClient(broker.admin_address) as again:
        config = (await again.call("GetSubscriptionDispatchConfig", **SUBSCRIPTION)).dispatch_config
        assert config.max_unacked_messages == 5
        assert (await describe(again)).max_unacked_messages == 5
        other = await again.call("GetSubscriptionDispatchConfig", topic=TOPIC, subscription="other")
        assert not other.HasField("dispatch_config")


@pytest.mark.parametrize("config", [None, {"max_unacked_messages": 0}, {"max_unacked_messages": 10_001}])
async def test_a_window_has_bounds(admin: AdminClient, config: dict[str, int] | None) -> None:
    with refused(Status.INVALID_ARGUMENT):
        await admin.call("SetSubscriptionDispatchConfig", **SUBSCRIPTION, dispatch_config=config)


async def test_a_dispatch_rate_is_changed_while_messages_flow(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    await admin.call("SetTopicPolicies", topic=TOPIC, policies={"max_subscription_dispatch_rate": 1})
    stream = await client.consume(TOPIC)
    await producer.send_all(*(f"m{number}" for number in range(40)))
    assert await stream.take_acked(1) == ["m0"]
    await admin.call("SetTopicPolicies", topic=TOPIC, inherit=True)
    # At the old rate they would take four times as long as anything may.
    rest = await asyncio.wait_for(stream.take_acked(39), PATIENCE_SECONDS)
    assert rest == [f"m{number}" for number in range(1, 40)]


# Policies of a topic.


async def test_a_topics_own_policies_win_over_its_namespaces(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    await client.create_producer(TOPIC)
    assert (await admin.call("GetTopicPolicies", topic=TOPIC)).inherited
    changed = await admin.call("SetTopicPolicies", topic=TOPIC, policies={"max_producers_per_topic": 1})
    assert not changed.inherited
    await admin.call("SetNamespacePolicies", namespace="default", policies={"max_producers_per_topic": 2})
    await broker.restart()
    client = broker.client()
    async with AdminClient(broker.admin_address) as again:
        found = await again.call("GetTopicPolicies", topic=TOPIC)
        assert (found.policies.max_producers_per_topic, found.inherited) == (1, False)
        with refused(Status.RESOURCE_EXHAUSTED, "max_producers_per_topic is 1"):
            await client.create_producer(TOPIC, "second")
        found = await again.call("SetTopicPolicies", topic=TOPIC, inherit=True)
        assert (found.policies.max_producers_per_topic, found.inherited) == (2, True)
        await client.create_producer(TOPIC, "second")
        with refused(Status.RESOURCE_EXHAUSTED, "max_producers_per_topic is 2"):
            await client.create_producer(TOPIC, "third")


async def test_policies_of_an_unknown_topic_or_none_at_all_are_refused(
    admin: AdminClient, client: WireClient
) -> None:
    with refused(Status.NOT_FOUND, "(code 200)"):
        await admin.call("SetTopicPolicies", topic=TOPIC, policies={"max_publish_rate": 1})
    with refused(Status.NOT_FOUND):
        await admin.call("GetTopicPolicies", topic=TOPIC)
    await client.create_producer(TOPIC)
    with refused(Status.INVALID_ARGUMENT, "no policy is given"):
        await admin.call("SetTopicPolicies", topic=TOPIC)
    with refused(Status.INVALID_ARGUMENT, "exclude each other"):
        await admin.call("SetTopicPolicies", topic=TOPIC, inherit=True, policies={"max_publish_rate": 1})


# Figures.


async def test_the_figures_of_a_topic_are_real(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    fast = await client.consume(TOPIC, "fast", "f1", kind=SHARED)
    await client.subscribe(TOPIC, "slow", "s1")
    await producer.send_all(*"abcde")
    assert await fast.take_acked(3) == ["a", "b", "c"]
    await fast.take(2)
    with refused(Status.NOT_FOUND):
        await client.subscribe("/default/unknown")
    figures = await admin.figures(TOPIC)
    assert (figures.topic, figures.reliable) == (TOPIC, True)
    assert (figures.messages_in, figures.messages_out) == (5, 5)
    assert figures.bytes_in == figures.bytes_out > 0
    assert (figures.producers, figures.consumers) == (1, 1)
    assert (figures.start_offset, figures.next_offset, figures.backlog) == (0, 5, 5)
    assert [(each.name, each.messages, each.alive) for each in figures.producer_list] == [
        ("producer", 5, True)
    ]
    by_name = {each.name: each for each in figures.subscriptions}
    assert (by_name["fast"].lag, by_name["fast"].unacked, by_name["fast"].next_offset) == (2, 2, 3)
    assert (by_name["slow"].lag, by_name["slow"].unacked, by_name["slow"].consumers) == (5, 0, 0)
    described = await describe(admin, "fast")
    assert described.figures == by_name["fast"]
    (consumer,) = described.consumers
    assert (consumer.name, consumer.connected, consumer.unacked) == ("f1", True, 2)
    assert described.counters["acked"] == 3
    (idle,) = (await describe(admin, "slow")).consumers
    assert (idle.name, idle.connected) == ("s1", False)


async def test_refused_publishes_are_counted(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    await admin.call("SetTopicPolicies", topic=TOPIC, policies={"max_message_size": 1})
    with refused(Status.INVALID_ARGUMENT):
        await producer.send("too large")
    assert dict((await admin.figures(TOPIC)).refused) == {"INVALID_ARGUMENT": 1}


async def test_figures_of_all_partitions_come_in_order(admin: AdminClient) -> None:
    await admin.call("CreatePartitionedTopic", base_name=TOPIC, partitions=11)
    figures = (await admin.call("TopicStats", topic=TOPIC)).topics
    assert [each.topic for each in figures] == [f"{TOPIC}-part-{number}" for number in range(11)]
    with refused(Status.NOT_FOUND):
        await admin.call("TopicStats", topic="/default/unknown")


async def test_a_non_reliable_subscription_is_described_too(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC, reliable=False)
    stream = await client.consume(TOPIC)
    await producer.send("m")
    await stream.next()
    described = await describe(admin)
    assert (described.figures.messages_out, described.counters["delivered"]) == (1, 1)
    assert not (await admin.figures(TOPIC)).reliable
    with refused(Status.NOT_FOUND, "(code 204)"):
        await describe(admin, "unknown")


# Cursors.


async def test_a_cursor_is_reset_to_any_place(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    await client.subscribe(TOPIC)
    await producer.send_all("a", "b")
    broker.clock.advance(60_000)
    between = broker.clock.now_ms()
    broker.clock.advance(60_000)
    await producer.send_all("c", "d", "e")

    async def reset(kind: int, value: int = 0) -> tuple[int, int]:
        moved = await admin.call("ResetCursor", **SUBSCRIPTION, position={"kind": kind, "value": value})
        assert (await describe(admin)).figures.lag == moved.lag
        return moved.next_offset, moved.lag

    assert await reset(OFFSET, 3) == (3, 2)
    assert await reset(EARLIEST) == (0, 5)
    assert await reset(TIMESTAMP, between) == (2, 3)
    assert await reset(LATEST) == (5, 0)
    assert await reset(OFFSET, 2**64 - 1) == (5, 0)
    assert await reset(TIMESTAMP, 2**64 - 1) == (5, 0)
    assert await reset(OFFSET, 1) == (1, 4)
    await broker.restart()
    assert await (await broker.client().consume(TOPIC)).payloads(4) == ["b", "c", "d", "e"]


async def test_connected_consumers_go_on_at_the_new_place(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    stream = await consumer.open()
    await producer.send_all("a", "b", "c")
    assert await stream.take_acked(3) == ["a", "b", "c"]
    await admin.call("ResetCursor", **SUBSCRIPTION, position={"kind": OFFSET, "value": 1})
    await stream.ended()
    assert await (await consumer.open()).take_acked(2) == ["b", "c"]


async def test_native_consumers_are_told_of_the_new_place(broker: RunningBroker, admin: AdminClient) -> None:
    client = await broker.native()
    producer = await client.open_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await producer.send_rows("a", "b", "c")
    assert await consumer.take_acked(3) == ["a", "b", "c"]
    await admin.call("ResetCursor", **SUBSCRIPTION, position={"kind": EARLIEST})
    assert await consumer.seeked() == 0
    assert await consumer.take_acked(3) == ["a", "b", "c"]


async def test_a_cursor_that_cannot_be_reset_says_why(admin: AdminClient, client: WireClient) -> None:
    await client.create_producer(TOPIC)
    with refused(Status.NOT_FOUND, "no subscription 'subscription'"):
        await admin.call("ResetCursor", **SUBSCRIPTION, position={"kind": LATEST})
    await client.subscribe(TOPIC)
    with refused(Status.INVALID_ARGUMENT, "position is missing"):
        await admin.call("ResetCursor", **SUBSCRIPTION)
    with refused(Status.INVALID_ARGUMENT, "kind of position 9"):
        await admin.call("ResetCursor", **SUBSCRIPTION, position={"kind": 9})
    await client.create_producer("/default/live", reliable=False)
    await client.subscribe("/default/live")
    with refused(Status.INVALID_ARGUMENT, "non-reliable"):
        await admin.call(
            "ResetCursor", topic="/default/live", subscription="subscription", position={"kind": LATEST}
        )


async def test_a_purge_skips_what_is_not_consumed(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    for name in ("one", "two"):
        await client.subscribe(TOPIC, name)
    await producer.send_all("a", "b", "c")
    purged = await admin.call("Purge", topic=TOPIC, subscription="one")
    assert (purged.skipped, purged.subscriptions) == (3, 1)
    assert (await admin.figures(TOPIC)).backlog == 3
    await producer.send("d")
    purged = await admin.call("Purge", topic=TOPIC)
    assert (purged.skipped, purged.subscriptions) == (1 + 4, 2)
    assert (await admin.figures(TOPIC)).backlog == 0
    with refused(Status.NOT_FOUND):
        await admin.call("Purge", topic=TOPIC, subscription="unknown")


# A look inside.


def payloads(answer: Any) -> list[tuple[int, bytes]]:
    found = [StreamMessage.FromString(each.message) for each in answer.messages]
    assert [each.msg_id.topic_offset for each in found] == [each.offset for each in answer.messages]
    return [(each.msg_id.topic_offset, each.payload) for each in found]


async def test_rows_and_batches_are_peeked_at_without_being_consumed(
    broker: RunningBroker, admin: AdminClient, client: WireClient
) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_rows("0")
    await producer.send_batch("1", "2", "3")
    await producer.send_rows("4")
    assert await stream.take_acked(2) == ["0", "1"]
    peeked = await admin.call("PeekMessages", **SUBSCRIPTION, limit=2)
    assert payloads(peeked) == [(2, b"2"), (3, b"3")]
    assert (peeked.next_offset, peeked.end_offset) == (4, 5)
    everything = [(number, str(number).encode()) for number in range(5)]
    peeked = await admin.call("PeekMessages", topic=TOPIC, position={"kind": EARLIEST}, limit=1000)
    assert payloads(peeked) == everything
    assert all(each.append_ms > 0 for each in peeked.messages)
    assert payloads(await admin.call("PeekMessages", topic=TOPIC)) == everything[:1]
    peeked = await admin.call("PeekMessages", topic=TOPIC, position={"kind": LATEST}, limit=5)
    assert (payloads(peeked), peeked.next_offset) == ([], 5)
    await admin.call("Seal", topic=TOPIC)
    peeked = await admin.call("PeekMessages", topic=TOPIC, position={"kind": OFFSET, "value": 1}, limit=3)
    assert payloads(peeked) == everything[1:4]
    assert (await admin.figures(TOPIC)).backlog == 3


async def test_a_look_fits_into_an_answer(admin: AdminClient, client: WireClient) -> None:
    producer = await client.create_producer(TOPIC)
    large = b"x" * (3 << 20)
    for payload in (large, b"a" * 600_000, b"b" * 600_000):
        await producer.send(payload)
    offset, seen = 0, []
    while True:
        answer = await admin.call(
            "PeekMessages", topic=TOPIC, position={"kind": OFFSET, "value": offset}, limit=100
        )
        if not answer.messages:
            break
        seen.append([len(payload) for _, payload in payloads(answer)])
        offset = answer.next_offset
    assert seen == [[len(large)], [600_000], [600_000]]


async def test_there_is_nothing_to_look_at_in_a_non_reliable_topic(
    admin: AdminClient, client: WireClient
) -> None:
    await client.create_producer(TOPIC, reliable=False)
    with refused(Status.FAILED_PRECONDITION, "keeps nothing"):
        await admin.call("PeekMessages", topic=TOPIC)


async def test_the_broker_refuses_administration_of_what_it_does_not_have(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    async with AdminClient(broker.admin_address) as admin:
        for method in ("DescribeSubscription", "ResetCursor", "Purge", "PeekMessages"):
            fields = {"position": {"kind": LATEST}} if method == "ResetCursor" else {}
            with refused(Status.NOT_FOUND, f"topic {TOPIC} not found (code 200)"):
                await admin.call(method, topic=TOPIC, **fields)
