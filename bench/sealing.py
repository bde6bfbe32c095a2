"""`python -m bench.sealing`: how quickly history becomes segments, and whether publishers feel it.

Three questions, each answered as a ratio within one run: what the converter makes of a run per second, how near a store
comes to what it can do by itself, and what becomes of a publisher's worst waits while segments are being made.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import grpc
import obstore
import yaml
from obstore.store import S3Store
from rich.console import Console
from rich.table import Table

from bench.servers import ROOT, free_address, running
from pydanube.entries.entry import Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.history.convert_job import ConvertJob, RunSource
from pydanube.history.converter import Converter
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native.arrow import encode_payloads
from pydanube.protocol.native_pb2 import BatchHead
from pydanube.protocol.storage_admin_pb2 import SealRequest, SealResponse
from pydanube.stores.directory import DirectoryStore
from pydanube.stores.settings import Backend, DurableSettings, open_store
from tests.contract.stores import peer_servers

RUN_BYTES = 64 << 20
OBJECT_BYTES = 64 << 20
WORDS = b"order shipped warehouse customer invoice pending gateway sensor reading battery".split()
LATENCY_RATE = 2_000
LATENCY_MESSAGES = 20_000
BULK_MESSAGES = 400_000


@dataclass(frozen=True, slots=True)
class SealRate:
    what: str
    payload_mb_per_s: float
    us_per_message: float
    stored_per_byte: float


@dataclass(frozen=True, slots=True)
class UploadRate:
    store: str
    mb_per_s: float
    raw_mb_per_s: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Of a publisher of 1 KiB messages at a steady rate, end to end."""

    p50_us: float
    p99_us: float


