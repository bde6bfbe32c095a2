"""Only the newest session of an idempotent producer publishes, however closely sessions follow each other."""

import asyncio

import pytest
from broker_harness.native_wire import NativeClient, NativeRefusal
from broker_harness.running_broker import RunningBroker

from pydanube.client import Batching, DanubeError, Unavailable, connect
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames

TOPIC = "/default/t"
ROUNDS = 20


async def test_a_session_that_goes_on_while_a_newer_one_begins_is_not_given_its_epoch(
    broker: RunningBroker,
) -> None:
    old, new = await broker.native(), await broker.native()
    epoch = (await old.open_producer(TOPIC, "p", idempotent=True)).opened.epoch
    for _ in range(ROUNDS):
        request = pb.OpenProducer(topic=TOPIC, name="p", dispatch=pb.RELIABLE, idempotent=True)
        numbers = [client.new_number() for client in (old, new)]
        # In one go, so that the broker has both at once.
        for client, number, fields in zip((old, new), numbers, ({"epoch": epoch}, {}), strict=True):
            opening = pb.OpenProducer(**fields)
            opening.MergeFrom(request)
            client.send(frames.OPEN_PRODUCER, opening, channel=number, request=number)
        going_on = await _epoch(old, numbers[0])
        newest = await _epoch(new, numbers[1])
        assert going_on in (epoch, None)
        assert newest == epoch + 1
        epoch = newest


async def _epoch(client: NativeClient, number: int) -> int | None:
    """The epoch an opening was answered with; None if it was refused."""
    try:
        answer = await client.answer(number)
    except NativeRefusal:
        return None
    assert isinstance(answer, frames.Frame)
    return int(pb.ProducerOpened.FromString(answer.body).epoch)


async def test_a_session_is_told_of_sequences_only_when_they_are_safe(broker: RunningBroker) -> None:
    """A client that goes on behind a sequence does not send what is before it again."""
    client = await broker.native()
    producer = await client.open_producer(TOPIC, "p", idempotent=True)
    for sequence in range(1, ROUNDS + 1):
        published = producer.publish(producer.row("message"), sequence)
        again = await client.open_producer(TOPIC, "p", idempotent=True, epoch=producer.opened.epoch)
        assert again.opened.last_sequence == sequence
        told = [
            frame.kind
            for frame in client.received
            if frame.kind in (frames.PUBLISHED, frames.PRODUCER_OPENED)
        ]
        assert told[-2:] == [frames.PUBLISHED, frames.PRODUCER_OPENED]
        await producer.published(published)


async def test_a_client_that_was_shut_out_does_not_shut_out_the_newer_one(broker: RunningBroker) -> None:
    never = Batching(linger_ms=60_000)
    async with connect(broker.address) as first, connect(broker.address) as second:
        old = first.producer(TOPIC, name="p", batching=never)
        await old.open()
        async with second.producer(TOPIC, name="p") as new:
            told = asyncio.create_task(old.send_many([b"told"]))
            await asyncio.sleep(0)  # It is on its way; the next one lingers until after the refusal.
            waiting = old.send_nowait(b"waiting")
            with pytest.raises(DanubeError, match="newer session"):
                await told
            assert not waiting.is_answered
            for connection in first._cluster._connections.values():
                connection.abort(Unavailable("cut by the test"))
            with pytest.raises(DanubeError, match="newer session"):
                await old.flush()
            with pytest.raises(DanubeError, match="newer session"):
                await waiting
            assert (await new.send(b"new")).offset == 0
        await old.close()
