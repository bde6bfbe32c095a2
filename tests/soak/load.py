"""The load of a soak: a producer that never rests and a consumer that is away half of the time, on one broker."""

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydanube.client import Client, Producer, connect
from pydanube.kernel.errors import ErrorCode, Unavailable
from tests.fault.broker_process import BrokerProcess

MIB = 1 << 20
TOPIC = "/default/soak"
HISTORY_TOPIC = "/default/history"
UNSTAGED_MIB = 32
CACHE_MIB = 16
READ_CACHE_MIB = 16
CONFIG = f"""\
# Little memory to fill, so that a soak is beyond its warm-up soon; a disk that does not fill however long it runs.
storage:
  wal: {{rotation: {{max_bytes: {4 * MIB}}}, unstaged_bytes_max: {UNSTAGED_MIB * MIB}, cache_bytes_max: {CACHE_MIB * MIB}}}
  segments: {{read_cache_mb: {READ_CACHE_MIB}, age_seconds: 1}}
  local_retention: {{time_minutes: null, size_mb: 2048, check_interval_minutes: 1, drop_unconsumed: true}}
"""

PAYLOAD = os.urandom(1024)
BATCH = [PAYLOAD] * 250
IN_FLIGHT = 8
"""Batches the producer has on their way: enough to keep the broker busy, far below the window of 32 MiB."""
HISTORY_BATCHES = 128
"""Written and read beforehand: whether a consumer will be so far behind that it needs segments, and when, is chance, and what
reading the first one takes must not look like growth."""
HIGHEST_MIB = UNSTAGED_MIB + CACHE_MIB + 32 + 8 + 16 + 48
"""What the broker may grow by at all then: unstaged messages, cache, publish window, one group, footers of segments, and what
allocators keep of what was freed."""
GROWTH_MIB = 24
"""What may lie between the beginning and the end of the time after the warm-up: less than `unstaged_bytes_max`, which is
now full and now empty, and little beside the gigabytes that pass."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One second."""

    second: int
    resident_mib: float
    published: int
    consumed: int
    is_consuming: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether memory stays flat."""

    first_mib: float
    highest_mib: float
    early_mib: float
    """Median of the first quarter after the warm-up."""
    late_mib: float
    """Median of the last quarter."""

    @property
    def problems(self) -> list[str]:
        found = []
        if self.late_mib - self.early_mib > GROWTH_MIB:
            found.append(
                f"memory grew from {self.early_mib:.0f} to {self.late_mib:.0f} MiB after the warm-up, "
                f"{GROWTH_MIB} are noise"
            )
        if self.highest_mib - self.first_mib > HIGHEST_MIB:
            found.append(
                f"memory was {self.highest_mib:.0f} MiB once, {self.first_mib:.0f} at first: the settings allow "
                f"{HIGHEST_MIB} more"
            )
        return found

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def judge(samples: list[Sample], first_mib: float) -> Verdict:
    """Leave out the warm-up, half of the time but at most three minutes, and compare the ends of what follows.

    So long takes what is bounded by a number and fills slowly: footers of segments, and the last changes of metadata.
    """
    after = samples[min(len(samples) // 2, 180) :]
    quarter = max(len(after) // 4, 1)
    return Verdict(
        first_mib=first_mib,
        highest_mib=max(sample.resident_mib for sample in samples),
        early_mib=statistics.median(sample.resident_mib for sample in after[:quarter]),
        late_mib=statistics.median(sample.resident_mib for sample in after[-quarter:]),
    )


class Soak:
    """One run."""

    def __init__(
        self, directory: Path, *, rate: float | None, away_seconds: float, report: Callable[[Sample], None]
    ) -> None:
        self._broker = BrokerProcess(directory, config=CONFIG)
        self._rate = rate
        self._away_seconds = away_seconds
        self._report = report
        self._published = 0
        self._consumed = 0
        self._may_consume = asyncio.Event()
        self.samples: list[Sample] = []

    async def run(self, seconds: float) -> Verdict:
        """Load for so long, a sample each second; raises what a client hears."""
        try:
            await self._broker.start()
            async with (
                connect(self._broker.address) as publishing,
                connect(self._broker.address) as consuming,
                publishing.producer(TOPIC) as producer,
            ):
                await self._read_history(consuming)
                first = self._resident_mib()
                load = asyncio.gather(self._publish(producer), self._consume(consuming), self._come_and_go())
                try:
                    await self._watch(seconds, load)
                finally:
                    load.cancel()
                    with suppress(asyncio.CancelledError):
                        await load
        finally:
            if self._broker.is_running:
                await self._broker.kill()
        assert self._published, "nothing was published"
        assert self._consumed, "nothing was consumed"
        return judge(self.samples, first)

    async def _read_history(self, client: Client) -> None:
        async with client.producer(HISTORY_TOPIC) as producer:
            for _ in range(HISTORY_BATCHES):
                await producer.send_many(BATCH)
        while not any(self._broker.data_dir.rglob("*.parquet")):
            await asyncio.sleep(0.05)
        async with client.reader(HISTORY_TOPIC, end="latest") as reader:
            async for _ in reader.batches():
                pass

    async def _watch(self, seconds: float, load: "asyncio.Future[list[None]]") -> None:
        begun = time.monotonic()
        for second in range(1, int(seconds) + 1):
            done, _ = await asyncio.wait([load], timeout=begun + second - time.monotonic())
            if done:
                load.result()
            sample = Sample(
                second,
                round(self._resident_mib(), 1),
                self._published,
                self._consumed,
                self._may_consume.is_set(),
            )
            self.samples.append(sample)
            self._report(sample)

    async def _publish(self, producer: Producer) -> None:
        async def lane() -> None:
            while True:
                begun = time.monotonic()
                try:
                    await producer.send_many(BATCH)
                except Unavailable as refusal:
                    # On a fast disk segments are made more slowly than messages come: an answer, not a failure.
                    if refusal.code is not ErrorCode.OVERLOADED:
                        raise
                    continue
                self._published += len(BATCH)
                if self._rate:
                    due = begun + len(BATCH) * IN_FLIGHT / self._rate
                    await asyncio.sleep(max(due - time.monotonic(), 0))

        await asyncio.gather(*(lane() for _ in range(IN_FLIGHT)))

    async def _consume(self, client: Client) -> None:
        async with client.consumer(
            TOPIC, subscription="soak", type="exclusive", start="earliest"
        ) as consumer:
            async for batch in consumer.batches():
                self._consumed += batch.num_rows
                await consumer.ack(batch)
                await self._may_consume.wait()

    async def _come_and_go(self) -> None:
        while True:
            self._may_consume.set()
            await asyncio.sleep(self._away_seconds)
            self._may_consume.clear()
            await asyncio.sleep(self._away_seconds)

    def _resident_mib(self) -> float:
        return self._broker.resident_bytes() / MIB