def _payload(size: int, text: bool, dice: random.Random) -> bytes:
    if not text:
        return dice.randbytes(size)
    return b" ".join(dice.choices(WORDS, k=size // 8 + 1))[:size].ljust(size)


def _bodies(size: int, batch: int, text: bool) -> list[tuple[bytes, int]]:
    dice = random.Random(7)
    bodies = []
    for _ in range(RUN_BYTES // (size * batch)):
        payloads = [_payload(size, text, dice) for _ in range(batch)]
        if batch > 1:
            head = BatchHead(producer_id=1, producer_name="bench", publish_time=1_700_000_000_000)
            bodies.append((encode_payloads(payloads, head), batch))
        else:
            message = StreamMessage(
                request_id=1,
                msg_id=MsgID(producer_id=1, topic_name="/bench/t", broker_addr="127.0.0.1:6650"),
                payload=payloads[0],
                publish_time=1_700_000_000_000,
                producer_name="bench",
            )
            bodies.append((message.SerializeToString(), 1))
    return bodies


def _run_of(folder: Path, bodies: list[tuple[bytes, int]]) -> RunSource:
    heads, offset = [], 0
    for number, (body, count) in enumerate(bodies):
        kind = Kind.ROW if count == 1 else Kind.BATCH
        heads.append(encode_header(kind, body, count, 1, offset, 1, 0, 1_700_000_000_000 + number // 100, 1))
        offset += count
    buffers, descriptor = encode_run(heads, [body for body, _ in bodies], created_ms=0)
    path = folder / descriptor.run_id
    path.write_bytes(b"".join(buffers))
    return RunSource(path=str(path), descriptor=descriptor)


async def seal_rates(scratch: Path, rounds: int) -> list[SealRate]:
    """What the converter's process does per second of wall time, alone on the machine."""
    rates = []
    converter = Converter()
    for batch, size in ((1000, 128), (1000, 1024), (1, 128), (1, 1024)):
        for text in (False, True):
            folder = Path(tempfile.mkdtemp(dir=scratch))
            run = _run_of(folder, _bodies(size, batch, text))
            seconds, stored = [], 0
            messages = run.descriptor.next_offset
            for number in range(rounds + 1):
                begun = time.perf_counter()
                converted = await converter.convert(
                    ConvertJob(topic="/bench/t", runs=(run,), spool=str(folder), created_ms=number)
                )
                # The first one starts the process.
                seconds += [time.perf_counter() - begun] if number else []
                stored = converted.descriptor.size
                Path(converted.path).unlink()
            took = median(seconds)
            kind = f"batches of {batch}" if batch > 1 else "gRPC rows"
            what = f"{kind} × {size} B, {'text' if text else 'random'}"
            rates.append(
                SealRate(
                    what, messages * size / took / 1e6, took / messages * 1e6, stored / (messages * size)
                )
            )
    await converter.close()
    return rates


async def upload_rates(scratch: Path, rounds: int) -> list[UploadRate]:
    data = random.Random(3).randbytes(OBJECT_BYTES)
    file = scratch / "object"
    directory, raw = [], []
    store = DirectoryStore(scratch / "store")
    for number in range(rounds):
        file.write_bytes(data)
        raw.append(_timed(lambda: _write_synced(scratch / "raw", data)))
        begun = time.perf_counter()
        await store.put_file(f"storage/{number}", file)
        directory.append(time.perf_counter() - begun)
    rates = [UploadRate("local directory", *_mb_per_s(directory, raw))]
    (scratch / "seaweedfs").mkdir()
    peer = peer_servers.start_seaweedfs(scratch / "seaweedfs")
    try:
        cloud = open_store(
            DurableSettings(
                backend=Backend.S3,
                root=f"s3://{peer_servers.BUCKET}/bench",
                region="us-east-1",
                endpoint=peer.endpoint,
                access_key=peer_servers.WRITER[0],
                secret_key=peer_servers.WRITER[1],
            )
        )
        plain = S3Store(
            peer_servers.BUCKET,
            region="us-east-1",
            endpoint=peer.endpoint,
            access_key_id=peer_servers.WRITER[0],
            secret_access_key=peer_servers.WRITER[1],
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )
        ours, theirs = [], []
        for number in range(rounds):
            file.write_bytes(data)
            begun = time.perf_counter()
            await cloud.put_file(f"ours/{number}", file)
            ours.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            await obstore.put_async(plain, f"theirs/{number}", data, chunk_size=8 << 20, max_concurrency=4)
            theirs.append(time.perf_counter() - begun)
        await cloud.close()
        rates.append(UploadRate("S3 (SeaweedFS on this machine)", *_mb_per_s(ours, theirs)))
    finally:
        peer.stop()
    return rates


def _timed(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fdatasync(file.fileno())


def _mb_per_s(ours: list[float], raw: list[float]) -> tuple[float, float]:
    return OBJECT_BYTES / median(ours) / 1e6, OBJECT_BYTES / median(raw) / 1e6


def waits(scratch: Path, rounds: int) -> tuple[Waits, Waits]:
    """The same publisher without and with segments being made beside it, alternately, on one broker."""
    folder = scratch / "broker"
    folder.mkdir()
    config = folder / "danube.yml"
    never = {"size_mb": 4096, "age_seconds": 86_400}
    config.write_text(yaml.safe_dump({"storage": {"segments": never}}))
    address, admin = free_address(), free_address()
    danube = str(Path(sys.executable).parent / "danube")
    command = [danube, "broker", "--config-file", str(config), "--data-dir", str(folder / "data")]
    command += ["--broker-addr", address, "--admin-addr", admin, "--prom-exporter", "off"]
    quiet: list[Waits] = []
    busy: list[Waits] = []
    with running(command, folder / "broker.log"), grpc.insecure_channel(admin) as channel:
        seal = channel.unary_unary(
            "/pydanube.storage.v1.StorageAdmin/Seal",
            request_serializer=SealRequest.SerializeToString,
            response_deserializer=SealResponse.FromString,
        )
        for number in range(rounds):
            topic = f"/default/bulk-{number}"
            _bench(
                danube, "publish", address, "--topic", topic, "--size", "1024", "--count", str(BULK_MESSAGES)
            )
            _waits(danube, address)  # what was published in bulk is on its way from the journal into runs
            quiet.append(_waits(danube, address))
            # Not by the command: starting one would be felt by the publisher too.
            sealing = seal.future(SealRequest(topic=topic))
            busy.append(_waits(danube, address))
            sealing.result()
    return _middle(quiet), _middle(busy)


def _waits(danube: str, address: str) -> Waits:
    arguments = ("--size", "1024", "--rate", str(LATENCY_RATE), "--count", str(LATENCY_MESSAGES))
    found = _bench(danube, "latency", address, *arguments)
    return Waits(found["p50_us"], found["p99_us"])


def _bench(danube: str, what: str, address: str, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [danube, "bench", what, "--broker", address, "--reliable", *arguments, "--output", "json"],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _middle(several: list[Waits]) -> Waits:
    return Waits(median(one.p50_us for one in several), median(one.p99_us for one in several))


@click.command(context_settings={"show_default": True})
@click.option("--rounds", type=click.IntRange(1, 50), default=3)
@click.option("--output", type=click.Choice(["table", "json"]), default="table")
def main(rounds: int, output: str) -> None:
    """Seal rate, upload rate, and a publisher's waits while segments are made."""
    # In the checkout, not in the system's temporary folder: that one is often memory, and sync is free there.
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sealing-", dir=tools) as name:
        scratch = Path(name)
        seals = asyncio.run(seal_rates(scratch, rounds))
        uploads = asyncio.run(upload_rates(scratch, rounds))
        quiet, busy = waits(scratch, rounds)
    if output == "json":
        found = {"seal": [asdict(rate) for rate in seals], "upload": [asdict(rate) for rate in uploads]}
        click.echo(json.dumps(found | {"quiet": asdict(quiet), "sealing": asdict(busy)}, indent=2))
        return
    console = Console()
    table = Table("what", "MB/s of payload", "µs a message", "bytes stored per byte")
    for rate in seals:
        table.add_row(
            rate.what,
            f"{rate.payload_mb_per_s:.0f}",
            f"{rate.us_per_message:.2f}",
            f"{rate.stored_per_byte:.2f}",
        )
    console.print(table)
    table = Table("store", "MB/s", "by itself", "ratio")
    for upload in uploads:
        ratio = upload.mb_per_s / upload.raw_mb_per_s
        table.add_row(upload.store, f"{upload.mb_per_s:.0f}", f"{upload.raw_mb_per_s:.0f}", f"{ratio:.2f}")
    console.print(table)
    table = Table("publisher, 2,000 × 1 KiB a second", "p50 ms", "p99 ms")
    for what, one in (("alone", quiet), ("while segments are made", busy)):
        table.add_row(what, f"{one.p50_us / 1000:.2f}", f"{one.p99_us / 1000:.2f}")
    console.print(table)
    console.print(f"p99 while segments are made: {busy.p99_us / quiet.p99_us:.2f} × (aim 2)")


if __name__ == "__main__":
    main()
