"""Producers whose retries are not stored twice (docs/protocol.md: Idempotent producers)."""

from pathlib import Path
from typing import Any

import pytest
from broker_harness.broker_process import BrokerProcess
from broker_harness.native_wire import (
    EARLIEST,
    LATEST,
    NativeClient,
    NativeProducer,
    NativeRefusal,
    refused_with,
)
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import eventually

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol.native.bodies import NO_OFFSET

TOPIC = "/default/t"


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


async def _open(native: NativeClient, name: str = "p", **fields: Any) -> NativeProducer:
    return await native.open_producer(TOPIC, name, idempotent=True, **fields)


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await _open(native)


async def _stored(native: NativeClient) -> list[str]:
    reader = await native.open_reader(TOPIC, EARLIEST, LATEST)
    return [received.payload for received in await reader.rest()]


async def test_a_session_begins_with_the_number_after_the_last(
    native: NativeClient, producer: NativeProducer
) -> None:
    assert (producer.opened.epoch, producer.opened.last_sequence) == (1, 0)
    await producer.send(producer.row("1"), 1)
    await producer.send(producer.batch(["2", "3", "4"]), 2)
    again = await _open(native)
    assert (again.opened.epoch, again.opened.last_sequence) == (2, 4)
    assert (await again.send(again.row("5"), 5)).offset == 4
    plain = await native.open_producer(TOPIC, "plain")
    assert (plain.opened.epoch, plain.opened.last_sequence) == (0, 0)


async def test_a_repeated_publish_gets_the_first_offset(
    native: NativeClient, producer: NativeProducer
) -> None:
    row, batch = producer.row("1"), producer.batch(["2", "3", "4"])
    first = await producer.send(row, 1)
    second = await producer.send(batch, 2)
    for _ in range(3):
        assert (await producer.send(row, 1)).offset == first.offset == 0
        repeated = await producer.send(batch, 2)
        assert (repeated.offset, repeated.messages) == (second.offset, second.messages) == (1, 3)
    assert await _stored(native) == ["1", "2", "3", "4"]


async def test_a_repeat_is_answered_though_the_original_is_not_yet(
    native: NativeClient, producer: NativeProducer
) -> None:
    requests = []
    for sequence in range(1, 101):
        body = producer.row(str(sequence))
        requests += [producer.publish(body, sequence) for _ in range(3)]
    offsets = [(await producer.published(request)).offset for request in requests]
    assert offsets == [n for n in range(100) for _ in range(3)]
    assert await _stored(native) == [str(n) for n in range(1, 101)]


async def test_parts_of_a_batch_are_known_too(native: NativeClient, producer: NativeProducer) -> None:
    await producer.send(producer.batch([str(n) for n in range(1, 11)]), 1)
    assert (await producer.send(producer.batch(["4", "5"]), 4)).offset == 3
    assert (await producer.send(producer.row("10"), 10)).offset == 9
    assert len(await _stored(native)) == 10


async def test_a_gap_is_refused_with_what_is_expected(native: NativeClient, producer: NativeProducer) -> None:
    for sequence, body in ((2, producer.row("x")), (1 << 63, producer.row("x"))):
        with pytest.raises(NativeRefusal) as caught:
            await producer.send(body, sequence)
        assert caught.value.code is ErrorCode.SEQUENCE_GAP
        assert caught.value.error.expected_sequence == 1
    await producer.send(producer.batch(["1", "2", "3"]), 1)
    for sequence, body in (
        (5, producer.row("x")),
        (3, producer.batch(["3", "4"])),
    ):  # half known is not known
        with pytest.raises(NativeRefusal) as caught:
            await producer.send(body, sequence)
        assert caught.value.code is ErrorCode.SEQUENCE_GAP
        assert caught.value.error.expected_sequence == 4
    assert (await producer.send(producer.row("4"), 4)).offset == 3
    assert await _stored(native) == ["1", "2", "3", "4"]


