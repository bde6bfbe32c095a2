"""Ids, offsets and what passes through untouched (data-plane spec, §2.4 and §3)."""

from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import SHARED, WireClient

from pydanube.protocol import danube_pb2 as pb


async def test_ids_are_positive_in_a_signed_long_and_never_shared(client: WireClient) -> None:
    ids = []
    for topic in ("/default/a", "/default/b"):
        for n in range(10):
            ids.append((await client.create_producer(topic, f"p{n}")).id)
            ids.append((await client.subscribe(topic, name=f"c{n}", kind=SHARED)).id)
    assert all(0 < identifier < 1 << 63 for identifier in ids)
    assert len(set(ids)) == len(ids)


def _full_message(topic: str, producer_id: int) -> pb.StreamMessage:
    return pb.StreamMessage(
        request_id=(1 << 64) - 1,
        msg_id=pb.MsgID(producer_id=producer_id, topic_name=topic, broker_addr="http://somewhere:6650/"),
        payload=bytes(range(256)),
        publish_time=1_234_567_890_123,
        producer_name="any name: ü",
        subscription_name="",
        attributes={"k": "v", "": "empty key", "ü": ""},
        schema_id=0,
        schema_version=0,
        routing_key="",
    )


async def test_a_reliable_delivery_differs_from_what_was_sent_by_its_offset_only(client: WireClient) -> None:
    producer = await client.create_producer("/default/exact")
    stream = await client.consume("/default/exact")
    for offset in range(3):
        sent = _full_message("/default/exact", producer.id)
        sent.msg_id.topic_offset = 4_711  # a client's idea of it means nothing
        await producer.send_message(sent)
        sent.msg_id.topic_offset = offset
        assert await stream.next() == sent


async def test_a_non_reliable_delivery_is_what_was_sent(client: WireClient) -> None:
    producer = await client.create_producer("/default/live", reliable=False)
    stream = await client.consume("/default/live")
    sent = _full_message("/default/live", producer.id)
    await producer.send_message(sent)
    received = await stream.next()
    assert received == sent
    assert received.msg_id.topic_offset == 0


async def test_presence_survives_store_redelivery_and_restart(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer("/default/optional")
    stream = await client.consume("/default/optional")
    await producer.send("present", schema_id=0, schema_version=0, routing_key="")
    await producer.send("absent")

    def check(present: pb.StreamMessage, absent: pb.StreamMessage) -> None:
        for field in ("schema_id", "schema_version", "routing_key"):
            assert present.HasField(field)
            assert not absent.HasField(field)

    check(*await stream.take(2))
    await stream.close()
    check(*await (await client.consume("/default/optional")).take(2))
    await broker.restart()
    check(*await (await broker.client().consume("/default/optional")).take(2))


async def test_the_delivered_topic_is_the_partition_subscribed_to(client: WireClient) -> None:
    for n in range(3):
        topic = f"/default/parted-part-{n}"
        producer = await client.create_producer(topic, f"producer-{n}")
        stream = await client.consume(topic)
        await producer.send("hello")
        assert (await stream.next()).msg_id.topic_name == topic


async def test_offsets_are_dense_from_zero_per_topic_whoever_sends(client: WireClient) -> None:
    for topic in ("/default/a", "/default/b"):
        producers = [await client.create_producer(topic, f"p{n}") for n in range(3)]
        stream = await client.consume(topic)
        for n in range(9):
            await producers[n % 3].send(str(n))
            message = await stream.next()
            assert message.msg_id.topic_offset == n
            await stream.ack(message)


async def test_offsets_go_on_after_a_restart(broker: RunningBroker, client: WireClient) -> None:
    producer = await client.create_producer("/default/on")
    await client.subscribe("/default/on")
    await producer.send_all("0", "1")
    await broker.restart()
    client = broker.client()
    producer = await client.create_producer("/default/on")
    await producer.send_all("2")
    stream = await client.consume("/default/on")
    assert [(m.msg_id.topic_offset, m.payload) for m in await stream.take(3)] == [
        (0, b"0"),
        (1, b"1"),
        (2, b"2"),
    ]
