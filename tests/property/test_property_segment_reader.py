"""Whatever was published and sealed comes back out of a segment as the same messages, cut anywhere."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.damage import DamagedSegmentError
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_footer import decode_footer, decode_group
from pydanube.history.segment_rows import RowGroup
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.names import TopicName
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import is_batch, is_merged, message_count
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.timing import timing
from pydanube.protocol.native_pb2 import BatchHead

TOPIC = "/default/orders"
MASK = (1 << 64) - 1


class Entry(NamedTuple):
    """What a producer published, and when that was appended."""

    body: bytes
    append_ms: int


names = st.sampled_from(["p", "producer-two", "größe"])
texts = st.text(max_size=6)
plain_attributes = st.dictionaries(st.sampled_from(["a", "b", "trace"]), texts, max_size=3)
milliseconds = st.sampled_from([0, 1, 60_000, (1 << 63) - 1])
timing_attributes = st.dictionaries(
    st.sampled_from(["x-deliver-at", "x-deliver-after", "x-ttl"]), milliseconds.map(str), max_size=2
)
unsigned = st.sampled_from([0, 1, 127, 128, 1 << 20, 1 << 63, MASK])
times = st.integers(0, 3).map(lambda number: 1_700_000_000_000 + number)
publish_times = st.one_of(times, st.sampled_from([0, (1 << 63) - 1]))


@st.composite
def row_bodies(draw: st.DrawFn) -> bytes:
    attributes = draw(plain_attributes)
    if draw(st.integers(0, 3)) == 0:
        attributes |= draw(timing_attributes)
        attributes |= draw(st.dictionaries(st.just("x-compaction-key"), texts, max_size=1))
    return StreamMessage(
        request_id=draw(unsigned),
        msg_id=MsgID(producer_id=draw(unsigned), topic_name=TOPIC, broker_addr=draw(texts)),
        payload=draw(st.binary(max_size=200)),
        publish_time=draw(publish_times),
        producer_name=draw(names),
        subscription_name=draw(texts),
        attributes=attributes,
        schema_id=draw(st.none() | unsigned),
        schema_version=draw(st.none() | st.sampled_from([0, 7, (1 << 32) - 1])),
        routing_key=draw(st.none() | texts),
    ).SerializeToString()


@st.composite
def batch_bodies(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 40))

    def column(values: st.SearchStrategy[Any]) -> list[Any] | None:
        """A few values, repeated: as telling as many different ones and quicker to make."""
        if draw(st.booleans()):
            return None
        some = draw(st.lists(values, min_size=1, max_size=4))
        return [some[number % len(some)] for number in range(count)]

    head = BatchHead(
        producer_id=draw(unsigned),
        producer_name=draw(names),
        publish_time=draw(st.none() | publish_times),
        schema_id=draw(st.none() | unsigned),
        schema_version=draw(st.none() | st.sampled_from([0, 7])),
        routing_key=draw(st.none() | texts),
        attributes=draw(plain_attributes) if draw(st.booleans()) else {},
    )
    if draw(st.integers(0, 3)) == 0:
        head.deliver_at, head.deliver_after, head.ttl = draw(
            st.tuples(milliseconds, milliseconds, milliseconds)
        )
    return arrow.encode_payloads(
        column(st.binary(max_size=60)) or [b"payload %d" % number for number in range(count)],
        head,
        publish_times=column(publish_times),
        routing_keys=column(st.none() | texts),
        attributes=column(st.none() | plain_attributes),
        schema_ids=column(st.none() | unsigned),
        schema_versions=column(st.none() | st.sampled_from([0, 7, (1 << 32) - 1])),
        compaction_keys=column(st.none() | texts.map(str.encode)),
    )


entry_lists = st.lists(st.builds(Entry, row_bodies() | batch_bodies(), times), min_size=1, max_size=8)


@st.composite
def row_runs(draw: st.DrawFn) -> list[Entry]:
    """A few rows, over and over: enough of them to be worth a merged batch."""
    some = draw(st.lists(st.builds(Entry, row_bodies(), times), min_size=1, max_size=4))
    return some * draw(st.integers(1, 12))


runs_of_rows = st.lists(row_runs() | entry_lists, min_size=1, max_size=3).map(
    lambda runs: [entry for run in runs for entry in run]
)


@given(entry_lists, st.integers(0, 1 << 40), st.data())
def test_a_reader_gets_the_messages_that_were_published(
    entries: list[Entry], first_offset: int, data: st.DataObject
) -> None:
    published = _messages(
        [
            (base, entry.body, entry.append_ms, any(timing(entry.body)))
            for base, entry in _based(entries, first_offset)
        ]
    )
    for_rows = data.draw(st.booleans(), label="for_rows")
    group = RowGroup(_segment_columns(entries, first_offset), first_offset, TOPIC, for_rows=for_rows)
    skipped = data.draw(st.integers(0, len(published) - 1), label="skipped")
    messages_max = data.draw(st.sampled_from([1, 3, 20, 1000]), label="messages_max")
    bytes_max = data.draw(st.sampled_from([0, 300, 4000, 1 << 20]), label="bytes_max")
    found: list[tuple[Any, ...]] = []
    offset = first_offset + skipped
    while offset < group.next_offset:
        rows = group.ready_rows(offset, messages_max=messages_max, bytes_max=bytes_max)
        if not rows:
            rows = group.rows(offset, messages_max=messages_max, bytes_max=bytes_max)
        sizes = [len(body) for _, body, _, _ in rows]
        messages = _messages(rows)
        assert rows[0][0] == offset
        assert len(messages) <= messages_max
        assert len(rows) == 1 or sum(sizes) <= bytes_max
        found += messages
        offset += len(messages)
    assert found == published[skipped:]


@given(entry_lists)
def test_a_native_consumer_gets_the_same_columns(entries: list[Entry]) -> None:
    group = RowGroup(_segment_columns(entries, 7), 7, TOPIC)
    rows = group.rows(7, messages_max=1 << 20, bytes_max=1 << 30)
    assert _delivered(
        [(base, entry.body, entry.append_ms) for base, entry in _based(entries, 7)]
    ) == _delivered([(base, body, append_ms) for base, body, append_ms, _ in rows])


@given(entry_lists)
def test_every_batch_is_one_a_broker_would_take(entries: list[Entry]) -> None:
    group = RowGroup(_segment_columns(entries, 0), 0, TOPIC)
    for _, body, _, is_timed in group.rows(0, messages_max=1 << 20, bytes_max=1 << 30):
        if is_batch(body):
            assert check_batch(body).is_timed == is_timed


@settings(max_examples=60)
@given(runs_of_rows, st.data())
def test_merged_batches_hold_the_messages_that_were_published(
    entries: list[Entry], data: st.DataObject
) -> None:
    group = RowGroup(_segment_columns(entries, 7), 7, TOPIC)
    published = group.rows(7, messages_max=1 << 20, bytes_max=1 << 30)
    skipped = data.draw(st.integers(0, group.next_offset - 8), label="skipped")
    limits = {
        "messages_max": data.draw(st.sampled_from([1, 20, 1000]), label="messages_max"),
        "bytes_max": data.draw(st.sampled_from([0, 6000, 1 << 20]), label="bytes_max"),
        "merged_max": data.draw(st.sampled_from([0, 16, 40, 1000]), label="merged_max"),
    }
    found: list[tuple[int, bytes, int, bool]] = []
    offset = 7 + skipped
    while offset < group.next_offset:
        rows = group.rows(offset, **limits)
        counts = [message_count(body) for _, body, _, _ in rows]
        assert rows[0][0] == offset
        assert sum(counts) <= limits["messages_max"]
        assert len(rows) == 1 or sum([len(body) for _, body, _, _ in rows]) <= limits["bytes_max"]
        merged = [row for row in rows if is_batch(row[1]) and is_merged(row[1])]
        assert all(message_count(row[1]) <= limits["merged_max"] and not row[3] for row in merged)
        found += rows
        offset += sum(counts)
    assert _messages(found) == _messages(published)[skipped:]
    assert _delivered([row[:3] for row in found]) == _delivered([row[:3] for row in published])[skipped:]


@settings(max_examples=30)
@given(runs_of_rows, st.data())
def test_a_part_of_a_merged_batch_is_that_part(entries: list[Entry], data: st.DataObject) -> None:
    group = RowGroup(_segment_columns(entries, 0), 0, TOPIC)
    for base, body, append_ms, _ in group.rows(0, messages_max=1 << 20, bytes_max=1 << 30, merged_max=4096):
        count = message_count(body)
        skip = data.draw(st.integers(0, count - 1))
        meant = data.draw(st.integers(1, count - skip))
        whole = _delivered([(base, body, append_ms)])
        part = arrow.delivered_batch(Item(base, append_ms, skip, meant, 1, body), TOPIC)
        assert _listed(part) == whole[skip : skip + meant]


class Sealed(NamedTuple):
    """A segment as its writer made it."""

    data: bytes
    descriptor: SegmentDescriptor


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    keys = [None, "key", ""] * 20
    timed = BatchHead(producer_id=3, producer_name="p", publish_time=5, ttl=1000, attributes={"k": "v"})
    batch = arrow.encode_payloads([b"payload %d" % n for n in range(60)], timed, routing_keys=keys)
    row = StreamMessage(request_id=1, msg_id=MsgID(topic_name=TOPIC, broker_addr="b"), payload=b"row" * 20)
    entries = [Entry(row.SerializeToString(), 50 + number) for number in range(40)]
    first, second = _segment_columns(entries, 0), _segment_columns([Entry(batch, 99)], 40)
    with SegmentWriter(
        tmp_path_factory.mktemp("spool"), topic=TOPIC, topic_id=7, epoch=1, created_ms=1, row_group_bytes=1
    ) as writer:
        writer.add(pa.Table.from_batches([first]))
        writer.add(pa.Table.from_batches([second]))
        converted = writer.finish()
    return Sealed(Path(converted.path).read_bytes(), converted.descriptor)


@given(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=12) | st.just(bytes(40)))
def test_damage_anywhere_is_told_or_changes_nothing(sealed: Sealed, position: int, damage: bytes) -> None:
    data = bytearray(sealed.data)
    position %= len(data) - len(damage)
    data[position : position + len(damage)] = damage
    try:
        found = _read_whole(bytes(data), sealed.descriptor)
    except DamagedSegmentError:
        assert bytes(data) != sealed.data
    else:
        assert found == _read_whole(sealed.data, sealed.descriptor)


def _read_whole(data: bytes, descriptor: SegmentDescriptor) -> list[tuple[int, bytes, int, bool]]:
    topic = TopicName.parse(TOPIC)
    footer = decode_footer(data, topic, descriptor)
    rows: list[tuple[int, bytes, int, bool]] = []
    for facts in footer.groups:
        group = decode_group(data[facts.start : facts.end], footer, facts, topic, descriptor)
        rows += group.rows(facts.first_offset, messages_max=1 << 20, bytes_max=1 << 30)
    return rows


def _based(entries: list[Entry], offset: int) -> list[tuple[int, Entry]]:
    based = []
    for entry in entries:
        based.append((offset, entry))
        offset += message_count(entry.body)
    return based


def _messages(rows: list[tuple[int, bytes, int, bool]]) -> list[tuple[Any, ...]]:
    """Offset, message, time of append, delivery times and whether they are told, of every single message."""
    messages: list[tuple[Any, ...]] = []
    for base, body, append_ms, is_timed in rows:
        bodies = arrow.rows(body, TOPIC) if is_batch(body) else [body]
        own = arrow.append_times(body, 0, len(bodies)) if is_batch(body) else None
        times = own or [append_ms] * len(bodies)
        messages += [
            (base + number, StreamMessage.FromString(one), times[number], timing(body), is_timed)
            for number, one in enumerate(bodies)
        ]
    return messages


def _delivered(entries: list[tuple[int, bytes, int]]) -> list[dict[str, Any]]:
    delivered: list[dict[str, Any]] = []
    for base, body, append_ms in entries:
        delivered += _listed(
            arrow.delivered_batch(Item(base, append_ms, 0, message_count(body), 1, body), TOPIC)
        )
    return delivered


def _listed(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    assert batch.schema.equals(arrow.DELIVERED_SCHEMA)
    # A time beyond the year 9999 has no Python object.
    for name in ("publish_time", "append_time"):
        index = batch.schema.get_field_index(name)
        batch = batch.set_column(index, name, batch.column(name).cast(pa.int64()))
    return [row | {"attributes": dict(row["attributes"] or ())} for row in batch.to_pylist()]


def _segment_columns(entries: list[Entry], first_offset: int) -> pa.RecordBatch:
    """Messages as a segment has them, one by one: the slow way, to compare with."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        came_in_batch = is_batch(entry.body)
        for body in arrow.rows(entry.body, TOPIC) if came_in_batch else [entry.body]:
            message = StreamMessage.FromString(body)
            rows.append(
                {
                    "offset": first_offset + len(rows),
                    "publish_time": message.publish_time,
                    "append_time": entry.append_ms,
                    "producer_name": message.producer_name,
                    "routing_key": message.routing_key if message.HasField("routing_key") else None,
                    "attributes": list(message.attributes.items()) or None,
                    "schema_id": _signed(message.schema_id) if message.HasField("schema_id") else None,
                    "schema_version": message.schema_version if message.HasField("schema_version") else None,
                    "payload": message.payload,
                    "producer_id": _signed(message.msg_id.producer_id),
                    "request_id": None if came_in_batch else _signed(message.request_id),
                    "broker_addr": None if came_in_batch else message.msg_id.broker_addr,
                    "subscription_name": None if came_in_batch else message.subscription_name or None,
                }
            )
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in SEGMENT_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SEGMENT_SCHEMA)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
