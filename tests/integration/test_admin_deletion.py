"""What a deletion takes with it, and what a crash in the middle of one leaves to the next start."""

import asyncio
from pathlib import Path
from typing import Any

from broker_harness.admin_client import AdminClient
from broker_harness.native_wire import EARLIEST
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import Status, refused

from pydanube.broker import facts
from pydanube.history.catalogue import Catalogue
from pydanube.kernel.names import TopicName
from pydanube.metadata import SqliteStore

TOPIC = "/default/orders"
NAME = TopicName.parse(TOPIC)


async def fill(broker: RunningBroker, admin: AdminClient) -> int:
    """Publish into segments, a run and the journal; return the topic's id."""
    producer = await broker.client().create_producer(TOPIC)
    await producer.send_all("in a segment", "too")
    await admin.call("Seal", topic=TOPIC)
    await producer.send("in the journal")
    (segment,) = (await admin.call("ListSegments", topic=TOPIC)).segments
    return int(segment.topic_id)


def stored_files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and "orders" in str(path)]


async def test_a_deleted_topic_leaves_no_file_behind(broker: RunningBroker, tmp_path: Path) -> None:
    async with AdminClient(broker.admin_address) as admin:
        await fill(broker, admin)
        assert stored_files(tmp_path)
        await admin.call("DeleteTopic", name=TOPIC)
        assert stored_files(tmp_path) == []


async def test_clients_that_waited_for_the_deletion_leave_nothing_behind(start_broker: StartBroker) -> None:
    broker = await start_broker(auto_create_topics=False)
    create = {"name": TOPIC, "dispatch_strategy": 1}
    async with AdminClient(broker.admin_address) as admin:
        await admin.call("CreateTopic", **create)
        client = broker.client()
        coming: list[Any] = [client.create_producer(TOPIC, f"p{number}") for number in range(20)]
        coming += [client.subscribe(TOPIC, f"s{number}") for number in range(20)]
        await asyncio.gather(*coming, admin.call("DeleteTopic", name=TOPIC), return_exceptions=True)
        await admin.call("CreateTopic", **create)
    await broker.restart()
    async with AdminClient(broker.admin_address) as admin:
        figures = await admin.figures(TOPIC)
    assert (list(figures.producer_list), list(figures.subscriptions)) == ([], [])


async def test_a_crash_right_after_the_deletion_was_decided_loses_nothing_of_it(
    broker: RunningBroker, tmp_path: Path
) -> None:
    async with AdminClient(broker.admin_address) as admin:
        topic_id = await fill(broker, admin)
        (info,) = (await admin.call("ListBrokers")).brokers
    await broker.stop()
    store = await SqliteStore.open(tmp_path / "broker-0" / "data" / "metadata.sqlite3", clock=broker.clock)
    await facts.delete_topic(store, NAME, [Catalogue(store, info.broker_id).deletion(NAME, topic_id)])
    await store.close()
    assert stored_files(tmp_path)
    await broker.start()
    client = broker.client()
    with refused(Status.NOT_FOUND):
        await client.lookup(TOPIC)
    assert stored_files(tmp_path) == []
    stream_of = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await stream_of.send("new")
    assert await stream.offsets(1) == [0]


async def test_a_cursor_left_behind_by_a_crash_does_not_move_a_new_subscription(
    broker: RunningBroker, tmp_path: Path
) -> None:
    client = broker.client()
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    await producer.send_all("a", "b")
    assert await stream.take_acked(2) == ["a", "b"]
    await broker.stop()
    # The subscription's facts are gone, the journal still has its cursor.
    store = await SqliteStore.open(tmp_path / "broker-0" / "data" / "metadata.sqlite3", clock=broker.clock)
    await store.delete(facts.subscription_key(NAME, "subscription"))
    await store.close()
    await broker.start()
    native = await broker.native()

    consumer = await native.subscribe(TOPIC, start=EARLIEST)
    assert await consumer.payloads(2) == ["a", "b"]
