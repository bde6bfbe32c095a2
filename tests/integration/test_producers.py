"""CreateProducer and SendMessage, check by check (data-plane spec, §7.1 and §7.2)."""

import asyncio

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.schema_wire import register
from broker_harness.wire_client import Status, WireClient, refused

from pydanube.protocol import danube_pb2 as pb

EXCLUSIVE_ACCESS = {"producer_access_mode": pb.ProducerAccessMode.Exclusive}


def _schema(subject: str) -> dict[str, pb.SchemaReference]:
    return {"schema_ref": pb.SchemaReference(subject=subject, use_latest=True)}


async def test_the_same_name_is_the_same_producer(client: WireClient, broker: RunningBroker) -> None:
    first = await client.create_producer("/default/t")
    again = await broker.client().create_producer("/default/t")
    assert again.id == first.id
    stream = await client.consume("/default/t")
    await first.send("one")
    await again.send("two")
    assert await stream.payloads(2) == ["one", "two"]


async def test_one_name_on_two_topics_is_two_producers(client: WireClient) -> None:
    assert (await client.create_producer("/default/a")).id != (await client.create_producer("/default/b")).id


async def test_the_other_dispatch_strategy_is_a_failed_precondition(client: WireClient) -> None:
    await client.create_producer("/default/reliable")
    await client.create_producer("/default/live", reliable=False)
    with refused(Status.FAILED_PRECONDITION):
        await client.create_producer("/default/reliable", reliable=False)
    with refused(Status.FAILED_PRECONDITION):
        await client.create_producer("/default/live", reliable=True)


async def test_the_strategy_is_checked_before_the_subject(client: WireClient) -> None:
    await register(client, "orders")
    await client.create_producer("/default/t", **_schema("orders"))
    with refused(Status.FAILED_PRECONDITION, "reliable"):
        await client.create_producer("/default/t", reliable=False, **_schema("other"))


async def test_a_new_topic_is_bound_to_the_subject_of_its_first_producer(
    broker: RunningBroker, client: WireClient
) -> None:
    await register(client, "orders")
    await register(client, "payments")
    await client.create_producer("/default/t", **_schema("orders"))
    await client.create_producer("/default/t", "second", **_schema("orders"))
    await client.create_producer("/default/t", "without")
    with refused(Status.FAILED_PRECONDITION, "orders"):
        await client.create_producer("/default/t", "third", **_schema("payments"))
    await broker.restart()
    with refused(Status.FAILED_PRECONDITION, "orders"):
        await broker.client().create_producer("/default/t", "third", **_schema("payments"))


async def test_a_subject_nobody_registered_cannot_be_bound_later(client: WireClient) -> None:
    await client.create_producer("/default/t")
    with refused(Status.FAILED_PRECONDITION, "not found"):
        await client.create_producer("/default/t", "with subject", **_schema("orders"))


async def test_a_subject_nobody_registered_makes_no_topic(broker: RunningBroker, client: WireClient) -> None:
    with refused(Status.FAILED_PRECONDITION, "not found"):
        await client.create_producer("/default/t", **_schema("orders"))
    with refused(Status.NOT_FOUND):
        await client.subscribe("/default/t")


async def test_an_empty_subject_binds_nothing(client: WireClient) -> None:
    await client.create_producer("/default/t", **_schema(""))
    with refused(Status.FAILED_PRECONDITION, "not found"):
        await client.create_producer("/default/t", "second", **_schema("orders"))


async def test_exclusive_access_keeps_other_names_out_but_never_its_own(client: WireClient) -> None:
    holder = await client.create_producer("/default/t", "holder", **EXCLUSIVE_ACCESS)
    with refused(Status.FAILED_PRECONDITION):
        await client.create_producer("/default/t", "other")
    with refused(Status.FAILED_PRECONDITION):
        await client.create_producer("/default/t", "other", **EXCLUSIVE_ACCESS)
    assert (await client.create_producer("/default/t", "holder", **EXCLUSIVE_ACCESS)).id == holder.id
    await holder.send("still working")


async def test_exclusive_access_needs_the_topic_free(broker: RunningBroker, client: WireClient) -> None:
    await client.create_producer("/default/t", "first")
    with refused(Status.FAILED_PRECONDITION):
        await client.create_producer("/default/t", "second", **EXCLUSIVE_ACCESS)
    broker.clock.advance(61_000)  # the first has neither sent nor pinged
    await client.create_producer("/default/t", "second", **EXCLUSIVE_ACCESS)


async def test_a_message_without_msg_id_is_invalid(client: WireClient) -> None:
    with refused(Status.INVALID_ARGUMENT, "msg_id"):
        await client.call("/danube.ProducerService/SendMessage", pb.StreamMessage(payload=b"x"))


async def test_an_unknown_producer_is_not_found(client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    for unknown in (0, producer.id + 1, (1 << 64) - 1):
        msg_id = pb.MsgID(producer_id=unknown, topic_name="/default/t")
        with refused(Status.NOT_FOUND):
            await producer.send("x", msg_id=msg_id)


async def test_a_producer_publishes_to_its_own_topic_only(client: WireClient) -> None:
    producer = await client.create_producer("/default/mine")
    await client.create_producer("/default/other")
    for topic in ("/default/other", "/default/unknown", "", "mine"):
        with refused(Status.INVALID_ARGUMENT):
            await producer.send("x", msg_id=pb.MsgID(producer_id=producer.id, topic_name=topic))


async def test_a_consumer_id_is_no_producer_id(client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    consumer = await client.subscribe("/default/t")
    with refused(Status.NOT_FOUND):
        await producer.send("x", msg_id=pb.MsgID(producer_id=consumer.id, topic_name="/default/t"))


async def test_publishing_needs_no_subscription(client: WireClient) -> None:
    await (await client.create_producer("/default/reliable")).send("kept")
    await (await client.create_producer("/default/live", reliable=False)).send("gone")


async def test_overlapping_sends_keep_their_order(client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    await asyncio.gather(*(producer.send(str(n), request_id=n) for n in range(50)))
    assert await stream.take_acked(50) == [str(n) for n in range(50)]


async def test_a_hundred_reliable_messages_arrive_complete_and_in_order(client: WireClient) -> None:
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    await producer.send_all(*(str(n) for n in range(100)))
    assert await stream.take_acked(100) == [str(n) for n in range(100)]
    await stream.assert_silent()


async def test_a_client_that_gives_up_while_its_topic_is_made_leaves_a_working_topic(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    names = [f"/default/abandoned-{n}" for n in range(20)]
    for n, name in enumerate(names):
        hasty = broker.client()
        attempt = asyncio.create_task(hasty.create_producer(name))
        for _ in range(n % 10 + 1):
            await hasty.partitions(name)  # answered, so the call before it has arrived
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        await hasty.close()
    client = broker.client()
    for name in names:
        await (await client.create_producer(name)).send("hello")
