"""SIGKILL at every step of replacing segments: afterwards there are the old ones or the new ones, and all messages."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest

from pydanube.client import Client, connect
from pydanube.history.rewriting import rewrite_segments
from pydanube.history.segment import SegmentDescriptor
from pydanube.protocol import storage_admin_pb2 as pb
from tests.fault.storage.modes import Mode
from tests.fault.storage.mortal_process import MortalProcess
from tests.fault.storage.tale import LATER_MS, PATIENT

TOPIC = "/default/ledger"
STEPS = ("replacement_checked", "replacement_uploaded", "replacement_described", "replaced_removed")
MESSAGES = 30
SECONDS_MAX = 60.0


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["local", "object_store"])
async def test_a_replacement_happens_or_does_not(
    tmp_path: Path, make_mode: Callable[[str], Mode], mode: str
) -> None:
    storage = make_mode(mode)
    broker = MortalProcess(tmp_path, storage.settings)
    try:
        await broker.start()
        async with connect(f"danube://{broker.address}", retries=PATIENT) as client:
            await publish_segments(broker, client, 3)
            for number, step in enumerate(STEPS):
                await broker.stop()
                await broker.start(die_at=step)
                broker.arm()
                before = await names(broker)
                with suppress(grpc.aio.AioRpcError):
                    await merge_all(broker, tmp_path / f"made-{number}")
                    await broker.ask("DropCopies", pb.DropCopiesRequest(topic=TOPIC))
                await broker.killed()
                await broker.start()
                after = await names(broker)
                assert len(after) in (1, len(before))
                assert (after == before) == (step in STEPS[:2])
                assert await read(client) == payloads(MESSAGES * (number + 3))
                await publish_segments(broker, client, 1, first=number + 3)
            await broker.stop()
            await broker.start(later_ms=LATER_MS)
            known = set(await names(broker))
            async with asyncio.timeout(SECONDS_MAX):
                while (stored := await storage.stored()) != known:
                    assert known <= stored, f"{known - stored} lost"
                    await asyncio.sleep(0.05)
            assert await read(client) == payloads(MESSAGES * (len(STEPS) + 3))
            await broker.stop()
    finally:
        await broker.kill()
    assert list((broker.data_dir / "wal" / "spool").iterdir()) == []


def payloads(count: int) -> list[bytes]:
    return [b"message %d" % number for number in range(count)]


async def publish_segments(broker: MortalProcess, client: Client, count: int, *, first: int = 0) -> None:
    for number in range(first, first + count):
        own = payloads(MESSAGES * (number + 1))[MESSAGES * number :]
        async with client.producer(TOPIC) as producer:
            await producer.send_many(own)
        await broker.seal(TOPIC)


async def names(broker: MortalProcess) -> list[str]:
    return [segment.segment_id for segment in await broker.segments(TOPIC)]


async def read(client: Client) -> list[bytes]:
    async with client.reader(TOPIC, start="earliest", end="latest") as reader:
        found = [(message.offset, message.payload) async for message in reader]
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [payload for _, payload in found]


async def merge_all(broker: MortalProcess, folder: Path) -> None:
    """What a maintenance job does, through the admin port alone."""
    folder.mkdir()
    segments = await broker.segments(TOPIC)
    sources = []
    for segment in segments:
        path = folder / f"old-{segment.start_offset}"
        request = pb.ReadSegmentRequest(
            topic=TOPIC, segment_id=segment.segment_id, position=0, size=segment.size
        )
        path.write_bytes(pb.ReadSegmentResponse.FromString(await broker.ask("ReadSegment", request)).data)
        fields = {name: getattr(segment, name) for name in SegmentDescriptor.__struct_fields__}
        sources.append((path, SegmentDescriptor(**fields)))
    made = rewrite_segments(sources, folder, created_ms=1, segment_bytes=1 << 30)
    begin = pb.BeginReplacementRequest(
        topic=TOPIC, segment_ids=[segment.segment_id for segment in segments], reason="test"
    )
    number = pb.BeginReplacementResponse.FromString(
        await broker.ask("BeginReplacement", begin)
    ).replacement_id
    data = Path(made.files[0].path).read_bytes()
    part = pb.ReplacementPartRequest(replacement_id=number, topic=TOPIC, data=data)
    await broker.ask("ReplacementPart", part)
    finish = pb.FinishReplacementRequest(replacement_id=number, topic=TOPIC)
    await broker.ask("FinishReplacement", finish)
