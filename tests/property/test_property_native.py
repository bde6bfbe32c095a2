"""The native protocol: any chunking gives the same frames, any messages come out of a batch as they went in."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import frames
from pydanube.protocol.native.arrow import (
    delivered_batch,
    delivered_rows,
    encode_payloads,
    routing_keys,
    rows,
)
from pydanube.protocol.native.batch import message_count
from pydanube.protocol.native.bodies import (
    NO_OFFSET,
    Item,
    Published,
    decode_items,
    decode_published,
    decode_ranges,
    encode_item_header,
    encode_published,
    encode_ranges,
)
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.frames import PREFACE, FrameReader, encode_frame, publish_header
from pydanube.protocol.native.timing import timing
from pydanube.protocol.native_pb2 import BatchHead

TOPIC = "/default/orders"
U32, U64, I63 = (st.integers(0, 2**bits - 1) for bits in (32, 64, 63))
TEXT = st.text(max_size=20)
NAMES = TEXT.filter(lambda name: not name.startswith("x-"))
ATTRIBUTES = st.dictionaries(NAMES, TEXT, max_size=3)
KINDS = st.integers(1, 24).filter(lambda kind: kind != frames.PUBLISH)


@st.composite
def frame_sequences(draw: st.DrawFn) -> list[tuple[int, int, int, int, bytes]]:
    plain = st.tuples(KINDS, U32, U32, st.just(0), st.binary(max_size=60))
    publish = st.tuples(st.just(frames.PUBLISH), U32, U32, U64, st.binary(min_size=1, max_size=60))
    return draw(st.lists(plain | publish, max_size=8))


@given(frame_sequences(), st.booleans(), st.data())
def test_any_chunking_gives_the_same_frames(
    sequence: list[tuple[int, int, int, int, bytes]], begins: bool, data: st.DataObject
) -> None:
    stream = PREFACE if begins else b""
    for kind, channel, request, number, body in sequence:
        if kind == frames.PUBLISH:
            stream += publish_header(channel, request, number, len(body)) + body
        else:
            stream += encode_frame(kind, channel, request, body)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    reader = FrameReader(100, preface=PREFACE if begins else b"")
    got = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.receive(stream[start:end])
    assert [(f.kind, f.channel, f.request, f.sequence, f.body) for f in got] == sequence


LARGE = frames.LARGE_REST_BYTES
BODY_SIZES = st.sampled_from([1, 2, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE, 200_000])


@given(
    st.lists(st.tuples(st.sampled_from([frames.PUBLISH, frames.PING]), BODY_SIZES), max_size=6),
    st.sampled_from([1, 16, 5_000, 256 * 1024]),
    st.data(),
)
def test_bodies_received_where_they_stay_are_the_same(
    plan: list[tuple[int, int]], buffer_bytes: int, data: st.DataObject
) -> None:
    sent = [(kind, number, bytes([number + 1]) * size) for number, (kind, size) in enumerate(plan)]
    stream = memoryview(
        b"".join(
            publish_header(1, 2, number, len(body)) + body
            if kind == frames.PUBLISH
            else encode_frame(kind, 1, 2, body)
            for kind, number, body in sent
        )
    )
    reader = FrameReader(frames.FRAME_BYTES_MAX, buffer=memoryview(bytearray(buffer_bytes)))
    got: list[frames.Frame] = []
    pieces = st.sampled_from([1, 7, 1_000, 60_000, 1 << 20] if len(stream) < 100_000 else [60_000, 1 << 20])
    while stream:
        room = reader.room()
        count = min(len(room), len(stream), max(data.draw(pieces), len(stream) // 100))
        assert count > 0
        room[:count], stream = stream[:count], stream[count:]
        got += reader.received(count)
    assert [(f.kind, f.sequence, f.body) for f in got] == [
        (kind, number if kind == frames.PUBLISH else 0, body) for kind, number, body in sent
    ]
    assert reader.held_bytes == 0


@given(st.lists(st.builds(Item, U64, I63, U32, U32, U32, st.binary(max_size=40))))
def test_items_come_back(items: list[Item]) -> None:
    body = b"".join([encode_item_header(*item[:5], len(item.body)) + item.body for item in items])
    assert decode_items(body) == items


@given(st.lists(st.tuples(U64, U64).map(lambda pair: (min(pair), max(pair)))))
def test_ranges_come_back(ranges: list[tuple[int, int]]) -> None:
    assert decode_ranges(encode_ranges(ranges)) == ranges


@given(st.lists(st.builds(Published, U32, U32, U64)))
def test_answers_come_back(answers: list[Published]) -> None:
    assert decode_published(b"".join([encode_published(*answer) for answer in answers])) == answers


@st.composite
def heads(draw: st.DrawFn) -> BatchHead:
    given = draw(
        st.fixed_dictionaries(
            {"producer_id": U64, "producer_name": TEXT, "attributes": ATTRIBUTES},
            optional={
                "publish_time": I63,
                "schema_id": U64,
                "schema_version": U32,
                "routing_key": TEXT,
                "deliver_at": I63,
                "deliver_after": I63,
                "ttl": I63,
            },
        )
    )
    return BatchHead(**given)


@st.composite
def columns(draw: st.DrawFn, count: int) -> dict[str, list[Any]]:
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "publish_times": I63,
        "routing_keys": st.none() | TEXT,
        "attributes": st.none() | ATTRIBUTES,
        "schema_ids": st.none() | U64,
        "schema_versions": st.none() | U32,
        "compaction_keys": st.none() | TEXT.map(str.encode),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(kinds))))
    return {name: draw(st.lists(kinds[name], min_size=count, max_size=count)) for name in sorted(chosen)}


def expected(head: BatchHead, payload: bytes, own: dict[str, Any]) -> StreamMessage:
    """The message as the contract describes it, field by field."""
    message = StreamMessage(
        msg_id=MsgID(producer_id=head.producer_id, topic_name=TOPIC),
        payload=payload,
        producer_name=head.producer_name,
        attributes=head.attributes,
    )
    for column, name in (
        ("publish_times", "publish_time"),
        ("routing_keys", "routing_key"),
        ("schema_ids", "schema_id"),
        ("schema_versions", "schema_version"),
    ):
        if column in own:
            if own[column] is not None:
                setattr(message, name, own[column])
        elif head.HasField(name):  # type: ignore[arg-type]
            setattr(message, name, getattr(head, name))
    message.attributes.update(own.get("attributes") or {})
    for name in ("deliver_at", "deliver_after", "ttl"):
        if getattr(head, name):
            message.attributes["x-" + name.replace("_", "-")] = str(getattr(head, name))
    if own.get("compaction_keys") is not None:
        message.attributes["x-compaction-key"] = own["compaction_keys"].decode()
    return message


def comparable(batch: Any) -> list[dict[str, Any]]:
    """Rows of a delivered batch as Python values; times as numbers, since not every one is a datetime."""
    names = batch.schema.names
    values = [
        (batch.column(name).view("int64") if name.endswith("_time") else batch.column(name)).to_pylist()
        for name in names
    ]
    listed = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
    return [{**row, "attributes": dict(row["attributes"] or ())} for row in listed]


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), heads(), st.integers(0, 2), st.data())
def test_messages_come_out_of_a_batch_as_they_went_in(
    payloads: list[bytes], head: BatchHead, codec: int, data: st.DataObject
) -> None:
    count = len(payloads)
    own = data.draw(columns(count))
    body = encode_payloads(payloads, head, codec=codec, **own)
    skip = data.draw(st.integers(0, count - 1))
    messages = data.draw(st.integers(1, count - skip))
    base = data.draw(st.integers(0, 2**62) | st.just(NO_OFFSET))
    wanted = [
        expected(head, payloads[at], {name: values[at] for name, values in own.items()})
        for at in range(skip, skip + messages)
    ]

    checked = check_batch(body)
    assert message_count(body) == checked.count == count
    assert checked.payload_bytes == sum(map(len, payloads))
    assert checked.payload_bytes_max == max(map(len, payloads))
    assert checked.is_timed == any(timing(body))

    as_rows = rows(body, TOPIC, skip, messages)
    assert [StreamMessage.FromString(row) for row in as_rows] == wanted
    assert all(timing(row) == timing(body) for row in as_rows)
    assert routing_keys(body, skip, messages) == [message.routing_key for message in wanted]

    delivered = delivered_batch(Item(base, 5, skip, messages, 1, body), TOPIC)
    delivered.validate(full=True)
    items = [
        Item(base if base == NO_OFFSET else base + skip + at, 5, 0, 1, 1, row)
        for at, row in enumerate(as_rows)
    ]
    assert comparable(delivered) == comparable(delivered_rows(items, TOPIC))
    assert [row["payload"] for row in comparable(delivered)] == payloads[skip : skip + messages]
