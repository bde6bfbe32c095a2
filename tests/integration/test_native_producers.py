"""Publishing over the native protocol (docs/protocol.md: Publishing, Entry bodies)."""

import asyncio
from typing import Any

import pytest
from broker_harness.native_wire import (
    EARLIEST,
    LATEST,
    NativeClient,
    NativeProducer,
    NativeRefusal,
    refused_with,
)
from broker_harness.running_broker import RunningBroker, StartBroker

from pydanube.kernel.errors import ErrorCode
from pydanube.kernel.policies import Policies
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.danube_pb2 import MsgID
from pydanube.protocol.native import frames
from pydanube.protocol.native.batch import LZ4, NONE, ZSTD
from pydanube.protocol.native.bodies import NO_OFFSET
from pydanube.protocol.native.frames import encode_frame, publish_header

TOPIC = "/default/t"


@pytest.fixture
async def native(broker: RunningBroker) -> NativeClient:
    return await broker.native()


@pytest.fixture
async def producer(native: NativeClient) -> NativeProducer:
    return await native.open_producer(TOPIC)


async def test_offsets_are_dense_over_rows_and_batches(producer: NativeProducer) -> None:
    first = await producer.send(producer.row("a"))
    assert (first.messages, first.offset) == (1, 0)
    for count, expected in ((5, 1), (1, 6), (1000, 7)):
        published = await producer.send_batch(*["x"] * count)
        assert (published.messages, published.offset) == (count, expected)
    assert (await producer.send(producer.row("z"))).offset == 1007


async def test_answers_of_many_in_flight_come_in_order_and_together(
    native: NativeClient, producer: NativeProducer
) -> None:
    before = len(native.received)
    requests = [producer.publish(producer.row(str(n))) for n in range(500)]
    answers = [await producer.published(request) for request in requests]
    assert [answer.offset for answer in answers] == list(range(500))
    answered = native.received[before:]
    assert {frame.kind for frame in answered} == {frames.PUBLISHED}
    assert {frame.request for frame in answered} == {0}
    assert len(answered) < 100  # 500 publishes in one write share their commits


async def test_what_was_published_is_read_back_as_it_was_sent(
    native: NativeClient, producer: NativeProducer
) -> None:
    row = producer.row("r", attributes={"a": "b"}, routing_key="k", schema_id=3, schema_version=4)
    batch = producer.batch(["x", "y"], codec=LZ4)
    await producer.send(row)
    await producer.send(batch)
    reader = await native.open_reader(TOPIC)
    assert [(await reader.item()).body, (await reader.item()).body] == [row, batch]


COLUMNS: dict[str, list[Any]] = {
    "publish_times": [1, 2, 3],
    "routing_keys": ["k", None, "l"],
    "attributes": [{"own": "1", "shared": "mine"}, None, {}],
    "schema_ids": [1, None, 3],
    "schema_versions": [None, 2, 3],
    "compaction_keys": [b"c", None, b"d"],
}


@pytest.mark.parametrize("codec", [NONE, LZ4, ZSTD])
@pytest.mark.parametrize("which", [(), *((name,) for name in COLUMNS), tuple(COLUMNS)], ids=len)
async def test_every_codec_and_column_reaches_a_grpc_consumer_field_for_field(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer, codec: int, which: tuple[str, ...]
) -> None:
    stream = await broker.client().consume(TOPIC)
    head = producer.head(
        schema_id=9, schema_version=8, routing_key="head", attributes={"shared": "head", "all": "yes"}
    )
    columns = {name: COLUMNS[name] for name in which}
    payloads = [b"\x00" * 2000, b"", b"last"]
    await producer.send(producer.batch(payloads, head, codec=codec, **columns))
    for n, message in enumerate(await stream.take(3)):
        assert message.payload == payloads[n]
        assert message.msg_id == MsgID(producer_id=producer.id, topic_name=TOPIC, topic_offset=n)
        assert message.producer_name == producer.name
        assert message.publish_time == columns.get("publish_times", [1_700_000_000_000] * 3)[n]
        assert message.routing_key == (columns.get("routing_keys", ["head"] * 3)[n] or "")
        assert message.schema_id == (columns.get("schema_ids", [9] * 3)[n] or 0)
        assert message.schema_version == (columns.get("schema_versions", [8] * 3)[n] or 0)
        attributes = {"shared": "head", "all": "yes"} | (columns.get("attributes", [None] * 3)[n] or {})
        key = columns.get("compaction_keys", [None] * 3)[n]
        if key is not None:
            attributes["x-compaction-key"] = key.decode()
        assert dict(message.attributes) == attributes