async def test_a_refused_publish_uses_up_no_number(native: NativeClient, producer: NativeProducer) -> None:
    with refused_with(ErrorCode.MALFORMED_REQUEST):
        await producer.send(b"\xff", 1)
    assert (await producer.send(producer.row("1"), 1)).offset == 0


async def test_what_is_too_long_ago_is_still_not_stored_twice(
    native: NativeClient, producer: NativeProducer
) -> None:
    for sequence in range(1, 41):
        await producer.send(producer.row(str(sequence)), sequence)
    assert (await producer.send(producer.row("1"), 1)).offset == NO_OFFSET
    assert (await producer.send(producer.row("25"), 25)).offset == 24  # one of the last sixteen
    assert len(await _stored(native)) == 40


async def test_a_client_that_reconnects_goes_on_with_its_session(broker: RunningBroker) -> None:
    first = await broker.native()
    producer = await _open(first)
    for sequence in range(1, 51):
        producer.publish(producer.row(str(sequence)), sequence)
    await first.drain()
    await first.close()  # answers unheard: what became of them is unknown
    second = await broker.native()
    again = await _open(second, epoch=producer.opened.epoch)
    assert again.opened.epoch == producer.opened.epoch
    assert again.id == producer.id
    assert again.opened.last_sequence <= 50
    for sequence in range(1, 61):
        answer = await again.send(again.row(str(sequence)), sequence)
        assert answer.offset in (sequence - 1, NO_OFFSET)
    assert await _stored(second) == [str(n) for n in range(1, 61)]


async def test_a_new_session_fences_the_one_before(broker: RunningBroker) -> None:
    first, second = await broker.native(), await broker.native()
    old = await _open(first)
    await old.send(old.row("1"), 1)
    new = await _open(second)
    assert new.opened.epoch == old.opened.epoch + 1
    with refused_with(ErrorCode.PRODUCER_FENCED):
        await old.send(old.row("2"), 2)
    with refused_with(ErrorCode.PRODUCER_FENCED):
        await _open(first, epoch=old.opened.epoch)
    assert (await new.send(new.row("2"), 2)).offset == 1
    assert await _stored(second) == ["1", "2"]


@pytest.mark.parametrize("epoch", [0, 1, 7])
async def test_an_epoch_nobody_gave_is_refused(native: NativeClient, epoch: int) -> None:
    with refused_with(ErrorCode.PRODUCER_FENCED):
        await _open(native, epoch=epoch)
    await native.open_producer(TOPIC, "p")
    with refused_with(ErrorCode.PRODUCER_FENCED):
        await _open(native, epoch=epoch)


