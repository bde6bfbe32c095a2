"""Consuming over the native protocol: positions, credit, acks, takeover, seek (docs/protocol.md: Consuming)."""

import pytest
from broker_harness.native_wire import (
    CURSOR,
    EARLIEST,
    LATEST,
    NativeClient,
    NativeProducer,
    NativeRefusal,
    at_offset,
    at_time,
    refused_with,
)
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import EXCLUSIVE, FAILOVER, KINDS, SHARED, eventually

from pydanube.kernel.errors import ErrorCode
from pydanube.kernel.policies import BackoffStrategy, FailurePolicy
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import decode_items, encode_ranges

TOPIC = "/default/t"
QUICK = FailurePolicy(
    max_redelivery_count=5, base_redelivery_delay_ms=20, backoff_strategy=BackoffStrategy.FIXED
)


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await native.open_producer(TOPIC)


def _numbers(first: int, end: int) -> list[str]:
    return [str(n) for n in range(first, end)]


# ── where to begin ──────────────────────────────────────────────────────────────────────────────


async def test_a_new_subscription_begins_where_it_is_told(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send_batch(*_numbers(0, 10))
    broker.clock.advance(60_000)
    noon = broker.clock.now_ms()
    await producer.send_batch(*_numbers(10, 20))
    starts = (
        (EARLIEST, 0),
        (at_offset(0), 0),
        (at_offset(7), 7),
        (at_offset(10), 10),
        (at_offset(20), 20),
        (at_offset(1000), 20),
        (at_time(0), 0),
        (at_time(noon), 10),
        (at_time(noon + 60_000_000), 20),
        (LATEST, 20),
        (CURSOR, 20),
        (None, 20),
    )
    for number, (start, expected) in enumerate(starts):
        consumer = await native.subscribe(TOPIC, f"s{number}", start=start)
        assert consumer.subscribed.next_offset == expected, start
        assert consumer.subscribed.dispatch == pb.RELIABLE
        assert await consumer.offsets(20 - expected) == list(range(expected, 20)), start
        await consumer.assert_silent(0.02)


async def test_an_existing_subscription_goes_on_where_it_stands(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send_batch(*_numbers(0, 10))
    consumer = await native.subscribe(TOPIC, start=EARLIEST)
    await consumer.take(10)
    await consumer.ack(0, 3)
    await native.close()
    for start in (EARLIEST, LATEST, at_offset(8)):
        other = await broker.native()
        again = await other.subscribe(TOPIC, start=start)
        assert again.subscribed.next_offset == 4
        assert await again.offsets(6) == list(range(4, 10))
        await other.close()


async def test_refused_subscriptions(native: NativeClient, producer: NativeProducer) -> None:
    with refused_with(ErrorCode.TOPIC_UNKNOWN):
        await native.subscribe("/default/unknown")
    with refused_with(ErrorCode.ARGUMENT_INVALID):
        await native.subscribe(TOPIC, "")
    with refused_with(ErrorCode.ARGUMENT_INVALID):
        await native.subscribe(TOPIC, name="")
    body = pb.Subscribe(topic=TOPIC, subscription="s", consumer="c").SerializeToString() + b"\x20\x09"
    with refused_with(ErrorCode.ARGUMENT_INVALID, "subscription type"):
        await native.request(frames.SUBSCRIBE, body, channel=50)
    odd = pb.Subscribe(topic=TOPIC, subscription="s", consumer="c").SerializeToString() + b"\x32\x02\x08\x09"
    with refused_with(ErrorCode.ARGUMENT_INVALID, "position"):
        await native.request(frames.SUBSCRIBE, odd, channel=50)
    with refused_with(ErrorCode.MALFORMED_REQUEST):
        await native.request(frames.SUBSCRIBE, b"\xff", channel=50)
    await native.subscribe(TOPIC, "exclusive")
    with refused_with(ErrorCode.CONSUMER_EXCLUSIVE):
        await native.subscribe(TOPIC, "exclusive", "another")


async def test_a_non_reliable_topic_has_one_place_to_begin(native: NativeClient) -> None:
    await native.open_producer(TOPIC, reliable=False)
    with refused_with(ErrorCode.ARGUMENT_INVALID, "non-reliable"):
        await native.subscribe(TOPIC, start=EARLIEST)
    consumer = await native.subscribe(TOPIC, start=LATEST)
    with refused_with(ErrorCode.ARGUMENT_INVALID, "non-reliable"):
        await consumer.seek(EARLIEST)


# ── credit ──────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_comes_without_credit(native: NativeClient, producer: NativeProducer) -> None:
    consumer = await native.subscribe(TOPIC, credit=(0, 0))
    await producer.send_rows("a", "b")
    await consumer.assert_silent()
    consumer.give(1, 0)
    await consumer.assert_silent(0.1)
    consumer.give(0, 1)
    assert await consumer.payloads(1) == ["a"]
    await consumer.assert_silent(0.1)
    consumer.give(1, 1000)
    assert await consumer.payloads(1) == ["b"]


async def test_credit_in_messages_bounds_what_is_sent(native: NativeClient, producer: NativeProducer) -> None:
    consumer = await native.subscribe(TOPIC, credit=(7, 1 << 30))
    await producer.send_rows(*_numbers(0, 30))
    assert await consumer.payloads(7) == _numbers(0, 7)
    await consumer.assert_silent()
    await consumer.ack(0, 6)  # acks give no credit
    await consumer.assert_silent(0.1)
    consumer.give(5)
    consumer.give(5)
    assert await consumer.payloads(10) == _numbers(7, 17)
    await consumer.assert_silent()


async def test_credit_in_bytes_bounds_what_is_sent(native: NativeClient, producer: NativeProducer) -> None:
    size = len(producer.row(bytes(1000)))
    consumer = await native.subscribe(TOPIC, credit=(1_000_000, 3 * size - 1))
    await producer.send_rows(*[bytes(1000)] * 10)
    await consumer.take(3)  # the last one reaches over
    await consumer.assert_silent()
    consumer.give(0, 1)  # still one owed
    await consumer.assert_silent(0.1)
    consumer.give(0, 1)
    await consumer.take(1)
    await consumer.assert_silent()


async def test_only_the_last_entry_may_exceed_the_credit(
    native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC, credit=(101, 1 << 30))
    for first in range(0, 500, 100):
        await producer.send_batch(*_numbers(first, first + 100))
    assert await consumer.payloads(200) == _numbers(0, 200)
    await consumer.assert_silent()
    consumer.give(99)  # what was exceeded is owed
    await consumer.assert_silent(0.1)
    consumer.give(1)
    assert await consumer.payloads(100) == _numbers(200, 300)
    await consumer.assert_silent(0.1)


async def test_bytes_of_credit_bound_a_non_reliable_consumer_too(native: NativeClient) -> None:
    producer = await native.open_producer(TOPIC, reliable=False)
    consumer = await native.subscribe(TOPIC, credit=(1000, 1))
    await native.ping()
    await producer.send_rows("a", "lost")
    assert await consumer.payloads(1) == ["a"]
    await consumer.assert_silent(0.1)
    consumer.give(0, 1000)
    await native.ping()
    await producer.send_rows("b")
    assert await consumer.payloads(1) == ["b"]


async def test_unacked_max_bounds_what_is_out(native: NativeClient, producer: NativeProducer) -> None:
    consumer = await native.subscribe(TOPIC, unacked_max=5)
    await producer.send_rows(*_numbers(0, 20))
    assert await consumer.payloads(5) == _numbers(0, 5)
    await consumer.assert_silent()
    await consumer.ack(1)
    assert await consumer.payloads(1) == ["5"]
    await consumer.ack(2, 3)
    await consumer.ack(0)
    assert await consumer.payloads(3) == _numbers(6, 9)
    await consumer.assert_silent()


async def test_a_deliver_frame_carries_many_items(native: NativeClient, producer: NativeProducer) -> None:
    await producer.send_rows(*_numbers(0, 500))
    before = len(native.received)
    consumer = await native.subscribe(TOPIC, start=EARLIEST)
    assert await consumer.payloads(500) == _numbers(0, 500)
    delivers = [frame for frame in native.received[before:] if frame.kind == frames.DELIVER]
    assert len(delivers) < 50
    items = [item for frame in delivers for item in decode_items(frame.body)]
    assert [(item.base, item.skip, item.messages, item.attempt) for item in items] == [
        (n, 0, 1, 1) for n in range(500)
    ]


async def test_every_item_tells_when_it_was_appended(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    live = await native.open_producer("/default/live", reliable=False)
    listener = await native.subscribe("/default/live")
    consumer = await native.subscribe(TOPIC)
    times = []
    timed = producer.row("d", attributes={"x-ttl": "99999999"})
    for body in (producer.row("a"), producer.batch(["b", "c"]), timed):
        broker.clock.advance(10_000)
        before = broker.clock.now_ms()
        await producer.send(body)
        times.append((await consumer.item()).append_ms)
        assert before <= times[-1] <= broker.clock.now_ms()
    await live.send_batch("x", "y")
    assert times[-1] <= (await listener.item()).append_ms <= broker.clock.now_ms()
    await broker.restart()
    native = await broker.native()
    again, reader = await native.subscribe(TOPIC), await native.open_reader(TOPIC)
    for receiver in (again, reader):
        assert [(await receiver.item()).append_ms for _ in range(3)] == times


# ── acks ────────────────────────────────────────────────────────────────────────────────────────


async def test_what_was_acked_inside_a_batch_does_not_come_again(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    await producer.send_batch(*_numbers(0, 10))
    consumer = await native.subscribe(TOPIC, kind=SHARED, start=EARLIEST)
    await consumer.take(10)
    await consumer.ack_ranges([(0, 2), (5, 5), (8, 100)])
    await native.close()
    again = await (await broker.native()).subscribe(TOPIC, kind=SHARED)
    taken = await again.take(4)
    assert [received.offset for received in taken] == [3, 4, 6, 7]
    assert {received.attempt for received in taken} == {2}  # a lost stream is no failure, but a second try
    await again.assert_silent(0.1)


async def test_scattered_remains_of_a_batch_come_again_at_the_price_of_what_they_are(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    """Not of the whole batch for each of them."""
    payloads = [b"%04d" % n + bytes(500) for n in range(1000)]
    keys = [f"key {n}" for n in range(1000)]
    body = producer.batch(payloads, producer.head(attributes={"all": "yes"}), routing_keys=keys)
    await producer.send(body)
    consumer = await native.subscribe(TOPIC, kind=SHARED, start=EARLIEST)
    await consumer.take(1000)
    await consumer.ack_ranges([(n, n) for n in range(0, 1000, 2)])
    await native.close()
    other = await broker.native()
    again = await other.subscribe(TOPIC, kind=SHARED)
    taken = await again.take(500)
    assert [received.offset for received in taken] == list(range(1, 1000, 2))
    for received in taken:
        message = received.message
        assert message.payload == payloads[received.offset]
        assert (message.routing_key, dict(message.attributes)) == (keys[received.offset], {"all": "yes"})
        assert received.attempt == 2
    assert sum(len(frame.body) for frame in other.received) < 2 * len(body)
    await again.ack_ranges([(n, n) for n in range(1, 1000, 2)])
    await again.close()
    assert (await other.subscribe(TOPIC, kind=SHARED)).subscribed.next_offset == 1000


async def test_a_cursor_in_the_middle_of_a_batch_survives_a_restart(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    await producer.send_batch(*_numbers(0, 10))
    await producer.send_batch(*_numbers(10, 20))
    consumer = await native.subscribe(TOPIC, start=EARLIEST)
    await consumer.take(20)
    await consumer.ack(0, 12)
    await broker.restart()
    again = await (await broker.native()).subscribe(TOPIC)
    assert again.subscribed.next_offset == 13
    item = await again.item()
    assert (item.base, item.skip, item.messages) == (10, 3, 7)
    await again.assert_silent(0.1)
    await again.ack(13, 19)
    await broker.restart()
    assert (await (await broker.native()).subscribe(TOPIC)).subscribed.next_offset == 20


async def test_acks_of_what_is_not_out_are_ignored(native: NativeClient, producer: NativeProducer) -> None:
    consumer = await native.subscribe(TOPIC, unacked_max=1)
    await producer.send_rows("a", "b")
    await consumer.take(1)
    await consumer.ack_ranges([(5, 10), ((1 << 64) - 2, (1 << 64) - 1)])
    await consumer.ack(1)  # not sent yet
    await consumer.assert_silent(0.1)
    await consumer.ack(0, (1 << 64) - 1)
    assert await consumer.payloads(1) == ["b"]
    await consumer.nack(7)
    await consumer.ack(0)


async def test_acks_on_a_channel_that_does_not_consume(
    native: NativeClient, producer: NativeProducer
) -> None:
    for channel in (producer.number, 999):
        with refused_with(ErrorCode.CHANNEL_UNKNOWN):
            await native.request(frames.ACK, encode_ranges([(0, 0)]), channel=channel)
        with refused_with(ErrorCode.CHANNEL_UNKNOWN):
            await native.request(frames.NACK, pb.Nack(), channel=channel)
        with refused_with(ErrorCode.CHANNEL_UNKNOWN):
            await native.request(frames.SEEK, pb.Seek(position=EARLIEST), channel=channel)
        native.send(frames.ACK, encode_ranges([(0, 0)]), channel=channel)  # unanswered, harmless
        native.send(frames.CREDIT, bytes(12), channel=channel)
    assert await native.ping() == b"ping"


async def test_a_nack_brings_one_message_of_a_batch_again(start_broker: StartBroker) -> None:
    broker = await start_broker({(TOPIC, "subscription"): QUICK})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC, kind=SHARED)
    await producer.send_batch(*_numbers(0, 10))
    await consumer.take(10)
    await consumer.nack(4, reason="did not fit")
    item = await consumer.item()
    assert (item.base, item.skip, item.messages, item.attempt) == (0, 4, 1, 2)
    await consumer.nack(4, 6)
    taken = sorted((await consumer.take(3)), key=lambda received: received.offset)
    assert [(received.offset, received.attempt) for received in taken] == [(4, 3), (5, 2), (6, 2)]
    await consumer.ack(0, 9)
    await consumer.assert_silent(0.1)


async def test_a_nack_may_ask_for_a_delay(start_broker: StartBroker) -> None:
    broker = await start_broker({(TOPIC, "subscription"): QUICK})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC, kind=SHARED)
    await producer.send_rows("later", "now")
    await consumer.take(2)
    await consumer.nack(0, delay_ms=60_000)
    await consumer.nack(1)
    assert await consumer.payloads(1) == ["now"]
    await consumer.assert_silent()
    broker.clock.advance(61_000)
    (late,) = await consumer.take(1)
    assert (late.payload, late.attempt) == ("later", 2)


async def test_what_is_not_acked_in_time_comes_again(start_broker: StartBroker) -> None:
    policy = FailurePolicy(
        max_redelivery_count=5,
        ack_timeout_ms=30_000,
        base_redelivery_delay_ms=20,
        backoff_strategy=BackoffStrategy.FIXED,
    )
    broker = await start_broker({(TOPIC, "subscription"): policy})
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    consumer = await native.subscribe(TOPIC, kind=SHARED)
    await producer.send_batch(*_numbers(0, 4))
    await consumer.take(4)
    await consumer.ack(1, 2)
    broker.clock.advance(31_000)
    taken = await consumer.take(2)
    assert [(received.offset, received.attempt) for received in taken] == [(0, 2), (3, 2)]


# ── coming and going ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
async def test_close_leaves_at_once_and_hands_over(broker: RunningBroker, kind: str) -> None:
    first, second = await broker.native(), await broker.native()
    producer = await first.open_producer(TOPIC)
    leaving = await first.subscribe(TOPIC, kind=KINDS[kind])
    await producer.send(producer.batch(_numbers(0, 6), routing_keys=_numbers(0, 6)))
    await leaving.take(6)
    await leaving.ack(0, 1)
    await leaving.close()
    heir = await second.subscribe(TOPIC, name="heir", kind=KINDS[kind])
    assert await heir.offsets(4) == [2, 3, 4, 5]
    with refused_with(ErrorCode.CHANNEL_UNKNOWN):
        await leaving.ack(2)


async def test_a_lost_connection_keeps_the_exclusive_place_for_a_while(broker: RunningBroker) -> None:
    first, second = await broker.native(), await broker.native()
    producer = await first.open_producer(TOPIC)
    await first.subscribe(TOPIC)
    await producer.send_rows("a")
    await first.close()
    with refused_with(ErrorCode.CONSUMER_EXCLUSIVE):
        await second.subscribe(TOPIC, name="heir")
    broker.clock.advance(6_000)
    heir = await second.subscribe(TOPIC, name="heir")
    assert await heir.payloads(1) == ["a"]


@pytest.mark.parametrize("kind", [SHARED, FAILOVER])
async def test_what_a_lost_connection_held_goes_to_the_others(broker: RunningBroker, kind: int) -> None:
    first, second = await broker.native(), await broker.native()
    producer = await second.open_producer(TOPIC)
    lost = await first.subscribe(TOPIC, name="a", kind=kind, start=EARLIEST)
    await producer.send_batch(*_numbers(0, 5))
    await lost.take(5)
    other = await second.subscribe(TOPIC, name="b", kind=kind)
    await other.assert_silent(0.1)
    await first.close()
    assert await other.offsets(5) == list(range(5))


async def test_the_same_name_takes_over(broker: RunningBroker) -> None:
    first, second = await broker.native(), await broker.native()
    producer = await first.open_producer(TOPIC)
    old = await first.subscribe(TOPIC)
    await producer.send_rows("a", "b")
    await old.take(2)
    await old.ack(0)
    new = await second.subscribe(TOPIC)
    assert new.subscribed.consumer_id == old.subscribed.consumer_id
    await old.ended()
    assert await new.payloads(1) == ["b"]
    with refused_with(ErrorCode.CHANNEL_UNKNOWN):
        await old.ack(1)
    here = await second.subscribe(TOPIC)  # also on one connection
    await new.ended()
    assert await here.payloads(1) == ["b"]


async def test_names_that_are_fought_over_settle(broker: RunningBroker) -> None:
    native = await broker.native()
    await native.open_producer(TOPIC)
    consumers = [await native.subscribe(TOPIC) for _ in range(8)]
    for consumer in consumers[:-1]:
        await consumer.ended()
    producer = await native.open_producer(TOPIC)
    await producer.send_rows("to the last")
    assert await consumers[-1].payloads(1) == ["to the last"]


async def test_a_connection_lost_while_it_subscribes_leaves_nothing_behind(broker: RunningBroker) -> None:
    native = await broker.native()
    await native.open_producer(TOPIC)
    message = pb.Subscribe(topic=TOPIC, subscription="s", consumer="gone", type=pb.EXCLUSIVE)
    for _ in range(10):
        hasty = await broker.native()
        hasty.send(frames.SUBSCRIBE, message, channel=1, request=99)
        await hasty.drain()
        await hasty.close()

    async def finds_place() -> bool:
        broker.clock.advance(31_000)
        try:
            await native.subscribe(TOPIC, "s", "stays")
        except NativeRefusal:
            return False
        return True

    await eventually(finds_place)


# ── seek ────────────────────────────────────────────────────────────────────────────────────────


async def test_seek_goes_back_and_forward(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC)
    await producer.send_batch(*_numbers(0, 10))
    broker.clock.advance(60_000)
    noon = broker.clock.now_ms()
    await producer.send_batch(*_numbers(10, 20))
    await consumer.take(20)
    await consumer.ack(0, 19)
    for position, expected in (
        (EARLIEST, 0),
        (at_offset(13), 13),
        (at_time(noon), 10),
        (at_offset(5), 5),
        (LATEST, 20),
        (at_time(0), 0),
        (at_offset(10_000), 20),
        (at_offset(19), 19),
    ):
        assert await consumer.seek(position) == expected
        assert await consumer.seeked() == expected
        taken = await consumer.take(20 - expected)
        assert [received.offset for received in taken] == list(range(expected, 20))
        assert {received.attempt for received in taken} <= {1}
        await consumer.assert_silent(0.02)


async def test_seek_to_the_cursor_repeats_what_is_not_acked(
    native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC)
    await producer.send_batch(*_numbers(0, 10))
    await consumer.take(10)
    await consumer.ack_ranges([(0, 3), (7, 7)])
    assert await consumer.seek(CURSOR) == 4
    assert await consumer.seeked() == 4
    assert await consumer.offsets(6) == [4, 5, 6, 7, 8, 9]


async def test_seek_tells_every_consumer_and_forgets_what_was_out(broker: RunningBroker) -> None:
    first, second = await broker.native(), await broker.native()
    producer = await first.open_producer(TOPIC)
    one = await first.subscribe(TOPIC, name="one", kind=SHARED)
    two = await second.subscribe(TOPIC, name="two", kind=SHARED)
    wire = broker.client()
    stream = await wire.consume(TOPIC, name="three", kind=SHARED)
    await producer.send_rows(*_numbers(0, 30))
    await stream.take(10)
    assert await two.seek(at_offset(25)) == 25
    assert await one.seeked() == await two.seeked() == 25
    # gRPC knows no such word: its stream ends, and the client opens it again.
    assert (await stream.ended()).name == "OK"
    await one.ack(0, 24)  # what is not out any more cannot be acked
    taken = sorted((await one.offsets(2)) + (await two.offsets(2)))
    assert len(set(taken)) == 4
    assert set(taken) < set(range(25, 30))
    assert await one.seek(EARLIEST) == 0
    assert await one.seeked() == await two.seeked() == 0


async def test_credit_survives_seeks(native: NativeClient, producer: NativeProducer) -> None:
    """What a seek takes back before it left costs the client nothing."""
    await producer.send_rows(*_numbers(0, 50))
    consumer = await native.subscribe(TOPIC, start=EARLIEST, credit=(0, 0))

    def seen() -> int:
        items = [decode_items(frame.body) for frame in native.received if frame.kind == frames.DELIVER]
        return sum(item.messages for frame in items for item in frame)

    # In one write, so that seeks meet what others have set in motion but not sent yet.
    requests = [native.new_number() for _ in range(30)]
    for n, request in enumerate(requests):
        consumer.give(5)
        native.send(frames.SEEK, pb.Seek(position=at_offset(n)), channel=consumer.number, request=request)
    for request in requests:
        await native.answer(request)

    async def all_used() -> bool:
        await consumer.seek(EARLIEST)
        return seen() == 5 * 30

    await eventually(all_used)


async def test_a_seek_survives_a_restart(broker: RunningBroker) -> None:
    for position, expected in ((at_offset(3), 3), (LATEST, 20), (EARLIEST, 0), (at_offset(15), 15)):
        native = await broker.native()
        producer = await native.open_producer(TOPIC)
        if position == at_offset(3):
            await producer.send_batch(*_numbers(0, 20))
        consumer = await native.subscribe(TOPIC, start=LATEST)
        await consumer.seek(position)
        await broker.restart()
        again = await (await broker.native()).subscribe(TOPIC)
        assert again.subscribed.next_offset == expected
        assert await again.offsets(20 - expected) == list(range(expected, 20))


async def test_seeking_does_not_disturb_other_subscriptions(
    native: NativeClient, producer: NativeProducer
) -> None:
    moved = await native.subscribe(TOPIC, "moved", kind=EXCLUSIVE)
    other = await native.subscribe(TOPIC, "other", kind=EXCLUSIVE)
    await producer.send_batch(*_numbers(0, 5))
    await moved.take(5)
    await other.take(5)
    await moved.seek(EARLIEST)
    await moved.seeked()
    assert await moved.offsets(5) == list(range(5))
    await other.assert_silent(0.1)
