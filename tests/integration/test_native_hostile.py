"""Native clients that are slow, greedy or broken cost the broker little, and other clients nothing."""

import asyncio
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from broker_harness.broker_process import BrokerProcess
from broker_harness.native_wire import EARLIEST, LATEST, MUCH, NativeClient, NativeProducer, NativeRefusal
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import SHARED, eventually

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import encode_credit
from pydanube.protocol.native.frames import encode_frame, publish_header

TOPIC = "/default/t"
MIB = 1 << 20
SMALL: dict[str, Any] = {
    "storage": {
        "wal": {
            "rotation": {"max_bytes": 4 * MIB},
            "unstaged_bytes_max": 32 * MIB,
            "cache_bytes_max": MIB,
            "fsync": "never",
        }
    }
}


async def _publish(native: NativeClient, total: int, topic: str = TOPIC) -> int:
    """So many bytes, as fast as they are taken; how many messages that were."""
    producer = await native.open_producer(topic, "flood")
    body = producer.batch([bytes(10_000)] * 50)
    taken = 0
    waiting: deque[int] = deque()
    while taken + len(waiting) < total // len(body):
        waiting.append(producer.publish(body))
        if len(waiting) == 8:
            taken += await _is_taken(producer, waiting.popleft())
    for request in waiting:
        taken += await _is_taken(producer, request)
    return 50 * taken


async def _is_taken(producer: NativeProducer, request: int) -> bool:
    """Whether the broker had room for it; it may say no while the disk is behind."""
    try:
        await producer.published(request)
    except NativeRefusal as refusal:
        if refusal.code is not ErrorCode.OVERLOADED:
            raise
        return False
    return True


async def test_consumers_that_never_read_cost_a_bounded_amount(tmp_path: Path) -> None:
    """Huge credit, many channels, a socket nobody empties, 200 MB published."""
    async with BrokerProcess(tmp_path, **SMALL) as broker:
        honest = await broker.native()
        await _publish(honest, 8 * MIB)  # whatever is loaded and set aside once, is by now
        before = broker.resident_bytes()
        for n in range(3):
            greedy = await broker.native()
            for k in range(3):
                await greedy.subscribe(
                    TOPIC, f"greedy {n} {k}", unacked_max=1_000_000, credit=((1 << 32) - 1, (1 << 62))
                )
                await greedy.open_reader(TOPIC, EARLIEST)
            greedy.stop_reading()
        count = await _publish(honest, 200 * MIB)
        grown = broker.resident_bytes() - before
        # The windows of nine subscriptions (the same bodies, while they are in memory) and what the sockets hold.
        assert grown < 160 * MIB, f"{grown / MIB:.0f} MiB"
        consumer = await honest.subscribe(TOPIC, "honest", start=EARLIEST, credit=(100, MUCH[1]))
        seen = 0
        while seen < 2_000:
            item = await consumer.item()
            assert item.base == seen
            seen += item.messages
            consumer.give(item.messages)
            await consumer.ack(item.base, item.base + item.messages - 1)
        assert count > 2_000


async def test_no_more_is_dispatched_than_sockets_and_one_buffer_hold(start_broker: StartBroker) -> None:
    """However much credit there is, in however many channels: the rest may go to others."""
    broker = await start_broker(metrics=True)
    honest, greedy = await broker.native(), await broker.native()
    await _publish(honest, 60 * MIB)
    for n in range(5):
        await greedy.subscribe(TOPIC, f"greedy {n}", start=EARLIEST, unacked_max=1_000_000, credit=(0, 0))
    greedy.stop_reading()
    for channel in range(1, 100):
        greedy.send(frames.CREDIT, encode_credit((1 << 32) - 1, 1 << 40), channel=channel)
    sent = [-1.0]

    async def nothing_more_comes() -> bool:
        await asyncio.sleep(0.1)
        sent.append(await broker.metric("danube_consumer_bytes_out_total"))
        return sent[-1] == sent[-2] > 0

    await eventually(nothing_more_comes)
    assert sent[-1] < 32 * MIB, sent[-1] / MIB  # of 300; sockets on one machine hold up to ten