async def test_a_producer_without_numbers_is_not_fenced_by_one_with(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send(producer.row("1"), 1)
    plain = await native.open_producer(TOPIC, "p")
    assert plain.id == producer.id
    await plain.send(plain.row("plain"))
    wire = await broker.client().create_producer(TOPIC, "p")
    await wire.send("gRPC")
    await producer.send(producer.row("2"), 2)
    assert await _stored(native) == ["1", "plain", "gRPC", "2"]


async def test_names_count_for_themselves(native: NativeClient, producer: NativeProducer) -> None:
    other = await _open(native, "other")
    await producer.send(producer.row("p1"), 1)
    assert (await other.send(other.row("o1"), 1)).offset == 1
    elsewhere = await native.open_producer("/default/other", "p", idempotent=True)
    assert (await elsewhere.send(elsewhere.row("e1"), 1)).offset == 0


async def test_sessions_and_numbers_survive_a_restart(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await _open(native)
    for sequence in (1, 3, 5):
        await producer.send(producer.batch([str(sequence), str(sequence + 1)]), sequence)
    for _ in range(2):
        await broker.restart()
        native = await broker.native()
        again = await _open(native, epoch=1)
        assert (again.opened.epoch, again.opened.last_sequence, again.id) == (1, 6, producer.id)
        for sequence in (1, 3, 5):
            repeated = await again.send(again.batch([str(sequence), str(sequence + 1)]), sequence)
            assert repeated.offset == sequence - 1
        with refused_with(ErrorCode.SEQUENCE_GAP):
            await again.send(again.row("x"), 8)
    await _open(native)
    await broker.restart()
    with refused_with(ErrorCode.PRODUCER_FENCED):
        await _open(await broker.native(), epoch=1)
    assert await _stored(await broker.native()) == [str(n) for n in range(1, 7)]


async def test_numbers_survive_a_broker_that_is_killed(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"storage": {"wal": {"rotation": {"max_bytes": 1 << 20}}}}
    expected = 0
    for attempt in range(3):
        async with BrokerProcess(tmp_path, **settings) as broker:
            native = await broker.native()
            producer = await _open(native, **({"epoch": 1} if attempt else {}))
            assert producer.opened.epoch == 1
            last = producer.opened.last_sequence
            assert last >= expected  # nothing answered is forgotten
            # All of them again: what the killed broker had taken must not be stored twice.
            for sequence in range(1, last + 1):
                assert (await producer.send(producer.row(str(sequence)), sequence)).offset in (
                    sequence - 1,
                    NO_OFFSET,
                )
            for sequence in range(last + 1, last + 101):
                await producer.send(producer.row(str(sequence)), sequence)
            expected = last + 100
            for sequence in range(expected + 1, expected + 51):
                producer.publish(producer.row(str(sequence)), sequence)
            await native.drain()  # unanswered when the broker is killed
    async with BrokerProcess(tmp_path, **settings) as broker:
        native = await broker.native()
        stored = await _stored(native)
        assert len(stored) >= expected
        assert stored == [str(n) for n in range(1, len(stored) + 1)]


async def test_the_latest_thousand_producers_are_remembered(native: NativeClient) -> None:
    first = await _open(native, "first")
    await first.send(first.row("1"), 1)
    second = await _open(native, "second")
    await second.send(second.row("1"), 1)
    others = [await _open(native, f"p{n}") for n in range(999)]
    requests = [(other, other.publish(other.row("1"), 1)) for other in others]
    for other, request in requests:
        await other.published(request)
    assert (await _open(native, "second")).opened.last_sequence == 1
    again = await _open(native, "first")  # a thousand others appended since
    assert again.opened.last_sequence == 0
    await again.send(again.row("forgotten, so 1 comes next"), 1)


async def test_idempotent_producers_are_remembered_for_a_week(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far longer than others: their retries would be stored twice."""
    monkeypatch.setattr("pydanube.broker.housekeeping.SWEEP_MS", 20)
    broker = await start_broker()
    native = await broker.native()
    producer = await _open(native)
    await producer.send(producer.row("1"), 1)
    plain = await native.open_producer(TOPIC, "plain")
    await producer.close()
    await plain.close()
    broker.clock.advance(2 * 3_600_000)

    async def plain_is_forgotten() -> bool:
        again = await native.open_producer(TOPIC, "plain")
        await again.close()
        broker.clock.advance(2 * 3_600_000)  # asking was a sign of life
        return again.id != plain.id

    await eventually(plain_is_forgotten)
    again = await _open(native, epoch=1)
    assert (again.id, again.opened.last_sequence) == (producer.id, 1)
    await again.close()
    broker.clock.advance(8 * 24 * 3_600_000)

    async def session_is_forgotten() -> bool:
        try:
            await (await _open(native, epoch=1)).close()
        except NativeRefusal as refusal:
            return refusal.code is ErrorCode.PRODUCER_FENCED
        broker.clock.advance(8 * 24 * 3_600_000)
        return False

    await eventually(session_is_forgotten)
    anew = await _open(native)
    assert (anew.opened.epoch, anew.opened.last_sequence) == (1, 0)
    assert (await anew.send(anew.row("anew"), 1)).offset == 1


async def test_a_topic_that_keeps_nothing_refuses_idempotent_producers(native: NativeClient) -> None:
    with refused_with(ErrorCode.ARGUMENT_INVALID, "remembers nothing"):
        await _open(native, reliable=False)
    await native.open_producer(TOPIC, "p", reliable=False)