async def test_a_non_reliable_topic_answers_without_offsets(native: NativeClient) -> None:
    producer = await native.open_producer(TOPIC, reliable=False)
    assert (await producer.send(producer.row("nobody listens"))).offset == NO_OFFSET
    consumer = await native.subscribe(TOPIC)
    assert consumer.subscribed.dispatch == pb.NON_RELIABLE
    await native.ping()
    published = await producer.send_batch("a", "b")
    assert (published.messages, published.offset) == (2, NO_OFFSET)
    item = await consumer.item()
    assert (item.base, item.skip, item.messages, item.attempt) == (NO_OFFSET, 0, 2, 1)


async def test_two_producers_share_a_connection(native: NativeClient, producer: NativeProducer) -> None:
    other = await native.open_producer("/default/other", "second")
    same = await native.open_producer(TOPIC, "second")
    requests = []
    for n in range(20):
        requests += [(sender, sender.publish(sender.row(str(n)))) for sender in (producer, other, same)]
    offsets = {sender.number: [] for sender in (producer, other, same)}  # type: ignore[var-annotated]
    for sender, request in requests:
        offsets[sender.number].append((await sender.published(request)).offset)
    assert offsets[other.number] == list(range(20))
    assert sorted(offsets[producer.number] + offsets[same.number]) == list(range(40))


async def test_the_same_name_is_the_same_producer_also_over_grpc(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    assert (await native.open_producer(TOPIC)).id == producer.id
    assert (await broker.client().create_producer(TOPIC, producer.name)).id == producer.id


async def test_a_channel_number_in_use_or_zero_is_refused(
    native: NativeClient, producer: NativeProducer
) -> None:
    message = pb.OpenProducer(topic=TOPIC, name="q", dispatch=pb.RELIABLE)
    for channel in (producer.number, 0):
        with refused_with(ErrorCode.VERSION_MISMATCH, f"channel {channel}"):
            await native.request(frames.OPEN_PRODUCER, message, channel=channel)
    assert (await producer.send(producer.row("still open"))).offset == 0


async def test_a_number_whose_opening_was_refused_is_free(native: NativeClient) -> None:
    with refused_with(ErrorCode.TOPIC_NAME_INVALID):
        await native.open_producer("bad name", channel=9)
    assert (await native.open_producer(TOPIC, channel=9)).number == 9


async def test_two_openings_of_one_number_at_once_leave_one(native: NativeClient) -> None:
    message = pb.OpenProducer(topic=TOPIC, name="q", dispatch=pb.RELIABLE)
    native.send(frames.OPEN_PRODUCER, message, channel=5, request=1001)
    native.send(frames.OPEN_PRODUCER, message, channel=5, request=1002)
    assert (await native.answer(1001)).kind == frames.PRODUCER_OPENED  # type: ignore[union-attr]
    with refused_with(ErrorCode.VERSION_MISMATCH):
        await native.answer(1002)


async def test_close_frees_the_number_and_ends_publishing(
    native: NativeClient, producer: NativeProducer
) -> None:
    await producer.close()
    with refused_with(ErrorCode.CHANNEL_UNKNOWN):
        await producer.send(producer.row("too late"))
    with refused_with(ErrorCode.CHANNEL_UNKNOWN):
        await producer.close()
    again = await native.open_producer(TOPIC, channel=producer.number)
    assert (await again.send(again.row("first"))).offset == 0


async def test_everything_published_before_a_close_is_answered(
    native: NativeClient, producer: NativeProducer
) -> None:
    requests = [producer.publish(producer.row(str(n))) for n in range(50)]
    closing = native.new_number()
    native.send(frames.CLOSE, channel=producer.number, request=closing)
    assert (await native.answer(closing)).kind == frames.CLOSED  # type: ignore[union-attr]
    assert [(await producer.published(request)).offset for request in requests] == list(range(50))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "/nowhere/t"}, ErrorCode.NAMESPACE_UNKNOWN),
        ({"topic": "t"}, ErrorCode.TOPIC_NAME_INVALID),
        ({"name": ""}, ErrorCode.ARGUMENT_INVALID),
        ({"name": "n" * 1000}, ErrorCode.ARGUMENT_INVALID),
        ({"reliable": False}, ErrorCode.DISPATCH_MISMATCH),
        ({"schema_subject": "unknown"}, ErrorCode.SUBJECT_UNKNOWN),
        ({"exclusive": True, "name": "another"}, ErrorCode.PRODUCER_EXCLUSIVE),
    ],
)
async def test_refused_openings(
    native: NativeClient, producer: NativeProducer, fields: dict[str, Any], code: ErrorCode
) -> None:
    with refused_with(code):
        await native.open_producer(**({"topic": TOPIC} | fields))
    assert (await producer.send(producer.row("unharmed"))).offset == 0


