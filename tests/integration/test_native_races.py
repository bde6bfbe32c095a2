"""What the network would not bring about reliably, staged by hand: one moment of the loop, odd parts of batches."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pydanube.broker.batches import batch_part
from pydanube.broker.broker import Broker
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.sessions import Consumer, Outlet
from pydanube.broker.settings import BrokerSettings
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.policies import SubscriptionType
from pydanube.log import Journal
from pydanube.metadata import MemoryStore
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import arrow, frames
from pydanube.protocol.native.batch import LZ4, NONE, ZSTD, message_count
from pydanube.protocol.native.bodies import decode_items, encode_credit
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.frames import Frame, FrameReader, encode_frame
from pydanube.schemas.registry import SchemaRegistry
from pydanube.server.process import SystemClock, SystemDice
from pydanube.wire.connections import WritePass
from pydanube.wire.discovery_service import Advertised
from pydanube.wire.native_connection import NativeConnection
from pydanube.wire.native_server import NativeServer

TOPIC = "/default/t"
HELLO = pb.Hello(version_min=1, version_max=1).SerializeToString()


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self._cutter = FrameReader(frames.FRAME_BYTES_MAX)

    def write(self, data: Any) -> None:
        self.frames += self._cutter.receive(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def delivered(self) -> list[int]:
        found = [decode_items(frame.body) for frame in self.frames if frame.kind == frames.DELIVER]
        return [item.base for items in found for item in items]


class Mute(Outlet):
    """A stream nobody takes anything from."""

    is_ended = False

    def room(self) -> int:
        return 0

    def room_bytes(self) -> int:
        return 0

    def send(self, *_: Any) -> None:
        raise AssertionError("there was no room")

    def end(self, error: DanubeError | None = None) -> None:
        self.is_ended = True

    def seeked(self, next_offset: int) -> bool:
        return True


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    clock = SystemClock()
    store = MemoryStore(clock)
    journal = await Journal.open(Path("/data/journal"), metadata=store, clock=clock, disk=MemoryDisk())

    broker = Broker(
        settings=BrokerSettings(),
        store=store,
        journal=journal,
        clock=clock,
        dice=SystemDice(),
        registry=SchemaRegistry(store, clock),
    )
    await broker.start()
    yield broker
    await broker.stop()
    await journal.close()


async def _subscribe(broker: Broker, name: str = "c") -> Consumer:
    return await broker.subscribe(
        topic_name=TOPIC, subscription_name="s", consumer_name=name, kind=SubscriptionType.EXCLUSIVE
    )


async def test_what_a_seek_takes_back_before_it_left_costs_no_credit(broker: Broker) -> None:
    producer = await broker.create_producer(topic_name=TOPIC, producer_name="p", dispatch=1)
    server = NativeServer(
        broker, Advertised("", ""), identity="test", write_pass=WritePass(broker.agenda.run)
    )
    connection = NativeConnection(server, lambda: None)
    wire = Wire()
    connection.connection_made(wire)
    subscribe = pb.Subscribe(topic=TOPIC, subscription="s", consumer="c").SerializeToString()
    connection.data_received(
        frames.PREFACE
        + encode_frame(frames.HELLO, 0, 1, HELLO)
        + encode_frame(frames.SUBSCRIBE, 2, 2, subscribe)
    )
    while wire.frames[-1].kind != frames.SUBSCRIBED:
        await asyncio.sleep(0)
    row = StreamMessage(msg_id=MsgID(producer_id=producer.id, topic_name=TOPIC)).SerializeToString()
    connection.data_received(encode_frame(frames.CREDIT, 2, 0, encode_credit(3, 3 * len(row))))
    safe = asyncio.Event()
    for n in range(3):
        is_last = n == 2
        broker.publish_entry(
            *(producer, 0, 0, row),
            lambda offset, count: None,
            lambda error, is_last=is_last: safe.set() if is_last else None,  # type: ignore[misc]
        )
    await safe.wait()
    broker.agenda.run()  # three messages wait for the write at the end of this tick
    subscription = producer.topic.subscriptions["s"]
    assert isinstance(subscription, DurableSubscription)
    assert wire.delivered() == []
    subscription.seek(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert [frame.kind for frame in wire.frames[-2:]] == [frames.SEEKED, frames.DELIVER]
    assert wire.delivered() == [0, 1, 2]
    connection.connection_lost(None)


async def test_who_subscribes_under_the_name_of_one_who_is_leaving_stays(broker: Broker) -> None:
    producer = await broker.create_producer(topic_name=TOPIC, producer_name="p", dispatch=1)
    consumer = await _subscribe(broker)
    session = broker.receive(consumer.id, Mute())
    topic = producer.topic
    async with topic.changing:  # some other change is under way
        coming = asyncio.create_task(_subscribe(broker))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        broker.stream_lost(session)
        leaving = asyncio.create_task(broker.leave(consumer))
        await asyncio.sleep(0)
    stays = await coming
    outlet = Mute()
    broker.receive(stays.id, outlet)
    await leaving
    assert topic.subscriptions["s"].consumers == {"c": stays}
    assert not outlet.is_ended


async def test_one_who_leaves_and_nobody_came_is_gone(broker: Broker) -> None:
    producer = await broker.create_producer(topic_name=TOPIC, producer_name="p", dispatch=1)
    consumer = await _subscribe(broker)
    broker.stream_lost(broker.receive(consumer.id, Mute()))
    await broker.leave(consumer)
    assert producer.topic.subscriptions["s"].consumers == {}
    await _subscribe(broker, "another")


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
def test_a_part_of_a_batch_has_what_its_messages_had(codec: int) -> None:
    head = pb.BatchHead(producer_id=7, producer_name="p", publish_time=5, ttl=9, attributes={"all": "yes"})
    count = 20
    for columns in (
        {},
        {
            "publish_times": list(range(count)),
            "routing_keys": [f"k{n}" if n % 3 else None for n in range(count)],
            "attributes": [{"n": str(n)} if n % 4 else None for n in range(count)],
            "schema_ids": [n or None for n in range(count)],
            "schema_versions": [n if n % 2 else None for n in range(count)],
            "compaction_keys": [b"c%d" % n if n % 5 else None for n in range(count)],
        },
    ):
        payloads = [b"%d" % n * 100 for n in range(count)]
        whole = arrow.encode_payloads(payloads, head, codec=codec, **columns)  # type: ignore[arg-type]
        for skip, length in ((0, 1), (19, 1), (7, 5), (0, 20)):
            part = batch_part(whole, skip, length)
            check_batch(part)
            assert message_count(part) == length
            assert arrow.rows(part, TOPIC) == arrow.rows(whole, TOPIC, skip, length)
