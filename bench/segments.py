"""`python -m bench.segments`: reading sealed history through the broker's reader, next to Arrow's plain Parquet read.

Both read the same file with the same checks in one thread. The plain read ends with columns in memory; the reader goes
on to what a subscription is fed with: entry bodies, as batches or as single messages. Messages that came over gRPC are
read both ways: merged into batches, as clients of the native protocol get them, and one by one, as clients of gRPC do.
Both are compared by the megabytes a second they give, which is the aim, and by those a second of CPU: the reader decodes ahead on
a core of its own where there is one, so the first says what a consumer waits for and the second what it costs.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.convert_job import Converted
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.segment_reader import SegmentReader
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.names import TopicName
from pydanube.protocol.native.batch import message_count
from pydanube.server.process import tune_process
from pydanube.stores.directory import DirectoryStore

TOPIC = TopicName("bench", "history")
START_MS = 1_700_000_000_000
ROW_GROUP_BYTES = 8 << 20
CACHE_BYTES_MAX = 64 << 20
RATIO_AIM = 0.5


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    payload_bytes: int
    batch_messages: int
    """Messages appended at once; 1 for what came over gRPC."""
    messages_max: int
    bytes_max: int
    """What a subscription asks for at once."""
    merged_max: int = 0
    """Messages it takes in a merged batch; a client of the native protocol by default as many as here."""

    @property
    def came_as_rows(self) -> bool:
        return self.batch_messages == 1


SCENARIOS = (
    Scenario("batches 1000 × 128 B", 128, 1000, 100_000, 4 << 20),
    Scenario("batches 1000 × 1 KiB", 1024, 1000, 100_000, 4 << 20),
    Scenario("gRPC rows 128 B, merged", 128, 1, 100_000, 4 << 20, 2500),
    Scenario("gRPC rows 1 KiB, merged", 1024, 1, 100_000, 4 << 20, 2500),
    Scenario("gRPC rows 128 B", 128, 1, 4000, 1 << 20),
    Scenario("gRPC rows 1 KiB", 1024, 1, 4000, 1 << 20),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians over the rounds; megabytes are of payload."""

    scenario: str
    messages: int
    reader_mb_s: float
    reader_cpu_mb_s: float
    plain_mb_s: float
    plain_cpu_mb_s: float
    reader_us_per_message: float

    @property
    def ratio(self) -> float:
        return self.reader_mb_s / self.plain_mb_s

    @property
    def cpu_ratio(self) -> float:
        return self.reader_cpu_mb_s / self.plain_cpu_mb_s


