"""Reading ranges without a subscription (docs/protocol.md: Reading without a subscription)."""

import asyncio
from typing import Any

import pytest
from broker_harness.native_wire import (
    EARLIEST,
    LATEST,
    NativeClient,
    NativeProducer,
    NativeReader,
    at_offset,
    at_time,
    refused_with,
)
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import eventually

from pydanube.broker.broker import Broker
from pydanube.broker.housekeeping import Housekeeping
from pydanube.kernel.errors import ErrorCode
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.server.config import Settings
from pydanube.server.standalone import Standalone

TOPIC = "/default/t"
SMALL_FILES: dict[str, Any] = {"wal": {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}}


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await native.open_producer(TOPIC)


def _numbers(first: int, end: int) -> list[str]:
    return [str(n) for n in range(first, end)]


async def _offsets(reader: NativeReader) -> list[int]:
    return [received.offset for received in await reader.rest()]


async def test_a_whole_topic_is_read_and_the_reader_closed(
    native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send_rows(*_numbers(0, 5))
    await producer.send_batch(*_numbers(5, 100))
    await producer.send_rows("100")
    reader = await native.open_reader(TOPIC, EARLIEST, LATEST)
    assert (reader.opened.next_offset, reader.opened.end_offset) == (0, 101)
    taken = await reader.rest()
    assert [received.offset for received in taken] == list(range(101))
    assert [received.payload for received in taken] == _numbers(0, 101)
    await producer.send_rows("behind the end")
    assert await native.is_silent_on(reader.number, 0.1)
    with refused_with(ErrorCode.CHANNEL_UNKNOWN):
        await reader.close()


async def test_a_range_may_begin_and_end_inside_batches(
    native: NativeClient, producer: NativeProducer
) -> None:
    for first in range(0, 40, 10):
        await producer.send_batch(*_numbers(first, first + 10))
    for first, end in ((0, 40), (3, 37), (13, 17), (10, 20), (19, 21), (39, 40), (5, 6)):
        reader = await native.open_reader(TOPIC, at_offset(first), at_offset(end))
        assert await _offsets(reader) == list(range(first, end))


async def test_an_empty_range_closes_at_once(native: NativeClient, producer: NativeProducer) -> None:
    await (await native.open_reader(TOPIC, EARLIEST, LATEST)).ended()
    await producer.send_rows(*_numbers(0, 5))
    for start, end in (
        (at_offset(3), at_offset(3)),
        (LATEST, LATEST),
        (at_offset(4), at_offset(2)),
        (at_offset(4), EARLIEST),
    ):
        assert await _offsets(await native.open_reader(TOPIC, start, end)) == []


async def test_a_reader_without_an_end_follows(native: NativeClient, producer: NativeProducer) -> None:
    await producer.send_rows("0")
    reader = await native.open_reader(TOPIC)
    assert not reader.opened.HasField("end_offset")
    latest = await native.open_reader(TOPIC, LATEST)
    assert await reader.payloads(1) == ["0"]
    await producer.send_batch("1", "2")
    await producer.send_rows("3")
    assert await reader.payloads(3) == ["1", "2", "3"]
    assert await latest.payloads(3) == ["1", "2", "3"]
    await reader.close()
    await producer.send_rows("4")
    assert await latest.payloads(1) == ["4"]
    assert await native.is_silent_on(reader.number, 0.1)


async def test_times_mark_the_ends_of_a_range(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    moments = []
    for first in range(0, 50, 10):
        broker.clock.advance(60_000)
        moments.append(broker.clock.now_ms())
        await producer.send_batch(*_numbers(first, first + 10))
    reader = await native.open_reader(TOPIC, at_time(moments[1]), at_time(moments[3]))
    assert await _offsets(reader) == list(range(10, 30))
    reader = await native.open_reader(TOPIC, at_time(moments[2] - 1000), at_time(moments[4] + 999_999))
    assert await _offsets(reader) == list(range(20, 50))


async def test_credit_bounds_a_reader(native: NativeClient, producer: NativeProducer) -> None:
    await producer.send_rows(*_numbers(0, 20))
    await producer.send_batch(*_numbers(20, 40))
    reader = await native.open_reader(TOPIC, EARLIEST, LATEST, credit=(0, 0))
    await reader.assert_silent(0.1)
    reader.give(5)
    assert await reader.payloads(5) == _numbers(0, 5)
    await reader.assert_silent(0.1)
    reader.give(16)
    assert await reader.payloads(35) == _numbers(5, 40)  # the batch goes out whole
    await reader.ended()


async def test_what_cannot_be_read(native: NativeClient, producer: NativeProducer) -> None:
    with refused_with(ErrorCode.TOPIC_UNKNOWN):
        await native.open_reader("/default/unknown")
    with refused_with(ErrorCode.TOPIC_NAME_INVALID):
        await native.open_reader("unknown")
    await native.open_producer("/default/live", reliable=False)
    with refused_with(ErrorCode.ARGUMENT_INVALID, "non-reliable"):
        await native.open_reader("/default/live")
    with refused_with(ErrorCode.ARGUMENT_INVALID, "position"):
        await native.request(
            frames.OPEN_READER, b"\x0a\x0a" + TOPIC.encode() + b"\x12\x02\x08\x09", channel=90
        )
    reader = await native.open_reader(TOPIC)
    for kind in (frames.ACK, frames.NACK, frames.SEEK):
        with refused_with(ErrorCode.CHANNEL_UNKNOWN):
            await native.request(kind, channel=reader.number)
    await producer.send_rows("still read")
    assert await reader.payloads(1) == ["still read"]


async def test_a_reader_takes_nothing_from_subscriptions(
    native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC)
    await producer.send_batch(*_numbers(0, 10))
    for _ in range(2):
        assert await _offsets(await native.open_reader(TOPIC, EARLIEST, LATEST)) == list(range(10))
    assert await consumer.offsets(10) == list(range(10))


async def test_history_memory_and_what_is_to_come_join_without_a_seam(start_broker: StartBroker) -> None:
    """While files are filled, staged and forgotten under the readers' feet."""
    broker = await start_broker(storage=SMALL_FILES)
    native, reading = await broker.native(), await broker.native()
    producer = await native.open_producer(TOPIC)
    payload = bytes(2_000)
    total = 0
    readers: list[NativeReader] = []
    for _ in range(12):
        readers.append(await reading.open_reader(TOPIC, EARLIEST))
        readers.append(await reading.open_reader(TOPIC, at_offset(total // 2)))
        requests = [producer.publish(producer.batch([payload] * 40)) for _ in range(3)]
        requests += [producer.publish(producer.row(payload)) for _ in range(80)]
        for request in requests:
            total += (await producer.published(request)).messages
    assert total * len(payload) > 4 << 20  # several files
    for reader in readers:
        first = reader.opened.next_offset
        assert await reader.offsets(total - first) == list(range(first, total))
    whole = await reading.open_reader(TOPIC, EARLIEST, LATEST)
    assert await _offsets(whole) == list(range(total))


async def test_history_is_read_after_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker(storage=SMALL_FILES)
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    for _ in range(30):
        await producer.send(producer.batch([bytes(5_000)] * 20))
    await broker.restart()
    native = await broker.native()
    assert await _offsets(await native.open_reader(TOPIC, at_offset(7), at_offset(593))) == list(
        range(7, 593)
    )
    consumer = await native.subscribe(TOPIC, start=at_offset(333))
    assert await consumer.offsets(267) == list(range(333, 600))


async def test_history_comes_in_order_to_a_reader_that_takes_a_little_at_a_time(
    start_broker: StartBroker,
) -> None:
    """What is fetched ahead of it neither comes twice nor leaves a gap, wherever it stops."""
    broker = await start_broker(storage=SMALL_FILES)
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    for _ in range(60):
        await producer.send(producer.batch([bytes(5_000)] * 20))
    await broker.restart()
    native = await broker.native()
    reader = await native.open_reader(TOPIC, at_offset(3), LATEST, credit=(1, 1))
    found = await reader.offsets(17)
    while len(found) < 1_197:
        reader.give(70)
        found += await reader.offsets(min(60, 1_197 - len(found)))
    assert found == list(range(3, 1_200))
    await reader.ended()


async def test_a_reader_overtaken_by_retention_is_told(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_often(server: Standalone, broker: Broker, settings: Settings) -> None:
        housekeeping = Housekeeping(broker, server._clock, retention_check_ms=20)
        housekeeping.start()
        server._closing.push_async_callback(housekeeping.stop)

    monkeypatch.setattr(Standalone, "_start_housekeeping", check_often)
    broker = await start_broker(storage=SMALL_FILES | {"local_retention": {"time_minutes": 60}})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    reader = await native.open_reader(TOPIC, EARLIEST, credit=(1, 1))
    for _ in range(40):
        await producer.send(producer.batch([bytes(5_000)] * 20))
    assert (await reader.item()).base == 0
    broker.clock.advance(61 * 60_000)

    async def overtaken() -> bool:
        return (await native.open_reader(TOPIC, EARLIEST)).opened.next_offset > 20

    await eventually(overtaken)
    reader.give(1_000_000)
    assert (await reader.failed()).code is ErrorCode.OFFSET_GONE
    # Who asks for what is gone from the beginning begins with what there is.
    gone = await native.open_reader(TOPIC, at_offset(0), LATEST)
    assert await _offsets(gone) == list(range(gone.opened.next_offset, 800))


async def test_many_readers_at_once_come_to_their_ends(
    native: NativeClient, producer: NativeProducer
) -> None:
    for first in range(0, 1000, 100):
        await producer.send_batch(*_numbers(first, first + 100))
    readers = [await native.open_reader(TOPIC, at_offset(n), at_offset(1000 - n)) for n in range(100)]
    found = await asyncio.gather(*(_offsets(reader) for reader in readers))
    assert found == [list(range(n, 1000 - n)) for n in range(100)]


async def test_an_interrupted_reader_leaves_the_topic_unharmed(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    await producer.send_batch(*_numbers(0, 100))
    for _ in range(10):
        hasty = await broker.native()
        message = pb.OpenReader(topic=TOPIC, start=EARLIEST)
        hasty.send(frames.OPEN_READER, message, channel=1, request=9)
        hasty.send(frames.CREDIT, bytes(12), channel=1)
        await hasty.drain()
        await hasty.close()
    assert await _offsets(await native.open_reader(TOPIC, EARLIEST, LATEST)) == list(range(100))