async def test_an_exclusive_producer_keeps_others_out_while_its_channel_is_open(
    broker: RunningBroker, native: NativeClient
) -> None:
    await native.open_producer(TOPIC, "holder", exclusive=True)
    broker.clock.advance(10 * 60_000)  # far beyond the time after which a silent gRPC producer counts as gone
    with refused_with(ErrorCode.PRODUCER_EXCLUSIVE):
        await native.open_producer(TOPIC, "other")


async def test_an_exclusive_producer_that_says_goodbye_makes_room_at_once(
    broker: RunningBroker, native: NativeClient
) -> None:
    holder = await native.open_producer(TOPIC, "holder", exclusive=True)
    again = await native.open_producer(TOPIC, "holder")
    await holder.send_rows("a")
    await holder.close()
    with refused_with(ErrorCode.PRODUCER_EXCLUSIVE):
        await native.open_producer(TOPIC, "other")  # one channel of it is still open
    await again.close()
    other = await native.open_producer(TOPIC, "other")
    await other.send_rows("b")
    # A connection that is merely lost keeps its place for a while.
    await native.close()
    with refused_with(ErrorCode.PRODUCER_EXCLUSIVE):
        await (await broker.native()).open_producer(TOPIC, "third", exclusive=True)
    broker.clock.advance(61_000)
    await (await broker.native()).open_producer(TOPIC, "third", exclusive=True)


