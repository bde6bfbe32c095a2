"""`python -m bench.spark_reading`: a topic read by Spark through us, next to Spark's plain Parquet read of the same files.

Everything is sealed first and read into Spark's no-op sink, the ways alternating. CPU of Spark and its Python workers is
compared beside the time, since time on a shared machine says little.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
import grpc
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.processes import TICK_SECONDS
from bench.servers import free_address, running
from pydanube.protocol.storage_admin_pb2 import SealRequest
from pydanube.spark.connection import Connection
from pydanube.spark.reading import read_topic
from pydanube.spark.session import SparkSettings, open_session

TOPIC = "/default/history"
PAYLOAD_BYTES = 1024
PART_MESSAGES = 64 * 1024
"""Published and sealed at once: one segment each."""
NARROW = ["offset", "append_time"]

PLAIN, FAST, SOURCE = "Spark's Parquet reader", "read_topic", 'format("danube")'
AIMS = {FAST: 0.8, SOURCE: 0.4}


@dataclass(frozen=True, slots=True)
class Sample:
    way: str
    columns: str
    seconds: float
    cpu_seconds: float


@click.command()
@click.option("--mib", default=256, show_default=True, help="Of payloads.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Samples as JSON.")
def main(mib: int, rounds: int, output: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="danube-bench-") as folder, _broker(Path(folder)) as connection:
        admin = (Path(folder) / "admin").read_text()
        _fill(connection, admin, mib << 20)
        # As users run it, but on all cores of a machine that others use too.
        spark = open_session(SparkSettings(config={"spark.driver.memory": "2g"}))
        try:
            samples = _measure(spark, connection, rounds)
        finally:
            spark.stop()
    if output is not None:
        output.write_text(json.dumps([asdict(sample) for sample in samples], indent=1))
    _print(samples, mib)


@contextmanager
def _broker(folder: Path) -> Iterator[Connection]:
    address, admin = free_address(), free_address()
    (folder / "admin").write_text(admin)
    command = ["danube", "broker", "--data-dir", str(folder / "data"), "--broker-addr", address]
    command += ["--admin-addr", admin, "--prom-exporter", "off"]
    with running(command, folder / "broker.log"):
        yield Connection(f"danube://{address}")


def _fill(connection: Connection, admin: str, size: int) -> None:
    """Random payloads: nothing is gained by compressing them."""
    dice = np.random.default_rng(7)
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with (
        connection.client(timeout=120.0) as client,
        client.producer(TOPIC) as producer,
        grpc.insecure_channel(admin, options) as channel,
    ):
        seal = channel.unary_unary("/pydanube.storage.v1.StorageAdmin/Seal")
        for _ in range(max(1, size // (PAYLOAD_BYTES * PART_MESSAGES))):
            offsets = np.arange(PART_MESSAGES + 1, dtype=np.int32) * PAYLOAD_BYTES
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(dice.bytes(PAYLOAD_BYTES * PART_MESSAGES))]
            payloads = pa.Array.from_buffers(pa.binary(), PART_MESSAGES, buffers)
            producer.send_table(pa.table({"payload": payloads}))
            producer.flush()
            seal(SealRequest(topic=TOPIC).SerializeToString(), timeout=120)


def _measure(spark: SparkSession, connection: Connection, rounds: int) -> list[Sample]:
    with connection.client() as client:
        segments = client.history.segments(TOPIC)
    files = [Path(segment.place).as_uri() for segment in segments]
    expected = segments[-1].end_offset + 1
    options = connection.options()

    def plain(columns: list[str] | None) -> DataFrame:
        frame = spark.read.parquet(*files)
        return frame.select(*(columns or ["offset", "publish_time", "append_time", "producer_name", "routing_key",
                                          "attributes", "schema_id", "schema_version", "payload"]))  # fmt: skip

    def fast(columns: list[str] | None) -> DataFrame:
        return read_topic(spark, TOPIC, connection=connection, columns=columns)

    def source(columns: list[str] | None) -> DataFrame:
        reader = spark.read.format("danube").options(**options, topic=TOPIC)
        return (reader.option("columns", ",".join(columns)) if columns else reader).load()

    ways: dict[str, Callable[[list[str] | None], DataFrame]] = {PLAIN: plain, FAST: fast, SOURCE: source}
    for name, way in ways.items():
        # Once without measuring: classes are loaded, files are in memory, and the answer is right.
        found = way(["offset"]).count()
        if found != expected:
            raise click.ClickException(f"{name} read {found} of {expected} messages")
    samples = []
    for _ in range(rounds):
        for columns in (None, NARROW):
            for name, way in ways.items():
                began, cpu = time.perf_counter(), _cpu_seconds()
                way(columns).write.format("noop").mode("overwrite").save()
                spent = time.perf_counter() - began, _cpu_seconds() - cpu
                samples.append(Sample(name, ", ".join(columns or ["all"]), *spent))
    return samples


def _cpu_seconds() -> float:
    """Of all our descendants, the dead ones that were waited for included."""
    children: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = sum(map(int, fields[11:15])) * TICK_SECONDS
    waiting, total = children.get(os.getpid(), []), 0.0
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += children.get(pid, [])
    return total


def _print(samples: list[Sample], mib: int) -> None:
    table = Table(title=f"{mib} MiB of {PAYLOAD_BYTES} B messages, sealed; medians", title_justify="left")
    for name in ("way", "columns", "s", "CPU s", "speed ÷ plain", "by CPU", "aim"):
        table.add_column(name, justify="left" if name in ("way", "columns") else "right")
    for columns in dict.fromkeys(sample.columns for sample in samples):
        seconds, cpu = (
            {
                way: median(
                    getattr(sample, what)
                    for sample in samples
                    if (sample.way, sample.columns) == (way, columns)
                )
                for way in (PLAIN, FAST, SOURCE)
            }
            for what in ("seconds", "cpu_seconds")
        )
        for way in seconds:
            aim = f"{AIMS[way]:.1f}" if way in AIMS and columns == "all" else ""
            ratios = f"{seconds[PLAIN] / seconds[way]:.2f}", f"{cpu[PLAIN] / cpu[way]:.2f}"
            table.add_row(way, columns, f"{seconds[way]:.2f}", f"{cpu[way]:.2f}", *ratios, aim)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
