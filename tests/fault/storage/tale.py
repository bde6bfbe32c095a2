"""A broker that ends at every step on the way into the durable store, and clients that live through all of it.

One idempotent native producer numbers its messages, so the topic must be 0, 1, 2 … at offsets 0, 1, 2 …, whatever
happened. A gRPC producer does not know the end of a call that was cut: those messages are there once or not at all.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from pydanube.client import Batching, Client, DanubeError, Retries, connect
from pydanube.history.catalogue import Catalogue
from pydanube.kernel.names import TopicName
from pydanube.metadata import SqliteStore
from pydanube.protocol import danube_pb2 as pb
from pydanube.server.process import SystemClock
from tests.fault.storage.modes import Mode
from tests.fault.storage.mortal_process import MortalProcess

STEPS = ("staged", "journal_released", "converted", "uploaded", "described", "released")
LEDGER = "/default/ledger"
ORDERS = "/default/orders"
SEALS_MAX = 50
"""Attempts to make a broker reach the step it is to end at."""
LATER_MS = 2 * 60 * 60_000
"""In the last life everything in the store is old enough to be swept."""
PATIENT = Retries(attempts_max=10_000, backoff=0.02, backoff_max=0.2, seconds_max=120.0)
SECONDS_MAX = 60.0


@dataclass
class Told:
    """What the clients know."""

    ledger_acknowledged: int = 0
    followed: int = 0
    orders_attempted: set[str] = field(default_factory=set)
    orders_acknowledged: set[str] = field(default_factory=set)
    orders_consumed: dict[int, str] = field(default_factory=dict)


async def tell(
    folder: Path, mode: Mode, seed: str, *, steps: tuple[str, ...] = STEPS, say: Callable[[str], None] = print
) -> Told:
    """Raises AssertionError if something is lost, doubled, out of order or left behind."""
    dice = random.Random(seed)
    broker = MortalProcess(folder, mode.settings)
    plan = list(steps)
    dice.shuffle(plan)
    tale = _Tale(broker, dice)
    try:
        await broker.start()
        async with connect(f"danube://{broker.address}", retries=PATIENT) as client:
            await tale.begin(client)
            for step in plan:
                await tale.live(client, step, say)
            await tale.live_on(client, mode)
            await tale.end()
    finally:
        await tale.abandon()
        await broker.kill()
    await _check_local_files(broker.data_dir)
    return tale.told


class _Tale:
    def __init__(self, broker: MortalProcess, dice: random.Random) -> None:
        self.told = Told()
        self._broker = broker
        self._dice = dice
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, client: Client) -> None:
        ready = [asyncio.Event() for _ in range(4)]
        duties = (self._publish_ledger, self._follow_ledger, self._publish_orders, self._consume_orders)
        for duty, event in zip(duties, ready, strict=True):
            self._tasks.append(asyncio.create_task(duty(client, event)))
            waiting = asyncio.create_task(event.wait())
            await asyncio.wait([waiting, *self._tasks], timeout=SECONDS_MAX, return_when="FIRST_COMPLETED")
            assert event.is_set(), [task for task in self._tasks if task.done()]
        await self._broker.kill()

    async def live(self, client: Client, step: str, say: Callable[[str], None]) -> None:
        """One life that ends at the step."""
        broker, turn, is_armed = self._broker, self._dice.randint(1, 3), self._dice.random() < 0.3
        say(f"until {step} is reached {turn} times{', from the start on' if is_armed else ''}")
        if not await broker.start(die_at=step, turn=turn, is_armed=is_armed):
            return
        if not is_armed:
            await self.audit(client)
            broker.arm()
        for _ in range(SEALS_MAX):
            # It ends in the middle of this, sooner or later.
            with suppress(grpc.aio.AioRpcError):
                await broker.seal(self._dice.choice((LEDGER, ORDERS)))
            if not broker.is_running:
                break
        await broker.killed()

    async def live_on(self, client: Client, mode: Mode) -> None:
        """The last life: swept, sealed, complete."""
        broker = self._broker
        await broker.start(later_ms=LATER_MS)
        before = self.told.ledger_acknowledged
        async with asyncio.timeout(SECONDS_MAX):
            while self.told.ledger_acknowledged == before:
                await asyncio.sleep(0.01)
        self._is_over = True
        await asyncio.wait_for(asyncio.gather(self._tasks[0], self._tasks[2]), SECONDS_MAX)
        await self.audit(client)
        for topic in (LEDGER, ORDERS):
            await broker.seal(topic)
        await self._check_segments(mode)
        await self.audit(client)

    async def end(self) -> None:
        """Followers must come to the end too; then the broker stops."""
        async with asyncio.timeout(SECONDS_MAX):
            while (
                self.told.followed < self.told.ledger_acknowledged
                or not self.told.orders_acknowledged <= set(self.told.orders_consumed.values())
            ):
                assert not any(task.done() for task in (self._tasks[1], self._tasks[3])), self._tasks
                await asyncio.sleep(0.01)
        await self.abandon()
        await self._broker.stop()

    async def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        self._tasks.clear()

    # The clients.

    async def _publish_ledger(self, client: Client, ready: asyncio.Event) -> None:
        number = 0
        batching = Batching(linger_ms=0, compression=self._dice.choice((None, "lz4", "zstd")))
        async with client.producer(LEDGER, name="ledger", batching=batching) as producer:
            while not self._is_over:
                count = self._dice.randint(1, 40)
                await producer.send_many([ledger_payload(number + n) for n in range(count)])
                number += count
                self.told.ledger_acknowledged = number
                ready.set()
                await asyncio.sleep(0.01)

    async def _follow_ledger(self, client: Client, ready: asyncio.Event) -> None:
        async with client.reader(LEDGER) as reader:
            ready.set()
            async for message in reader:
                assert (message.offset, message.payload) == (
                    self.told.followed,
                    ledger_payload(self.told.followed),
                )
                self.told.followed += 1

    async def _publish_orders(self, client: Client, ready: asyncio.Event) -> None:
        number = 0
        options = [("grpc.max_reconnect_backoff_ms", 200), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.insecure_channel(self._broker.address, options) as channel:
            producer_id = 0
            while not self._is_over:
                try:
                    if not producer_id:
                        producer_id = await _create_producer(channel)
                    payload = f"order-{number}"
                    number += 1
                    self.told.orders_attempted.add(payload)
                    await _send(channel, producer_id, payload)
                    self.told.orders_acknowledged.add(payload)
                    ready.set()
                except grpc.aio.AioRpcError:
                    producer_id = 0
                await asyncio.sleep(0.005)

    async def _consume_orders(self, client: Client, ready: asyncio.Event) -> None:
        async with client.consumer(
            ORDERS, subscription="s", type="exclusive", name="c", start="earliest"
        ) as consumer:
            ready.set()
            async for message in consumer:
                payload = message.payload.decode()
                assert message.offset is not None
                # It may come again after a crash, but it must be the same.
                assert self.told.orders_consumed.setdefault(message.offset, payload) == payload
                with suppress(DanubeError):
                    await consumer.ack(message)

    # What is to be found.

    async def audit(self, client: Client) -> None:
        """Read everything from the first offset on and compare it with what was promised before."""
        promised, acknowledged = self.told.ledger_acknowledged, set(self.told.orders_acknowledged)
        ledger = await _read_all(client, LEDGER)
        assert [payload for _, payload in ledger] == [ledger_payload(n) for n in range(len(ledger))]
        assert len(ledger) >= promised, f"{promised} acknowledged, {len(ledger)} there"
        orders = [payload.decode() for _, payload in await _read_all(client, ORDERS)]
        assert acknowledged - set(orders) == set(), "lost"
        assert set(orders) - self.told.orders_attempted == set(), "never sent"
        assert len(orders) == len(set(orders)), "twice"
        assert orders == sorted(orders, key=lambda payload: int(payload.removeprefix("order-")))

    async def _check_segments(self, mode: Mode) -> None:
        """Segments follow each other without a gap, and there is nothing else in the store."""
        known: set[str] = set()
        for topic in (LEDGER, ORDERS):
            segments = await self._broker.segments(topic)
            starts = [segment.start_offset for segment in segments]
            assert starts == [0, *(segment.end_offset + 1 for segment in segments[:-1])]
            assert segments[-1].end_offset + 1 == (await self._broker.describe(topic)).next_offset
            known |= {segment.segment_id for segment in segments}
        async with asyncio.timeout(SECONDS_MAX):
            # The sweep began with this life; where it is now cannot be asked.
            while (stored := await mode.stored()) != known:
                assert known <= stored, f"{known - stored} lost"
                await asyncio.sleep(0.05)


def ledger_payload(number: int) -> bytes:
    """Different sizes, mostly small."""
    return (b"%d " % number).ljust(number * 37 % 211 + (5_000 if number % 97 == 0 else 0), b".")


async def _read_all(client: Client, topic: str) -> list[tuple[int, bytes]]:
    async with client.reader(topic, start="earliest", end="latest") as reader:
        found = [(message.offset or 0, message.payload) async for message in reader]
    assert [offset for offset, _ in found] == list(range(len(found)))
    return found


async def _create_producer(channel: grpc.aio.Channel) -> int:
    request = pb.ProducerRequest(
        request_id=1, producer_name="orders", topic_name=ORDERS, dispatch_strategy=1
    ).SerializeToString()
    call = channel.unary_unary("/danube.ProducerService/CreateProducer")
    answer = pb.ProducerResponse.FromString(await call(request, timeout=SECONDS_MAX, wait_for_ready=True))
    return int(answer.producer_id)


async def _send(channel: grpc.aio.Channel, producer_id: int, payload: str) -> None:
    message = pb.StreamMessage(
        request_id=2,
        msg_id=pb.MsgID(producer_id=producer_id, topic_name=ORDERS),
        payload=payload.encode(),
        producer_name="orders",
    )
    call = channel.unary_unary("/danube.ProducerService/SendMessage")
    await call(message.SerializeToString(), timeout=SECONDS_MAX)


async def _check_local_files(data_dir: Path) -> None:
    """Nothing lies on the disk that the metadata store does not know."""
    assert list((data_dir / "wal" / "spool").iterdir()) == []
    metadata = await SqliteStore.open(data_dir / "metadata.sqlite3", clock=SystemClock())
    try:
        (identity,) = await metadata.list("/storage/journals")
        catalogue = Catalogue(metadata, identity.key.rpartition("/")[2])
        for topic in map(TopicName.parse, (LEDGER, ORDERS)):
            known = {run.run_id for run in await catalogue.runs.list(topic)}
            folder = data_dir / "wal" / "runs" / topic.namespace / topic.topic
            found = {path.name for path in folder.iterdir()} if folder.exists() else set()
            assert found == known
    finally:
        await metadata.close()