@click.command(context_settings={"show_default": True})
@click.option("--megabytes", type=click.IntRange(1, 4096), default=64, help="Payload of each segment.")
@click.option("--rounds", type=click.IntRange(1, 50), default=5, help="Alternating rounds.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
def main(megabytes: int, rounds: int, output: str) -> None:
    """Cold reads: megabytes of payload a second, and per second of CPU."""
    tune_process()  # as a broker does, for both
    progress = Console(stderr=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            progress.print(f"reading {scenario.name}")
            outcomes.append(asyncio.run(_measure(scenario, Path(folder), megabytes << 20, rounds)))
    if output == "json":
        click.echo(json.dumps([_document(outcome) for outcome in outcomes], indent=2))
    else:
        Console().print(_table(outcomes))


async def _measure(scenario: Scenario, folder: Path, payload_bytes: int, rounds: int) -> Outcome:
    store = DirectoryStore(folder / "store")
    converted = await asyncio.to_thread(_write, scenario, folder, payload_bytes)
    descriptor = converted.descriptor
    path = folder / "store" / segment_key(TOPIC, descriptor.segment_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    Path(converted.path).rename(path)

    async def read_through_reader() -> None:
        reader = SegmentReader(store, cache_bytes_max=CACHE_BYTES_MAX)
        await _read_all(reader, descriptor, scenario)
        await reader.close()

    async def read_plainly() -> None:
        await asyncio.to_thread(_read_plainly, path)

    samples: dict[str, list[tuple[float, float]]] = {"reader": [], "plain": []}
    for _ in range(rounds):
        samples["plain"].append(await _timed(read_plainly))
        samples["reader"].append(await _timed(read_through_reader))
    await store.close()
    megabytes = descriptor.payload_bytes / 1e6
    messages = descriptor.next_offset - descriptor.start_offset
    wall = {name: median(sample[0] for sample in taken) for name, taken in samples.items()}
    cpu = {name: median(sample[1] for sample in taken) for name, taken in samples.items()}
    return Outcome(
        scenario=scenario.name,
        messages=messages,
        reader_mb_s=megabytes / wall["reader"],
        reader_cpu_mb_s=megabytes / cpu["reader"],
        plain_mb_s=megabytes / wall["plain"],
        plain_cpu_mb_s=megabytes / cpu["plain"],
        reader_us_per_message=cpu["reader"] / messages * 1e6,
    )


async def _timed(read: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    await read()
    return time.perf_counter() - wall, time.process_time() - cpu


async def _read_all(reader: SegmentReader, descriptor: SegmentDescriptor, scenario: Scenario) -> None:
    offset = descriptor.start_offset
    while offset < descriptor.next_offset:
        rows = await reader.read(
            TOPIC,
            descriptor,
            offset,
            messages_max=scenario.messages_max,
            bytes_max=scenario.bytes_max,
            merged_max=scenario.merged_max,
        )
        offset = rows[-1][0] + message_count(rows[-1][1])


def _read_plainly(path: Path) -> None:
    with pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file:
        for number in range(file.num_row_groups):
            file.read_row_group(number, use_threads=False)


def _write(scenario: Scenario, folder: Path, payload_bytes: int) -> Converted:
    dice = random.Random(5)
    step = ROW_GROUP_BYTES // scenario.payload_bytes // 2
    with SegmentWriter(
        folder,
        topic=str(TOPIC),
        topic_id=SCENARIOS.index(scenario) + 1,
        epoch=1,
        created_ms=START_MS,
        row_group_bytes=ROW_GROUP_BYTES,
    ) as writer:
        for first in range(0, payload_bytes // scenario.payload_bytes, step):
            writer.add(_messages(scenario, first, step, dice))
        return writer.finish()


def _messages(scenario: Scenario, first: int, count: int, dice: random.Random) -> pa.Table:
    """Incompressible payloads, one batch or one row a millisecond, from one producer."""
    offsets = np.arange(first, first + count)
    size = scenario.payload_bytes
    data = dice.randbytes(size * count)
    ends = np.arange(0, size * (count + 1), size, dtype=np.int32)
    times = START_MS + offsets // max(scenario.batch_messages, 20)
    columns: dict[str, Any] = {
        "offset": offsets,
        "publish_time": times,
        "append_time": times,
        "producer_name": pa.repeat("producer-1", count),
        "payload": pa.BinaryArray.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)]
        ),
        "producer_id": np.full(count, 17),
    }
    if scenario.came_as_rows:
        columns["request_id"] = offsets
        columns["broker_addr"] = pa.repeat("http://127.0.0.1:6650", count)
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SEGMENT_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def _document(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome) | {"ratio": outcome.ratio, "cpu_ratio": outcome.cpu_ratio}


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Reading sealed history (MB of payload)")
    for heading in (
        "",
        "reader MB/s",
        "Parquet MB/s",
        "ratio",
        "CPU ratio",
        "CPU µs/message",
    ):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        style = "" if outcome.ratio >= RATIO_AIM else "yellow"
        table.add_row(
            outcome.scenario,
            f"{outcome.reader_mb_s:,.0f}",
            f"{outcome.plain_mb_s:,.0f}",
            f"{outcome.ratio:.2f}",
            f"{outcome.cpu_ratio:.2f}",
            f"{outcome.reader_us_per_message:.2f}",
            style=style,
        )
    return table


if __name__ == "__main__":
    main()
