"""A real broker while its object store does what stores do, and after its segments were damaged."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest

from pydanube.client import Client, Corrupt, DanubeError, ErrorCode, Retries, Unavailable, connect
from pydanube.protocol import dnb1
from tests.contract.stores.conftest import s3_settings
from tests.contract.stores.fault_proxy import FaultProxy, Request
from tests.contract.stores.peer_servers import PeerServer
from tests.fault.storage import modes
from tests.fault.storage.mortal_process import MortalProcess

TOPIC, OTHER = "/default/t", "/default/other"
SECONDS_MAX = 60.0


@pytest.fixture
async def proxy(s3_server: PeerServer) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(s3_server.port) as between:
        yield between


@pytest.fixture
async def broker(tmp_path: Path, proxy: FaultProxy) -> AsyncIterator[MortalProcess]:
    place = s3_settings(proxy.endpoint, max_retries=0, request_timeout_seconds=1)
    mode = modes.durable("object_store", modes.as_file(place), modes.object_store(proxy.endpoint).stored)
    mode.settings["storage"]["segments"] = {"age_seconds": 1, "waiting_mb_max": 1}
    # Local copies go at once, so that everything is read from the store.
    mode.settings["storage"]["local_retention"] = {"time_minutes": 1, "size_mb": 1}
    process = MortalProcess(tmp_path, mode.settings)
    await process.start()
    yield process
    await process.kill()


@pytest.fixture
async def client(broker: MortalProcess) -> AsyncIterator[Client]:
    retries = Retries(attempts_max=2, backoff=0.05, backoff_max=0.1, seconds_max=2.0)
    async with connect(f"danube://{broker.address}", retries=retries) as opened:
        yield opened


def is_write(request: Request) -> bool:
    return request.method in ("PUT", "POST")


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await condition():
            await asyncio.sleep(0.05)


async def numbers(client: Client, topic: str = TOPIC) -> list[int]:
    async with client.reader(topic, end="latest") as reader:
        return [int(message.payload.split()[0]) async for message in reader]


@pytest.mark.timeout(180)
async def test_publishing_goes_on_while_the_store_fails_and_all_is_stored_afterwards(
    broker: MortalProcess, client: Client, proxy: FaultProxy
) -> None:
    published = 0
    async with client.producer(TOPIC) as producer:

        async def publish() -> None:
            nonlocal published
            await producer.send_many([b"%d " % number for number in range(published, published + 50)])
            published += 50

        async def has_failed() -> bool:
            facts = await broker.describe(TOPIC)
            return facts.failures > 0 and facts.last_error != ""

        async def is_stored() -> bool:
            facts = await broker.describe(TOPIC)
            return (facts.sealed_end, facts.failures, facts.last_error) == (published, 0, "")

        await publish()
        await broker.seal(TOPIC)
        for kind, status in (
            ("answer", 500),
            ("answer", 403),
            ("silence", 0),
            ("reset", 0),
            ("lose_answer", 0),
        ):
            proxy.plan(kind, status=status, matching=is_write, times=1_000)
            await publish()
            with pytest.raises(grpc.aio.AioRpcError):
                await broker.seal(TOPIC)
            assert await has_failed()
            await publish()
            assert await numbers(client) == list(range(published)), "what is there can be read"
            proxy.heal()
            await broker.seal(TOPIC)
            assert await is_stored()
        # By itself too, once the pause is over.
        proxy.plan("answer", status=503, matching=is_write, times=1_000)
        await publish()
        await eventually(has_failed)
        proxy.heal()
        await eventually(is_stored)
        assert await numbers(client) == list(range(published))


@pytest.mark.timeout(180)
async def test_an_import_is_finished_once_the_store_answers_again(
    broker: MortalProcess, client: Client, proxy: FaultProxy, tmp_path: Path
) -> None:
    folder = tmp_path / "dnb1"
    folder.mkdir()
    messages = [
        dnb1.Message(
            offset,
            7,
            OTHER,
            "",
            offset,
            b"%d " % offset,
            1_700_000_000_000,
            "shop",
            None,
            (),
            None,
            None,
            None,
        )
        for offset in range(500)
    ]
    frames = [dnb1.encode_frame(message.topic_offset, dnb1.encode_message(message)) for message in messages]
    (folder / "wal.log").write_bytes(b"".join(frames))
    fault = proxy.plan("answer", status=503, matching=is_write, times=1_000)
    importing = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("danube")), "import", "--dnb1", str(folder), "--topic", OTHER,
        "--admin-addr", broker.admin, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS_MAX):
        await fault.met.wait()
        proxy.heal()
        output, _ = await importing.communicate()
    assert importing.returncode == 0, output.decode()
    assert await numbers(client, OTHER) == list(range(500))


@pytest.mark.timeout(180)
async def test_the_local_limit_refuses_and_lets_in_again(
    broker: MortalProcess, client: Client, proxy: FaultProxy
) -> None:
    sent: list[int] = []
    proxy.plan("answer", status=500, matching=is_write, times=10_000)
    async with client.producer(TOPIC) as producer:
        refusal: DanubeError | None = None
        for number in range(2_000):
            try:
                await producer.send(b"%d ".ljust(20_000, b".") % number)
            except Unavailable as error:
                refusal = error
                break
            sent.append(number)
        assert refusal is not None
        assert refusal.code is ErrorCode.OVERLOADED
        assert "storage.segments.waiting_mb_max" in refusal.text
    proxy.heal()

    async def is_let_in() -> bool:
        try:
            async with client.producer(TOPIC) as producer:
                await producer.send(b"-1 again")
        except Unavailable:
            return False
        return True

    await eventually(is_let_in)
    found = await numbers(client)
    assert found[: len(sent)] == sent
    assert set(found[len(sent) :]) <= {-1, len(sent)}, "refused ones are there as a whole or not at all"


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
async def test_a_damaged_segment_is_named_and_the_rest_goes_on(tmp_path: Path, damage: str) -> None:
    broker = MortalProcess(tmp_path, modes.local(tmp_path).settings)
    await broker.start()
    try:
        async with connect(f"danube://{broker.address}") as client:
            for topic in (TOPIC, OTHER):
                async with client.producer(topic) as producer:
                    await producer.send_many([b"%d " % number for number in range(500)])
                    await broker.seal(topic)
                    await producer.send_many([b"%d " % number for number in range(500, 520)])
            (segment,) = await broker.segments(TOPIC)
            file = Path(segment.place)
            data = file.read_bytes()
            file.unlink()
            if damage != "missing":
                file.write_bytes(data[:-30] if damage == "cut" else data[:4] + bytes(2_000) + data[2_004:])
            with pytest.raises(Corrupt) as told:
                await numbers(client)
            assert told.value.code is ErrorCode.SEGMENT_CORRUPT
            assert str(file) in told.value.text
            assert await numbers(client, OTHER) == list(range(520))
            async with client.producer(TOPIC) as producer:
                await producer.send(b"520 ")
            file.unlink(missing_ok=True)
            file.write_bytes(data)
            assert await numbers(client) == list(range(521)), "restored from a copy it is read again"
        await broker.stop()
    finally:
        await broker.kill()
