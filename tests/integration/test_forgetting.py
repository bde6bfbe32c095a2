"""What is forgotten in time and what never is (data-plane spec, §7.1 lifetime, §8.1 idle consumers), and isolation."""

import pytest
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import SHARED, Status, WireClient, eventually, refused

from pydanube.broker import housekeeping
from pydanube.broker.agenda import Agenda

TOPIC = "/default/t"
HOUR_MS = 3_600_000


@pytest.fixture
async def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """A broker that sweeps all the time."""
    monkeypatch.setattr(housekeeping, "SWEEP_MS", 20)
    return await start_broker()


async def test_ids_not_seen_for_an_hour_are_forgotten_kindly(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC, kind=SHARED)
    broker.clock.advance(HOUR_MS + 1_000)

    async def is_forgotten() -> bool:
        return not await _is_known(client, consumer.id)

    await eventually(is_forgotten)
    # For a minute the answer makes every client come back by itself.
    with refused(Status.UNAVAILABLE):
        await producer.send("under the old id")
    with refused(Status.UNAVAILABLE):
        await consumer.open()
    broker.clock.advance(61_000)
    with refused(Status.NOT_FOUND):
        await consumer.open()


async def _is_known(client: WireClient, consumer_id: int) -> bool:
    """A known consumer is told CLOSE as often as it asks, an unknown one hears an error the second time."""
    try:
        await client.consumer_is_healthy(consumer_id)
    except Exception:
        return False
    return True


async def test_a_subscription_without_consumers_keeps_its_messages(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    consumer = await client.subscribe(TOPIC)
    await producer.send("kept")
    broker.clock.advance(HOUR_MS + 1_000)

    async def is_forgotten() -> bool:
        return not await _is_known(client, consumer.id)

    await eventually(is_forgotten)
    await broker.restart()
    client = broker.client()
    stream = await client.consume(TOPIC, name="another")
    assert await stream.payloads(1) == ["kept"]


async def test_a_streaming_consumer_and_a_pinging_producer_are_never_forgotten(
    broker: RunningBroker, client: WireClient
) -> None:
    producer = await client.create_producer(TOPIC)
    stream = await client.consume(TOPIC)
    for _ in range(4):
        broker.clock.advance(HOUR_MS // 2)
        assert await client.producer_is_healthy(producer.id)
        await stream.assert_silent(0.1)  # several sweeps
    await producer.send("hello")
    assert await stream.payloads(1) == ["hello"]


class Piece:
    """Something on the agenda."""

    def __init__(self, *, is_broken: bool) -> None:
        self.is_listed = False
        self.runs = 0
        self._is_broken = is_broken

    def run(self) -> None:
        self.runs += 1
        if self._is_broken:
            raise ZeroDivisionError


async def test_a_bug_in_one_subscription_stops_no_other() -> None:
    agenda = Agenda()
    pieces = [Piece(is_broken=False), Piece(is_broken=True), Piece(is_broken=False)]
    for _ in range(2):
        for piece in pieces:
            agenda.add(piece)
        agenda.run()
    assert [piece.runs for piece in pieces] == [2, 2, 2]
