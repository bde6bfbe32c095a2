"""Memory of a broker under native load: whatever clients do or fail to do, it stays within what the settings allow.

The broker is a process of its own, and its resident memory is what the system says. The bound is made of
what may be held at once: messages not staged yet, the cache, one publish window per flooding connection, one
group on its way to the disk, and what each sleeping reader may have in its socket; plus what an allocator and
Arrow keep for themselves.
"""

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_harness.broker_process import BrokerProcess
from broker_harness.native_wire import NativeClient
from broker_harness.wire_client import SHARED

from pydanube.client import Batching, PendingSend, QueueFull, Retries, connect
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import decode_published
from pydanube.protocol.native.frames import FrameReader, publish_header

MIB = 1 << 20
UNSTAGED = 32 * MIB
CACHE = 16 * MIB
WINDOW = 32 * MIB
"""`publish_window_bytes`, of each connection that publishes."""
GROUP = 8 * MIB
"""What the journal writes in one go."""
SOCKET = 2 * MIB
"""What may wait for the socket of a connection, and the entry that may exceed it."""
SPARE = 48 * MIB
"""Not a message: what the allocator keeps after peaks, code and tables that load late, the open batch check."""

SETTINGS: dict[str, Any] = {
    "storage": {
        "wal": {
            "rotation": {"max_bytes": 4 * MIB},
            "unstaged_bytes_max": UNSTAGED,
            "cache_bytes_max": CACHE,
        }
    }
}
PUBLISHED = 300 * MIB
PAYLOAD = os.urandom(4096)
ROWS = 60
SECONDS_MAX = 100