async def test_the_largest_message_taken_in_a_batch_reaches_every_client(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    stream = await broker.client().consume(TOPIC)
    consumer = await native.subscribe(TOPIC, "native")
    attributes = {"head": "h" * 20_000}

    async def is_taken(size: int) -> bool:
        head = producer.head(attributes=attributes, ttl=999_999_999)
        try:
            await producer.send(producer.batch([bytes(size)], head, attributes=[{"own": "o" * 10_000}]))
        except NativeRefusal:
            return False
        assert len((await stream.next()).payload) == len((await consumer.take(1))[0].message.payload) == size
        await consumer.ack(0, 1 << 40)
        return True

    small, large = 4_000_000, 4 * 1024 * 1024
    while large - small > 1000:
        middle = (small + large) // 2
        if await is_taken(middle):
            small = middle
        else:
            large = middle
    assert small > 4 * 1024 * 1024 - 50_000


async def test_a_topic_is_not_created_where_that_is_off(start_broker: StartBroker) -> None:
    broker = await start_broker(auto_create_topics=False)
    native = await broker.native()
    with refused_with(ErrorCode.TOPIC_UNKNOWN):
        await native.open_producer(TOPIC)
    with refused_with(ErrorCode.TOPIC_UNKNOWN):
        await native.subscribe(TOPIC)


async def test_the_size_limit_of_a_topic_holds_for_rows_and_inside_batches(broker: RunningBroker) -> None:
    await broker.stop()
    await broker.put_topic_policies(TOPIC, Policies(max_message_size=100))
    await broker.start()
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    assert producer.opened.message_bytes_max == 100
    large, small = bytes(101), bytes(100)
    with refused_with(ErrorCode.MESSAGE_TOO_LARGE):
        await producer.send(producer.row(large))
    with refused_with(ErrorCode.MESSAGE_TOO_LARGE):
        await producer.send(producer.batch([small, large, small]))
    assert (await producer.send(producer.row(small))).offset == 0
    assert (await producer.send(producer.batch([small] * 50))).offset == 1


async def test_a_row_no_grpc_client_could_receive_is_refused(producer: NativeProducer) -> None:
    with refused_with(ErrorCode.MESSAGE_TOO_LARGE):
        await producer.send(producer.row(bytes(4 * 1024 * 1024 - 8 * 1024)))
    assert (await producer.send(producer.row(bytes(4 * 1024 * 1024 - 9 * 1024)))).offset == 0


async def test_a_message_in_a_batch_no_grpc_client_could_receive_is_refused(producer: NativeProducer) -> None:
    with refused_with(ErrorCode.MESSAGE_TOO_LARGE):
        await producer.send(producer.batch([bytes(4 * 1024 * 1024 - 4096)]))
    assert (await producer.send(producer.batch([bytes(4 * 1024 * 1024 - 16 * 1024)]))).offset == 0


async def test_batches_that_lie_are_refused_and_take_nothing(producer: NativeProducer) -> None:
    good = producer.batch(["a", "b", "c"])
    wrong_count = good[:4] + (4).to_bytes(4, "little") + good[8:]
    broken = [
        wrong_count,
        good[:4] + (2).to_bytes(4, "little") + good[8:],
        good[:1] + b"\x02" + good[2:],  # version
        good[:2] + b"\x03" + good[3:],  # codec
        good[:8] + (1 << 31).to_bytes(4, "little") + good[12:],  # raw size
        good[:12] + b"\xff\xff" + good[14:],  # columns
        good[:14] + b"\xff\xff" + good[16:],  # head
        good[:-9],
        good[:16],
        b"\x00",
        good[:60] + bytes(200) + good[260:],
        producer.batch(["a"], producer.head(attributes={"x-ttl": "5"})),
    ]
    for body in broken:
        with refused_with(ErrorCode.BATCH_INVALID):
            await producer.send(body)
    with refused_with(ErrorCode.PRODUCER_UNKNOWN):
        await producer.send(producer.batch(["a"], producer.head(producer_id=producer.id + 1)))
    assert (await producer.send(good)).offset == 0


async def test_rows_that_lie_are_refused_and_take_nothing(producer: NativeProducer) -> None:
    foreign = MsgID(producer_id=producer.id, topic_name="/default/other")
    with refused_with(ErrorCode.TOPIC_MISMATCH):
        await producer.send(producer.row("x", msg_id=foreign))
    with refused_with(ErrorCode.PRODUCER_UNKNOWN):
        await producer.send(producer.row("x", msg_id=MsgID(producer_id=1, topic_name=TOPIC)))
    for garbage in (b"\xff\xff", b"not protobuf at all", producer.row("x")[:-1]):
        with refused_with(ErrorCode.MALFORMED_REQUEST):
            await producer.send(garbage)
    assert (await producer.send(producer.row("x"))).offset == 0


async def test_a_refusal_does_not_disturb_those_before_and_behind_it(producer: NativeProducer) -> None:
    requests = [producer.publish(producer.row("x") if n % 3 else b"\xff") for n in range(30)]
    offsets = []
    for n, request in enumerate(requests):
        if n % 3:
            offsets.append((await producer.published(request)).offset)
        else:
            with refused_with(ErrorCode.MALFORMED_REQUEST):
                await producer.published(request)
    assert offsets == list(range(20))


async def test_a_sequence_belongs_to_idempotent_producers_only(
    native: NativeClient, producer: NativeProducer
) -> None:
    with refused_with(ErrorCode.ARGUMENT_INVALID, "idempotent"):
        await producer.send(producer.row("x"), sequence=1)
    idempotent = await native.open_producer(TOPIC, "i", idempotent=True)
    with refused_with(ErrorCode.ARGUMENT_INVALID, "idempotent"):
        await idempotent.send(idempotent.row("x"))


async def test_publishing_on_a_channel_that_does_not_publish(
    native: NativeClient, producer: NativeProducer
) -> None:
    consumer = await native.subscribe(TOPIC)
    row = producer.row("x")
    for channel in (consumer.number, 999):
        request = native.new_number()
        native.write(publish_header(channel, request, 0, len(row)) + row)
        with refused_with(ErrorCode.CHANNEL_UNKNOWN):
            await native.answer(request)
    assert await native.ping() == b"ping"


async def test_nothing_is_lost_of_more_than_the_window_holds(
    native: NativeClient, producer: NativeProducer
) -> None:
    body = producer.row(bytes(1024 * 1024))
    requests = []
    for _ in range(100):  # three windows
        requests.append(producer.publish(body))
        await native.drain()
    assert [(await producer.published(request)).offset for request in requests] == list(range(100))


async def test_a_violation_behind_publishes_leaves_other_connections_alone(
    broker: RunningBroker, native: NativeClient, producer: NativeProducer
) -> None:
    """What the disk answers after the connection was given up reaches nobody, and disturbs nobody."""
    others = []
    for n in range(5):
        bad = await broker.native()
        channel = await bad.open_producer(TOPIC, "bad")
        others.append(await (await broker.native()).open_producer(TOPIC, f"p{n}"))
        bad.stop_reading()  # so that it does not notice the goodbye, and stays
        row = channel.row("x")
        publishes = [publish_header(channel.number, n, 0, len(row)) + row for n in range(1, 20)]
        bad.write(b"".join(publishes) + encode_frame(frames.WELCOME))
        # All of this is in the sockets before the broker has its turn, and so is committed together.
        requests = [(other, other.publish(other.row("x"))) for other in others]
        for other, request in requests:
            await other.published(request)


async def test_published_messages_outlive_their_connection(
    broker: RunningBroker, native: NativeClient
) -> None:
    producer = await native.open_producer(TOPIC)
    for n in range(100):
        producer.publish(producer.row(str(n)))
    await native.drain()
    await native.close()
    other = await broker.native()
    reader = await other.open_reader(TOPIC, EARLIEST)
    taken: list[str] = []
    while taken[-1:] != ["99"]:
        taken += await reader.payloads(1)
    assert taken == [str(n) for n in range(100)]


async def test_publishes_into_a_stopping_broker_are_kept_or_refused(broker: RunningBroker) -> None:
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    requests: list[int] = []

    async def publish() -> None:
        while True:
            await native.ping()
            for _ in range(20):
                requests.append(producer.publish(producer.row(str(len(requests)))))

    publishing = asyncio.create_task(publish())
    while len(requests) < 500:
        await asyncio.sleep(0)
    await broker.stop()
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
    assert await native.closed_with() is ErrorCode.STOPPING
    outcomes: dict[str, set[int]] = {"kept": set(), "refused": set(), "unknown": set()}
    for n, request in enumerate(requests):
        if native._answers[request].empty():
            outcomes["unknown"].add(n)
            continue
        try:
            await producer.published(request)
            outcomes["kept"].add(n)
        except NativeRefusal as refusal:
            outcomes["refused"].add(n)
            if refusal.code not in (ErrorCode.TOPIC_DRAINING, ErrorCode.STOPPING):
                raise
    await broker.start()
    reader = await (await broker.native()).open_reader(TOPIC, EARLIEST, LATEST)
    stored = [int(received.payload) for received in await reader.rest()]
    assert stored == sorted(set(stored))
    assert outcomes["kept"] <= set(stored)
    assert not outcomes["refused"] & set(stored)
    assert set(stored) <= outcomes["kept"] | outcomes["unknown"]


async def test_native_calls_are_counted(start_broker: StartBroker) -> None:
    broker = await start_broker(metrics=True)
    native = await broker.native()
    producer = await native.open_producer(TOPIC)
    await producer.send_rows("a", "b")
    await producer.send_batch(*"cdefg")
    with refused_with(ErrorCode.MALFORMED_REQUEST):
        await producer.send(b"\xff")
    native.send(frames.WELCOME)
    assert await native.closed_with() is ErrorCode.PROTOCOL_VIOLATION
    assert await broker.metric("danube_topic_messages_in_total") == 7
    assert await broker.metric("danube_broker_rpc_total") == 3 + 1 + 1  # taken, refused, opened
    assert await broker.metric("danube_connections_total") == 1
    assert await broker.metric("danube_connection_protocol_errors_total") == 1
