"""Messages that were published one by one come out of a segment in batches, for those who know such batches."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from broker_harness.native_wire import EARLIEST, LATEST, NativeClient, NativeDeliveries, Received, unpacked
from broker_harness.wire_client import EXCLUSIVE, FAILOVER, SHARED, WireClient

from pydanube.client import Client, connect
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol import storage_admin_pb2 as storage
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import frames
from pydanube.protocol.native.batch import ALL_COLUMNS, is_batch, is_merged
from pydanube.protocol.native.bodies import Item

TOPIC = "/default/cold"
COUNT = 420
TIMED = 300
"""Has a time to live."""
BATCH = range(310, 340)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """A broker whose topic has nothing but a segment."""
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        asyncio.run(publish(process))
        with grpc.insecure_channel(process.admin_addr, [("grpc.enable_http_proxy", 0)]) as channel:
            for method, request in (
                ("Seal", storage.SealRequest(topic=TOPIC)),
                ("DropCopies", storage.DropCopiesRequest(topic=TOPIC)),
            ):
                call = channel.unary_unary(f"/pydanube.storage.v1.StorageAdmin/{method}")
                call(request.SerializeToString(), timeout=30)
        yield process


async def publish(process: AdminProcess) -> None:
    client = await NativeClient.connect(process.address)
    one, other = [await client.open_producer(TOPIC, name) for name in ("one", "größe")]
    number = 0
    while number < COUNT:
        if number == BATCH.start:
            await one.send(one.batch([str(each) for each in BATCH]))
            number = BATCH.stop
            continue
        producer = other if number % 3 == 0 else one
        row = producer.row(
            str(number),
            request_id=number,
            msg_id=MsgID(producer_id=producer.id, topic_name=TOPIC, broker_addr="http://127.0.0.1:1"),
            publish_time=1_700_000_000_000 + number,
            attributes={"x-ttl": "3600000"} if number == TIMED else {"n": str(number)} if number % 5 else {},
            **({"routing_key": f"key-{number % 7}"} if number % 2 else {}),
            **({"schema_id": 3, "schema_version": 1} if number % 4 else {}),
        )
        await producer.send(row)
        number += 1
    await client.close()


@pytest.fixture
async def old(broker: AdminProcess) -> AsyncIterator[NativeClient]:
    """A client that knows batches as the first release had them."""
    client = await NativeClient.connect(broker.address)
    yield client
    await client.close()


@pytest.fixture
async def new(broker: AdminProcess) -> AsyncIterator[NativeClient]:
    client = await dial(broker)
    yield client
    await client.close()


@pytest.fixture
async def python(broker: AdminProcess) -> AsyncIterator[Client]:
    async with connect(f"danube://{broker.address}") as client:
        yield client


async def dial(broker: AdminProcess) -> NativeClient:
    client = await NativeClient.dial(broker.address)
    client.write(frames.PREFACE)
    hello = pb.Hello(version_min=1, version_max=1, client="test", batch_columns=ALL_COLUMNS)
    await client.request(frames.HELLO, hello)
    return client


async def items_of(channel: NativeDeliveries, count: int) -> list[Item]:
    """Items with so many messages."""
    items: list[Item] = []
    while sum(item.messages for item in items) < count:
        items.append(await channel.item())
    assert sum(item.messages for item in items) == count
    return items


def messages_of(items: list[Item]) -> list[Received]:
    return [received for item in items for received in unpacked(item, TOPIC)]


def merged(items: list[Item]) -> list[Item]:
    return [item for item in items if is_batch(item.body) and is_merged(item.body)]


async def all_messages(client: NativeClient) -> list[Received]:
    reader = await client.open_reader(TOPIC, EARLIEST, LATEST)
    return await reader.rest()


async def test_a_reader_that_knows_them_gets_the_same_messages(old: NativeClient, new: NativeClient) -> None:
    as_rows = await items_of(await old.open_reader(TOPIC, EARLIEST, LATEST), COUNT)
    as_batches = await items_of(await new.open_reader(TOPIC, EARLIEST, LATEST), COUNT)
    assert messages_of(as_batches) == messages_of(as_rows)
    assert not merged(as_rows)
    # Up to the one with a time to live, up to the batch that was one before, and the rest.
    assert [(item.base, item.messages) for item in merged(as_batches)] == [(0, TIMED), (340, 80)]


async def test_what_a_segment_holds_is_what_was_published(new: NativeClient) -> None:
    received = (await all_messages(new))[7]
    assert received.offset == 7
    producer = received.message.msg_id.producer_id
    assert received.message == StreamMessage(
        request_id=7,
        msg_id=MsgID(producer_id=producer, topic_name=TOPIC, broker_addr="http://127.0.0.1:1"),
        payload=b"7",
        publish_time=1_700_000_000_007,
        producer_name="one",
        attributes={"n": "7"},
        routing_key="key-0",
        schema_id=3,
        schema_version=1,
    )


@pytest.mark.parametrize(
    ("credit", "largest"), [(10_000, TIMED), (400, 100), (63, 0)], ids=["much", "some", "little"]
)
async def test_batches_are_as_large_as_credit_allows(new: NativeClient, credit: int, largest: int) -> None:
    reader = await new.open_reader(TOPIC, EARLIEST, LATEST, credit=(credit, 1 << 30))
    got = 0
    sizes = [0]
    while got < COUNT:
        item = await reader.item()
        got += item.messages
        sizes += [each.messages for each in merged([item])]
        reader.give(item.messages)
    assert max(sizes) == largest


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
async def test_only_a_consumer_that_gets_all_gets_them_merged(
    new: NativeClient, old: NativeClient, kind: int
) -> None:
    fields: dict[str, Any] = {"kind": kind, "start": EARLIEST}
    consumer = await new.subscribe(TOPIC, f"kind-{kind}", **fields)
    items = await items_of(consumer, COUNT)
    in_order = sorted(messages_of(items), key=lambda received: received.offset)
    assert in_order == await all_messages(old)
    assert bool(merged(items)) == (kind != SHARED)
    await consumer.close()


async def test_a_part_of_a_batch_is_acked_and_the_rest_comes_again(
    broker: AdminProcess, new: NativeClient
) -> None:
    first = await dial(broker)
    consumer = await first.subscribe(TOPIC, "parts", start=EARLIEST)
    await items_of(consumer, COUNT)
    await consumer.ack_ranges([(0, 9), (50, 59), (61, 299)])
    await first.close()
    consumer = await new.subscribe(TOPIC, "parts")
    left = [*range(10, 50), 60, *range(300, COUNT)]
    again = messages_of(await items_of(consumer, len(left)))
    assert [received.offset for received in again] == left
    assert [received.payload for received in again] == [str(offset) for offset in left]
    await consumer.close()


async def test_a_client_that_knows_them_not_takes_over(broker: AdminProcess, old: NativeClient) -> None:
    first = await dial(broker)
    consumer = await first.subscribe(TOPIC, "handed", start=EARLIEST)
    assert merged(await items_of(consumer, COUNT))
    await first.close()
    items = await items_of(await old.subscribe(TOPIC, "handed"), COUNT)
    assert not merged(items)
    again = [received._replace(attempt=1) for received in messages_of(items)]
    assert again == await all_messages(old)
    plain = await items_of(await old.open_reader(TOPIC, EARLIEST, LATEST), COUNT)
    assert [item.append_ms for item in items if item.messages == 1] == [
        item.append_ms for item in plain if item.messages == 1
    ]


async def test_a_grpc_consumer_takes_over(broker: AdminProcess, old: NativeClient) -> None:
    first = await dial(broker)
    consumer = await first.subscribe(TOPIC, "grpc", start=EARLIEST)
    assert merged(await items_of(consumer, COUNT))
    await first.close()
    client = WireClient(broker.address)
    try:
        stream = await client.consume(TOPIC, "grpc")
        got = []
        for _ in range(COUNT):
            got += await stream.take(1)
            await stream.ack(got[-1])
    finally:
        await client.close()
    for message in got:
        message.msg_id.ClearField("topic_offset")
    assert got == [received.message for received in await all_messages(old)]


async def test_the_python_client_tells_every_messages_own_facts(python: Client, old: NativeClient) -> None:
    expected = await all_messages(old)
    plain = await items_of(await old.open_reader(TOPIC, EARLIEST, LATEST), COUNT)
    append_ms = [item.append_ms for item in plain for _ in range(item.messages)]
    async with python.reader(TOPIC, start="earliest", end="latest") as reader:
        messages = [message async for message in reader]
    assert [message.offset for message in messages] == list(range(COUNT))
    assert [message.append_time_ms for message in messages] == append_ms
    for message, received in zip(messages, expected, strict=True):
        row = received.message
        assert (message.payload, message.producer_name) == (row.payload, row.producer_name)
        assert message.publish_time_ms == row.publish_time
        assert message.attributes == dict(row.attributes)
        assert message.key == (row.routing_key if row.HasField("routing_key") else None)
        assert message.schema_id == (row.schema_id if row.HasField("schema_id") else None)
    async with python.reader(TOPIC, start="earliest", end="latest") as reader:
        batches = [batch async for batch in reader.batches()]
    names = [name for batch in batches for name in batch.column("producer_name").to_pylist()]
    assert names == [received.message.producer_name for received in expected]
    assert len(batches) <= 6


async def test_nobody_publishes_merged_batches(new: NativeClient) -> None:
    (item, *_) = merged(await items_of(await new.open_reader(TOPIC, EARLIEST, LATEST), COUNT))
    producer = await new.open_producer("/default/other")
    with pytest.raises(Exception, match="only brokers write"):
        await producer.send(item.body)