@pytest.mark.parametrize("kind", ["ping", "lookup", "refused publishes"])
async def test_a_client_that_asks_and_never_reads_is_not_read_from(tmp_path: Path, kind: str) -> None:
    async with BrokerProcess(tmp_path, **SMALL) as broker:
        honest, rude = await broker.native(), await broker.native()
        await honest.open_producer(TOPIC)
        flood = {
            "ping": encode_frame(frames.PING, 0, 1, bytes(64)),
            "lookup": encode_frame(frames.LOOKUP, 0, 1, b"\x0a\x0a" + TOPIC.encode()),
            "refused publishes": publish_header(9, 1, 0, 1) + b"x",
        }[kind] * 1000
        before = broker.resident_bytes()
        rude.stop_reading()
        sent = 0
        try:
            while sent < 400 * MIB:
                rude.write(flood)
                sent += len(flood)
                await asyncio.wait_for(rude.drain(), 2)
        except TimeoutError:
            pass  # the broker has stopped listening
        assert sent < 400 * MIB
        assert broker.resident_bytes() - before < 40 * MIB
        assert await honest.ping() == b"ping"


async def test_a_slow_reader_of_much_gets_everything(tmp_path: Path) -> None:
    """Stopping and starting to read loses and repeats nothing, on a connection with several channels."""
    async with BrokerProcess(tmp_path, **SMALL) as broker:
        honest, slow = await broker.native(), await broker.native()
        count = await _publish(honest, 20 * MIB)
        readers = [await slow.open_reader(TOPIC, EARLIEST, LATEST) for _ in range(3)]
        slow._writer.transport.pause_reading()  # type: ignore[attr-defined]
        await honest.ping()
        slow._writer.transport.resume_reading()  # type: ignore[attr-defined]
        for reader in readers:
            assert [received.offset for received in await reader.rest()] == list(range(count))


async def test_a_flood_of_openings_and_closings(broker: RunningBroker) -> None:
    native, other = await broker.native(), await broker.native()
    await native.open_producer(TOPIC)
    for _ in range(30):
        consumers = [await native.subscribe(TOPIC, name=f"c{n}", kind=SHARED) for n in range(10)]
        for consumer in consumers:
            await consumer.close()
    producer = await other.open_producer(TOPIC, "other")
    last = await other.subscribe(TOPIC, name="last", kind=SHARED)
    await producer.send_rows("unharmed")
    assert await last.payloads(1) == ["unharmed"]


async def test_a_thousand_idle_connections(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path, **SMALL) as broker:
        first = await broker.native()
        before = broker.resident_bytes()
        idle = [await broker.native() for _ in range(1000)]
        cost = (broker.resident_bytes() - before) / len(idle)
        assert cost < 64 * 1024, cost
        producer = await first.open_producer(TOPIC)
        consumer = await idle[500].subscribe(TOPIC)
        await producer.send_batch("a", "b")
        assert await consumer.payloads(2) == ["a", "b"]
        assert await idle[-1].ping() == b"ping"


async def test_connections_cut_in_the_middle_of_frames(broker: RunningBroker) -> None:
    dice = random.Random(7)
    good = await broker.native()
    producer = await good.open_producer(TOPIC)
    row = producer.row("x" * 100)
    for _ in range(50):
        hasty = await broker.native()
        channel = await hasty.open_producer(TOPIC, "hasty")
        whole = publish_header(channel.number, 9, 0, len(row)) + channel.row("x" * 100)
        hasty.write(whole[: dice.randrange(1, len(whole))])
        await hasty.drain()
        await hasty.close()
    assert (await producer.send(row)).offset == 0


async def test_a_frame_that_claims_more_than_it_sends_costs_nothing(tmp_path: Path) -> None:
    async with BrokerProcess(tmp_path, **SMALL) as broker:
        honest = await broker.native()
        before = broker.resident_bytes()
        for _ in range(100):
            liar = await broker.native()
            liar.write(frames.frame_header(frames.PUBLISH, 1, 1, frames.FRAME_BYTES_MAX) + bytes(1000))
            await liar.drain()
        await honest.ping()
        assert broker.resident_bytes() - before < 40 * MIB


async def test_a_broken_client_does_not_end_the_channels_of_others(broker: RunningBroker) -> None:
    good, bad = await broker.native(), await broker.native()
    producer = await good.open_producer(TOPIC)
    mine = await good.subscribe(TOPIC, name="good", kind=SHARED)
    await bad.subscribe(TOPIC, name="bad", kind=SHARED)
    await producer.send_rows(*(str(n) for n in range(10)))
    bad.write(encode_frame(frames.PUBLISHED, 1, 1))
    assert await bad.closed_with() is ErrorCode.PROTOCOL_VIOLATION
    assert sorted(await mine.payloads(10), key=int) == [str(n) for n in range(10)]