class Gauge:
    """The largest resident memory a broker was seen with, beyond what it had at first."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._first = process.resident_bytes()
        self._highest = self._first

    @property
    def grown(self) -> int:
        return self._highest - self._first

    def look(self) -> None:
        self._highest = max(self._highest, self._process.resident_bytes())

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def watched(process: BrokerProcess, bound: int, what: str) -> AsyncIterator[Gauge]:
    """What is done inside must not make the broker grow beyond the bound, not even for a moment."""
    gauge = Gauge(process)
    watching = asyncio.create_task(gauge.watch())
    try:
        yield gauge
        gauge.look()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    print(f"{what}: {gauge.grown / MIB:.0f} MiB of at most {bound / MIB:.0f}")
    assert gauge.grown <= bound, (
        f"{what}: grown by {gauge.grown / MIB:.0f} MiB, at most {bound / MIB:.0f} allowed"
    )


async def publish_all(address: str, size: int, *, topic: str) -> None:
    """So many bytes, as fast as the broker takes them."""
    async with connect(address) as client, client.producer(topic, max_pending_bytes=4 * MIB) as producer:
        sent = 0
        while sent < size:
            await producer.send_many([PAYLOAD] * ROWS)
            sent += ROWS * len(PAYLOAD)


async def read_slowly(address: str, topic: str, taken: list[int]) -> None:
    """A consumer that takes two batches a second and acknowledges them."""
    async with (
        connect(address) as client,
        client.consumer(topic, subscription="slow", start="earliest", prefetch_messages=100) as consumer,
    ):
        async for batch in consumer.batches():
            taken.append(batch.num_rows)
            await consumer.ack(batch)
            await asyncio.sleep(0.5)


@pytest.mark.timeout(SECONDS_MAX)
async def test_slow_consumers_cost_what_the_settings_say(tmp_path: Path) -> None:
    sleepers = 4
    bound = UNSTAGED + CACHE + WINDOW + GROUP + sleepers * SOCKET + SPARE
    async with BrokerProcess(tmp_path, **SETTINGS) as process:
        # Each on a topic of its own, so that they cannot share what is held for them.
        for number in range(sleepers):
            client = await process.native()
            producer = await client.open_producer(f"/default/t-{number}")
            await producer.send_batch("first")
            await client.subscribe(f"/default/t-{number}", "sleeper", unacked_max=50_000)
            client.stop_reading()
        taken: list[int] = []
        reading = asyncio.create_task(read_slowly(process.address, "/default/t-0", taken))
        async with watched(process, bound, "slow consumers"):
            for number in range(sleepers):
                await publish_all(process.address, PUBLISHED // sleepers, topic=f"/default/t-{number}")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert taken, "the slow consumer got nothing"


@pytest.mark.timeout(SECONDS_MAX)
async def test_a_flood_beyond_the_window_by_one_who_does_not_read_answers(tmp_path: Path) -> None:
    bound = UNSTAGED + CACHE + WINDOW + GROUP + SOCKET + SPARE
    async with BrokerProcess(tmp_path, **SETTINGS) as process:
        client = await process.native()
        producer = await client.open_producer("/default/t")
        await producer.send_batch("first")
        body = producer.batch([PAYLOAD] * ROWS)
        client.stop_reading()
        numbers = [client.new_number() for _ in range(PUBLISHED // len(body))]
        assert 4 * client.welcome.publish_window_bytes < PUBLISHED
        async with watched(process, bound, "a flood"):
            for number in numbers:
                client.write(publish_header(producer.number, number, 0, len(body)) + body)
                await client.drain()
            answers = await _answers(client, len(numbers))
        # Each once, taken in order, or refused for want of room; a refusal does not wait for what is on its way.
        taken = [number for number, is_taken in answers if is_taken]
        assert taken == sorted(taken)
        assert taken
        assert sorted(number for number, _ in answers) == numbers
        print(f"{len(taken)} of {len(numbers)} were taken")


async def _answers(client: NativeClient, count: int) -> Sequence[tuple[int, bool]]:
    """Read at last, what was written for us in the meantime."""
    client._writer.transport.resume_reading()  # type: ignore[attr-defined]
    cutter = FrameReader(frames.FRAME_BYTES_MAX)
    answers: list[tuple[int, bool]] = []
    while len(answers) < count:
        data = await asyncio.wait_for(client._reader.read(1 << 18), 30)
        assert data, f"the broker closed the connection after {len(answers)} answers"
        for frame in cutter.receive(data):
            if frame.kind == frames.PUBLISHED:
                answers += [(published.request, True) for published in decode_published(frame.body)]
            elif frame.kind == frames.ERROR:
                answers.append((frame.request, False))
    return answers


@pytest.mark.timeout(SECONDS_MAX)
async def test_idle_consumers_are_cheap(tmp_path: Path) -> None:
    connections, consumers, sharing = 500, 10, 10
    bound = connections * 16 * 1024 + connections * consumers * 6 * 1024
    async with BrokerProcess(tmp_path, **SETTINGS) as process:
        producers = [
            await (await process.native()).open_producer(f"/default/t-{n}") for n in range(consumers)
        ]
        await producers[0].send_batch("first")
        async with watched(process, bound, f"{connections} connections of {consumers} consumers"):
            for group in range(connections // sharing):
                clients = await asyncio.gather(*(process.native() for _ in range(sharing)))
                await asyncio.gather(
                    *(
                        client.subscribe(f"/default/t-{n}", f"s-{group}", f"consumer-{number}", kind=SHARED)
                        for number, client in enumerate(clients)
                        for n in range(consumers)
                    )
                )
        assert (await producers[0].send_batch("still", "alive")).messages == 2


@pytest.mark.timeout(SECONDS_MAX)
async def test_a_producer_faster_than_staging_is_held_back_not_refused(tmp_path: Path) -> None:
    """With room for a few unstaged files only, the broker refuses for want of it: a patient client hears of nothing."""
    unstaged, pending_max, published = 2 * MIB, 8 * MIB, 150 * MIB
    bound = unstaged + CACHE + WINDOW + GROUP + SPARE
    wal = {"rotation": {"max_bytes": MIB}, "unstaged_bytes_max": unstaged, "cache_bytes_max": CACHE}
    patient = Retries(attempts_max=10_000, backoff=0.01, backoff_max=0.2, seconds_max=60)
    count = published // len(PAYLOAD)
    async with (
        BrokerProcess(tmp_path, storage={"wal": wal}) as process,
        connect(process.address, retries=patient) as client,
    ):
        async with (
            watched(process, bound, "a producer faster than staging"),
            client.producer(
                "/default/t", batching=Batching(linger_ms=2), max_pending_bytes=pending_max
            ) as producer,
        ):
            waited = 0
            last: PendingSend | None = None
            for number in range(count):
                payload = struct.pack("<Q", number) + PAYLOAD[8:]
                while True:
                    try:
                        last = producer.send_nowait(payload)
                        break
                    except QueueFull:
                        waited += 1
                        await producer.ready()
            assert last is not None
            assert (await last).offset == count - 1
            await producer.flush()
        assert waited, "the broker never held its producer back"
        found = 0
        async with client.reader("/default/t", end="latest") as reader:
            async for message in reader:
                assert struct.unpack_from("<Q", message.payload) == (found,)
                found += 1
        assert found == count
