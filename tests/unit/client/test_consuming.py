"""Consumers and readers against a broker that misbehaves, and what they hand to the application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scripted_broker import Peer, ScriptedBroker, fails, loses_answer, loses_request

from pydanube.client import (
    Client,
    Conflict,
    Consumer,
    ErrorCode,
    Message,
    OutcomeUnknown,
    Position,
    Reader,
    Rejected,
    Retries,
    Timeout,
    Unavailable,
    connect,
    subscription,
)
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native import frames
from pydanube.protocol.native.arrow import encode_payloads
from pydanube.protocol.native.bodies import decode_credit, decode_ranges, encode_item_header
from pydanube.protocol.native.frames import Frame

TOPIC = "/default/t"
QUICK = Retries(attempts_max=6, backoff=0.001, backoff_max=0.002)


def batch_of(*payloads: bytes, **columns: Any) -> bytes:
    return encode_payloads(payloads, pb.BatchHead(producer_name="shop", publish_time=5), **columns)


def row_of(payload: bytes) -> bytes:
    return StreamMessage(payload=payload, producer_name="desk", publish_time=6).SerializeToString()


@asynccontextmanager
async def client_of(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Client]:
    async with connect(broker.url, timeout=5, retries=options.pop("retries", QUICK)) as client:
        yield client


@asynccontextmanager
async def consumer_of(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Consumer]:
    async with (
        client_of(broker) as client,
        client.consumer(TOPIC, subscription="s", start="earliest", **options) as consumer,
    ):
        yield consumer


@asynccontextmanager
async def reader_of(broker: ScriptedBroker, **options: Any) -> AsyncIterator[Reader]:
    async with client_of(broker) as client, client.reader(TOPIC, **options) as reader:
        yield reader


async def take(source: Consumer | Reader, count: int) -> list[Message]:
    async with asyncio.timeout(10):
        return [await source.receive() for _ in range(count)]


def acked(broker: ScriptedBroker) -> list[int]:
    return sorted(broker.topic(TOPIC).acked["s"])


async def test_batches_and_rows_become_messages(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(
        batch_of(
            b"a",
            b"",
            routing_keys=["k", None],
            attributes=[None, {"x": "y"}],
            schema_ids=[4, None],
            compaction_keys=[None, b"c"],
        )
    )
    broker.topic(TOPIC).append(row_of(b"b"))
    async with consumer_of(broker) as consumer:
        first, second, third = await take(consumer, 3)
    assert (first.payload, first.offset, first.key, first.attributes, first.schema_id) == (
        b"a",
        0,
        "k",
        {},
        4,
    )
    assert (second.payload, second.offset, second.key, second.compaction_key) == (b"", 1, None, "c")
    assert second.attributes == {"x": "y", "x-compaction-key": "c"}
    assert (first.producer_name, first.publish_time_ms, first.append_time_ms, first.attempt) == (
        "shop",
        5,
        1000,
        1,
    )
    assert (third.payload, third.offset, third.producer_name, third.publish_time_ms) == (b"b", 2, "desk", 6)
    assert third.publish_time.timestamp() == 0.006
    assert repr(third) == "Message(/default/t, offset=2, 1 bytes)"


async def test_acks_of_a_moment_leave_as_ranges(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(*[b"x"] * 100))
    async with consumer_of(broker) as consumer:
        messages = await take(consumer, 100)
        for message in messages[:40]:
            await consumer.ack(message)
        await consumer.ack(messages[60:])
        await broker.received(frames.ACK)
        ack = next(frame for frame in broker.frames if frame.kind == frames.ACK)
        assert decode_ranges(ack.body) == [(0, 39), (60, 99)]
        await consumer.ack(messages[40:60], confirm=True)
        assert acked(broker) == list(range(100))


async def test_acks_leave_together_once_the_application_waits(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "ACKS_HELD_SECONDS_MAX", 3600.0)
    for _ in range(3):
        broker.topic(TOPIC).append(batch_of(b"x", b"y"))
    async with consumer_of(broker) as consumer:
        batches = consumer.batches()
        for _ in range(3):
            await consumer.ack(await anext(batches))
        assert not [frame for frame in broker.frames if frame.kind == frames.ACK]
        waiting = asyncio.create_task(consumer.receive())
        await broker.received(frames.ACK)
        ranges = [decode_ranges(frame.body) for frame in broker.frames if frame.kind == frames.ACK]
        assert ranges == [[(0, 5)]]
        waiting.cancel()


async def test_acks_given_last_are_not_forgotten_on_leaving(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(b"x", b"y"))
    async with consumer_of(broker) as consumer:
        for message in await take(consumer, 2):
            await consumer.ack(message)
    assert acked(broker) == [0, 1]


async def test_record_batches_can_be_filtered_and_acked(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(b"a", b"b", b"c", b"d"))
    broker.topic(TOPIC).append(row_of(b"e"))
    broker.topic(TOPIC).append(row_of(b"f"))
    async with consumer_of(broker) as consumer:
        batches = consumer.batches()
        batch = await anext(batches)
        assert batch.column("payload").to_pylist() == [b"a", b"b", b"c", b"d"]
        await consumer.ack(batch.filter(pc.field("payload") != b"b"), confirm=True)
        assert acked(broker) == [0, 2, 3]
        rows = await anext(batches)
        assert rows.column("offset").to_pylist() == [4, 5]
        await consumer.ack(pa.Table.from_batches([rows]), confirm=True)
        assert acked(broker) == [0, 2, 3, 4, 5]
        with pytest.raises(Rejected, match="did not come from batches"):
            await consumer.ack(pa.record_batch({"offset": [1]}))


async def test_what_was_not_acked_comes_again_after_a_lost_connection(broker: ScriptedBroker) -> None:
    for payload in (b"a", b"b", b"c"):
        broker.topic(TOPIC).append(row_of(payload))
    async with consumer_of(broker) as consumer:
        (first,) = await take(consumer, 1)
        await consumer.ack(first, confirm=True)
        broker.drop_all()
        await broker.received(frames.SUBSCRIBE, 2)
        again = await take(consumer, 2)
    assert [(m.payload, m.attempt) for m in again] == [(b"b", 2), (b"c", 2)]


async def test_acking_rows_of_a_batch_acks_no_others(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(b"a", b"b", b"c", b"d"))
    async with consumer_of(broker) as consumer:
        batch = await anext(aiter(consumer.batches()))
        await consumer.ack(
            pa.concat_batches([batch.slice(0, 1), batch.slice(0, 1), batch.slice(2, 1)]), confirm=True
        )
        assert acked(broker) == [0, 2]
        await consumer.ack(pa.Table.from_batches([batch.slice(0, 2), batch.slice(2)]), confirm=True)
        assert acked(broker) == [0, 1, 2, 3]


async def test_memory_is_bounded_by_credit_which_is_renewed_as_messages_are_taken(
    broker: ScriptedBroker,
) -> None:
    for _ in range(20):
        broker.topic(TOPIC).append(batch_of(*[b"x"] * 10))
    async with consumer_of(broker, prefetch_messages=40) as consumer:
        await broker.received(frames.CREDIT)
        channel = next(iter(broker.peers[0].channels.values()))
        assert (channel.position, channel.messages) == (40, 0)
        assert len(await take(consumer, 200)) == 200
        grants = [decode_credit(frame.body)[0] for frame in broker.frames if frame.kind == frames.CREDIT]
        assert (grants[0], set(grants[1:])) == (40, {20})


@pytest.mark.parametrize(
    ("kind", "messages"),
    [("shared", 10_000), ("key_shared", 10_000), ("exclusive", 50_000), ("failover", 50_000)],
)
async def test_who_gets_all_messages_may_be_sent_more_of_them_ahead(
    broker: ScriptedBroker, kind: str, messages: int
) -> None:
    broker.topic(TOPIC)
    async with consumer_of(broker, type=kind):
        await broker.received(frames.CREDIT)
        grants = [decode_credit(frame.body) for frame in broker.frames if frame.kind == frames.CREDIT]
        assert grants == [(messages, 8 * 1024 * 1024)]


async def test_a_seek_drops_what_is_buffered_and_voids_old_acks(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(*[b"%d" % n for n in range(10)]))
    async with consumer_of(broker) as consumer:
        old = await take(consumer, 3)
        await consumer.seek(Position.offset(2))
        await consumer.ack(old, confirm=True)
        assert acked(broker) == []
        assert [m.offset for m in await take(consumer, 8)] == [2, 3, 4, 5, 6, 7, 8, 9]


async def test_the_seek_of_another_consumer_is_obeyed(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(b"a", b"b"))
    async with consumer_of(broker) as consumer:
        await take(consumer, 1)
        peer = broker.peers[0]
        number, channel = next(iter(peer.channels.items()))
        channel.position = 0
        peer.send(frames.SEEKED, number, 0, pb.Seeked(next_offset=0))
        peer.deliver()
        assert [m.offset for m in await take(consumer, 3)][-2:] == [0, 1]


async def test_a_nack_names_delay_and_reason(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(b"a", b"b", b"c"))
    async with consumer_of(broker) as consumer:
        messages = await take(consumer, 3)
        await consumer.nack([messages[0], messages[2]], delay=1.5, reason="not today")
        await broker.received(frames.NACK)
        nack = pb.Nack.FromString(broker.frames[-1].body)
        assert [(r.first, r.last) for r in nack.ranges] == [(0, 0), (2, 2)]
        assert (nack.delay_ms, nack.reason) == (1500, "not today")
        with pytest.raises(Rejected, match="invalid delay"):
            await consumer.nack(messages[0], delay=-1)


async def test_receive_waits_as_long_as_it_is_told(broker: ScriptedBroker) -> None:
    async with consumer_of(broker) as consumer:
        with pytest.raises(Timeout, match=r"no message came within 0.01 s"):
            await consumer.receive(timeout=0.01)


async def test_breaking_out_of_a_loop_leaves_the_rest_for_the_next(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(batch_of(*[b"%d" % n for n in range(5)]))
    async with consumer_of(broker) as consumer:
        async for message in consumer:
            assert message.offset == 0
            break
        assert (await consumer.receive()).offset == 1
        async for message in consumer:
            assert message.offset == 2
            break


@pytest.mark.parametrize("fault", [loses_request, loses_answer, fails(ErrorCode.TOPIC_MOVED)])
async def test_subscribing_is_repeated_while_that_may_help(broker: ScriptedBroker, fault: Any) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    broker.script(frames.SUBSCRIBE, fault)
    async with consumer_of(broker) as consumer:
        assert (await consumer.receive()).payload == b"a"


async def test_a_channel_that_ends_as_soon_as_it_is_open_is_opened_again(broker: ScriptedBroker) -> None:
    def ends_at_once(peer: Peer, frame: Frame) -> None:
        peer.honestly(frame)
        peer.close_channel(frame.channel)
        peer.fail(frame.channel, 0, ErrorCode.TOPIC_MOVED)

    broker.topic(TOPIC).append(row_of(b"a"))
    broker.script(frames.SUBSCRIBE, ends_at_once)
    async with consumer_of(broker) as consumer:
        assert (await consumer.receive(timeout=5)).payload == b"a"


async def test_a_channel_that_ends_for_good_is_told_and_may_be_tried_again(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    async with consumer_of(broker) as consumer:
        await take(consumer, 1)
        peer = broker.peers[0]
        number = next(iter(peer.channels))
        peer.close_channel(number)
        peer.fail(number, 0, ErrorCode.TOPIC_UNKNOWN, "deleted")
        with pytest.raises(Rejected, match="deleted"):
            await consumer.receive()
        assert (await consumer.receive()).attempt == 2


async def test_an_exclusive_subscription_in_use_is_a_conflict_at_first(broker: ScriptedBroker) -> None:
    broker.script(frames.SUBSCRIBE, fails(ErrorCode.CONSUMER_EXCLUSIVE, "taken"))
    with pytest.raises((Conflict, Rejected), match="taken"):
        async with consumer_of(broker):
            pass


async def test_after_a_reconnect_our_own_former_session_is_waited_for(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    broker.script(frames.SUBSCRIBE, Peer.honestly, *[fails(ErrorCode.CONSUMER_EXCLUSIVE)] * 2)
    async with consumer_of(broker, type="exclusive") as consumer:
        await take(consumer, 1)
        broker.drop_all()
        assert (await consumer.receive()).attempt == 2


async def test_a_broker_away_for_too_long_is_told(broker: ScriptedBroker) -> None:
    async with consumer_of(broker) as consumer:
        await broker.stop()
        with pytest.raises(Unavailable, match="cannot be reached"):
            await consumer.receive()
        await broker.start()
        broker.topic(TOPIC).append(row_of(b"a"))
        assert (await consumer.receive()).payload == b"a"


async def test_an_ack_whose_confirmation_is_lost_is_an_unknown_outcome(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    broker.script(frames.ACK, loses_answer)
    async with consumer_of(broker) as consumer:
        (message,) = await take(consumer, 1)
        with pytest.raises(OutcomeUnknown):
            await consumer.ack(message, confirm=True)


async def test_non_reliable_messages_need_no_ack(broker: ScriptedBroker) -> None:
    broker.reliable = False
    broker.topic(TOPIC).append(batch_of(b"a", b"b"))
    async with consumer_of(broker) as consumer:
        messages = await take(consumer, 2)
        await consumer.ack(messages)
        await consumer.ack(messages[0])
        assert [message.offset for message in messages] == [None, None]
    assert broker.count(frames.ACK) == 0


def _item(base: int, skip: int, count: int, body: bytes) -> bytes:
    return encode_item_header(base, 0, skip, count, 1, len(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        _item(0, 0, 1, b"\x00broken batch"),
        _item(0, 0, 1, b"\xff\xff broken row"),
        _item(0, 1, 2, batch_of(b"a", b"b")),
    ],
)
async def test_what_cannot_be_read_is_an_error_not_a_crash(broker: ScriptedBroker, body: bytes) -> None:
    broker.script(frames.CREDIT, lambda peer, frame: peer.send(frames.DELIVER, frame.channel, 0, body))
    async with consumer_of(broker) as consumer:
        with pytest.raises(Rejected):
            await consumer.receive()


async def test_a_delivery_cut_short_ends_the_connection(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    broker.script(frames.CREDIT, lambda peer, frame: peer.send(frames.DELIVER, frame.channel, 0, b"short"))
    async with consumer_of(broker) as consumer:
        assert (await consumer.receive()).payload == b"a"
    assert broker.count(frames.HELLO) == 2


async def test_all_partitions_are_consumed_and_acked_where_they_belong(broker: ScriptedBroker) -> None:
    names = [f"{TOPIC}-part-{n}" for n in range(3)]
    broker.partitions[TOPIC] = names
    for name in names:
        broker.topic(name).append(batch_of(name.encode(), b"x"))
    async with consumer_of(broker) as consumer:
        messages = await take(consumer, 6)
        await consumer.ack(messages, confirm=True)
    assert {m.topic for m in messages} == set(names)
    assert all(broker.topic(name).acked["s"] == {0, 1} for name in names)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"type": "private"}, "invalid subscription type"),
        ({"prefetch_messages": 0}, "prefetch_messages"),
        ({"name": ""}, ""),
        ({"subscription": ""}, "invalid subscription name"),
        ({"start": "noon"}, "invalid start 'noon'"),
    ],
)
async def test_options_that_make_no_sense_are_refused(
    broker: ScriptedBroker, options: dict[str, Any], reason: str
) -> None:
    async with client_of(broker) as client:
        settings: dict[str, Any] = {"subscription": "s"} | options
        if reason:
            with pytest.raises(Rejected, match=reason):
                client.consumer(TOPIC, **settings)
        else:
            assert client.consumer(TOPIC, **settings).name.startswith("consumer-")


async def test_a_reader_ends_where_it_was_told(broker: ScriptedBroker) -> None:
    for start in range(0, 30, 10):
        broker.topic(TOPIC).append(batch_of(*[b"%d" % n for n in range(start, start + 10)]))
    async with reader_of(broker, start=Position.offset(5), end=Position.offset(25)) as reader:
        assert [message.offset async for message in reader] == list(range(5, 25))
        with pytest.raises(Timeout, match="no more messages"):
            await reader.receive()
        with pytest.raises(Rejected, match="they need no ack"):
            async with consumer_of(broker) as consumer:
                await consumer.ack(await _any_message(broker))


async def _any_message(broker: ScriptedBroker) -> Message:
    async with reader_of(broker) as reader:
        return await reader.receive()


async def test_a_reader_goes_on_where_it_was(broker: ScriptedBroker) -> None:
    for n in range(10):
        broker.topic(TOPIC).append(row_of(b"%d" % n))
    async with reader_of(broker, end="latest", prefetch_messages=4) as reader:
        offsets = [message.offset for message in await take(reader, 3)]
        broker.topic(TOPIC).append(row_of(b"too late"))
        broker.drop_all()
        offsets += [message.offset async for message in reader]
    assert offsets == list(range(10))


async def test_a_reader_refuses_a_hole(broker: ScriptedBroker) -> None:
    body = _item(7, 0, 1, row_of(b"x"))
    broker.topic(TOPIC).append(row_of(b"a"))

    def skips(peer: Peer, frame: Frame) -> None:
        peer.send(frames.DELIVER, frame.channel, 0, body)

    broker.script(frames.CREDIT, skips)
    async with reader_of(broker) as reader:
        assert (await reader.receive()).offset == 0
    assert broker.count(frames.HELLO) == 2


async def test_deleted_messages_are_told_not_skipped(broker: ScriptedBroker) -> None:
    broker.topic(TOPIC).append(row_of(b"a"))
    async with reader_of(broker) as reader:
        await take(reader, 1)
        peer = broker.peers[0]
        number = next(iter(peer.channels))
        peer.close_channel(number)
        peer.fail(number, 0, ErrorCode.OFFSET_GONE, "deleted by retention")
        with pytest.raises(Rejected, match="deleted by retention"):
            await reader.receive()
