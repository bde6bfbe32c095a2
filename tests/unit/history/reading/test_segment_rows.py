"""Row groups as entries: which messages share a batch, where batches are cut, what stays a row."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pydanube.history.damage import DamagedSegmentError
from pydanube.history.segment_rows import BATCH_RUN_MIN, READY_BYTES_MAX, Row, RowGroup
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import (
    BATCH_BYTES_MAX,
    HEAD_BYTES_MAX,
    is_batch,
    message_count,
    read_layout,
)
from pydanube.protocol.native.head import decode_head
from pydanube.protocol.native.timing import timing

TOPIC = "/default/orders"
NOW = 1_700_000_000_000
RUN = BATCH_RUN_MIN
WHOLE = {"messages_max": 1 << 20, "bytes_max": 1 << 30}

MakeGroup = Callable[[Sequence[dict[str, Any]]], RowGroup]
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make_group(make_batch: Any) -> MakeGroup:
    def make(messages: Sequence[dict[str, Any]]) -> RowGroup:
        return RowGroup(make_batch(messages), messages[0]["offset"], TOPIC)

    return make


def _shape(rows: list[Row]) -> list[tuple[int, int, bool]]:
    return [(base, message_count(body), is_batch(body)) for base, body, _, _ in rows]


def _run(make: Make, start: int, count: int, **fields: Any) -> list[dict[str, Any]]:
    return [make(offset, **{"append_time": NOW} | fields) for offset in range(start, start + count)]


@pytest.mark.parametrize(
    "other",
    [
        {"append_time": NOW + 1},
        {"producer_id": 6},
        {"producer_name": "q"},
        {"attributes": [("x-ttl", "5")]},
    ],
)
def test_messages_that_differ_in_what_a_batch_shares_are_two_batches(
    make_group: MakeGroup, make_message: Make, other: dict[str, Any]
) -> None:
    group = make_group([*_run(make_message, 10, RUN), *_run(make_message, 10 + RUN, RUN, **other)])
    assert _shape(group.rows(10, **WHOLE)) == [(10, RUN, True), (10 + RUN, RUN, True)]


def test_neighbouring_batches_with_other_times_keep_them(make_group: MakeGroup, make_message: Make) -> None:
    soon = [("x-deliver-after", "5"), ("k", "v")]
    late = [("x-deliver-at", "9"), ("x-ttl", "7")]
    group = make_group(
        [*_run(make_message, 0, RUN, attributes=soon), *_run(make_message, RUN, RUN, attributes=late)]
    )
    first, second = group.rows(0, **WHOLE)
    assert (timing(first[1]), timing(second[1])) == ((0, 5, 0), (9, 0, 7))
    assert (first[3], second[3]) == (True, True)
    assert dict(StreamMessage.FromString(arrow.rows(first[1], TOPIC)[0]).attributes) == dict(soon)


def test_a_column_is_there_only_if_a_message_has_a_value(make_group: MakeGroup, make_message: Make) -> None:
    group = make_group(_run(make_message, 0, RUN))
    layout = read_layout(group.rows(0, **WHOLE)[0][1])
    assert arrow.schema_of(layout.columns).names == ["payload"]
    assert decode_head(layout).publish_time == NOW


@pytest.mark.parametrize("skipped", [0, 3])
@pytest.mark.parametrize("payload", [b"", b"seven b", b"eight by"])
def test_a_batch_of_payloads_is_what_arrow_makes_of_it(
    make_group: MakeGroup, make_message: Make, payload: bytes, skipped: int
) -> None:
    group = make_group(_run(make_message, 0, skipped + RUN, payload=payload))
    ((_, body, _, _),) = group.rows(skipped, **WHOLE)
    batch = pa.record_batch({"payload": pa.array([payload] * RUN, pa.binary())})
    assert body[read_layout(body).arrow_at :] == batch.serialize().to_pybytes()


@pytest.mark.parametrize("request_id", [None, 1])
def test_maps_without_entries_are_no_attributes(
    make_group: MakeGroup, make_message: Make, request_id: int | None
) -> None:
    group = make_group(_run(make_message, 0, RUN, attributes=[], request_id=request_id))
    for _, body, _, is_timed in group.rows(0, **WHOLE):
        assert not is_timed
        for row in arrow.rows(body, TOPIC) if is_batch(body) else [body]:
            assert dict(StreamMessage.FromString(row).attributes) == {}


def test_few_messages_go_as_rows(make_group: MakeGroup, make_message: Make) -> None:
    group = make_group(_run(make_message, 0, RUN - 1))
    assert _shape(group.rows(0, **WHOLE)) == [(offset, 1, False) for offset in range(RUN - 1)]


def test_rows_and_batches_alternate(make_group: MakeGroup, make_message: Make) -> None:
    rows = _run(make_message, 0, 2, request_id=0)
    batch = _run(make_message, 2, RUN)
    more = _run(make_message, 2 + RUN, 1, request_id=9)
    shape = _shape(make_group([*rows, *batch, *more]).rows(0, **WHOLE))
    assert shape == [(0, 1, False), (1, 1, False), (2, RUN, True), (2 + RUN, 1, False)]


def test_reading_begins_and_ends_inside_a_batch(make_group: MakeGroup, make_message: Make) -> None:
    group = make_group(_run(make_message, 0, 100))
    rows = group.rows(37, messages_max=20, bytes_max=1 << 20)
    assert _shape(rows) == [(37, 20, True)]
    assert StreamMessage.FromString(arrow.rows(rows[0][1], TOPIC)[0]).payload == b"payload 37"


def test_a_batch_is_cut_to_the_bytes_wanted(make_group: MakeGroup, make_message: Make) -> None:
    group = make_group(_run(make_message, 0, 1000, payload=bytes(1000)))
    rows = group.rows(0, messages_max=1000, bytes_max=100_000)
    assert 80_000 < sum(len(row[1]) for row in rows) <= 100_000


def test_batches_stay_within_what_a_batch_may_have(make_group: MakeGroup, make_message: Make) -> None:
    group = make_group(_run(make_message, 0, 40, payload=bytes(512 * 1024)))
    rows = group.rows(0, **WHOLE)
    assert sum(message_count(row[1]) for row in rows) == 40
    assert all(read_layout(row[1]).raw_bytes <= BATCH_BYTES_MAX for row in rows)
    assert max(message_count(row[1]) for row in rows) == 7


def test_more_messages_than_a_batch_may_have_are_several(
    make_group: MakeGroup, make_message: Make, make_batch: Any
) -> None:
    batch = make_batch([make_message(0, append_time=NOW)]).take([0] * 70_000)
    group = RowGroup(batch.set_column(0, batch.schema.field(0), list(range(70_000))), 0, TOPIC)
    assert _shape(group.rows(0, **WHOLE)) == [(0, 65_536, True), (65_536, 70_000 - 65_536, True)]


def test_a_message_that_only_fitted_with_its_head_is_a_row(make_group: MakeGroup, make_message: Make) -> None:
    attributes = [("shared", "x" * (HEAD_BYTES_MAX - 1000))]
    payload = bytes(BATCH_BYTES_MAX - 1000)
    group = make_group(_run(make_message, 0, RUN, attributes=attributes, payload=payload))
    rows = group.rows(0, messages_max=1, bytes_max=1 << 30)
    message = StreamMessage.FromString(rows[0][1])
    assert _shape(rows) == [(0, 1, False)]
    assert (message.payload, dict(message.attributes)) == (payload, dict(attributes))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"publish_time": -1}, "before 1970"),
        ({"schema_version": 1 << 32}, "a schema version is none"),
        ({"schema_version": -1}, "a schema version is none"),
        ({"attributes": [("x-ttl", "soon")]}, "x-ttl is not a number"),
        ({"attributes": [("x-ttl", "9999999999999999999")]}, "x-ttl is not a number"),
        ({"attributes": [("a", None)]}, "value of an attribute is missing"),
        ({"payload": None}, "column payload is missing"),
        ({"offset": 5}, "offsets are not 0 to 1"),
    ],
)
def test_values_no_writer_writes_are_refused(
    make_group: MakeGroup, make_message: Make, fields: dict[str, Any], why: str
) -> None:
    with pytest.raises(DamagedSegmentError, match=why):
        make_group([make_message(0), make_message(1) | fields])


def test_rows_are_ready_where_they_were_prepared(make_batch: Any, make_message: Make) -> None:
    rows_then_batch = make_batch(
        [*_run(make_message, 0, 30, request_id=1, payload=b"alike"), *_run(make_message, 30, RUN)]
    )
    columns, group = (RowGroup(rows_then_batch, 0, TOPIC, for_rows=for_rows) for for_rows in (False, True))
    whole = columns.rows(0, **WHOLE)
    few = {"messages_max": 10, "bytes_max": 4 * len(whole[0][1])}
    assert columns.ready_rows(0, **few) == []
    assert group.ready_rows(0, **few) == group.rows(0, **few) == whole[:4]
    assert group.ready_rows(8, messages_max=3, bytes_max=0) == whole[8:9]
    assert group.ready_rows(20, **WHOLE) == whole[20:30], "up to where a batch begins"
    assert group.ready_rows(8, **few, merged_max=RUN) == [], "who takes merged batches gets them"
    assert group.ready_rows(30, **few) == [], "a batch is made in a thread"
    assert RowGroup(rows_then_batch.slice(30), 30, TOPIC, for_rows=True).memory_bytes == (
        RowGroup(rows_then_batch.slice(30), 30, TOPIC).memory_bytes
    ), "nothing is prepared for batches"


def test_much_at_once_is_not_ready(make_batch: Any, make_message: Make) -> None:
    large = make_batch(_run(make_message, 0, 3, request_id=1, payload=bytes(READY_BYTES_MAX // 2)))
    group = RowGroup(large, 0, TOPIC, for_rows=True)
    assert len(group.ready_rows(0, messages_max=1, bytes_max=0)) == 1
    assert group.ready_rows(0, messages_max=3, bytes_max=2 * READY_BYTES_MAX) == []
    assert len(group.rows(0, messages_max=3, bytes_max=2 * READY_BYTES_MAX)) == 3


@pytest.mark.parametrize("for_rows", [False, True])
def test_what_a_column_repeats_takes_no_memory_again(
    make_batch: Any, make_message: Make, for_rows: bool
) -> None:
    """As rows all of these would be 3 GB, more than a column can have."""
    names = ["a" * (1 << 20), "b" * (1 << 20)]
    two = make_batch([make_message(number, request_id=1, producer_name=names[number]) for number in (0, 1)])
    batch = two.take([0, 1] * 1500)
    group = RowGroup(
        batch.set_column(0, batch.schema.field(0), list(range(3000))), 0, TOPIC, for_rows=for_rows
    )
    rows = group.rows(1000, messages_max=1000, bytes_max=3 << 20)
    assert [StreamMessage.FromString(row[1]).producer_name[0] for row in rows] == ["a", "b"]
    assert group.memory_bytes < 8 << 20


def test_a_row_that_says_it_has_no_delay_is_not_merged(make_group: MakeGroup, make_message: Make) -> None:
    said = [("x-deliver-at", "0")]
    messages = _run(make_message, 0, 2 * RUN + 1, request_id=1)
    messages[RUN] |= {"attributes": said}
    rows = make_group(messages).rows(0, **WHOLE, merged_max=1000)
    assert _shape(rows) == [(0, RUN, True), (RUN, 1, False), (RUN + 1, RUN, True)]
    assert dict(StreamMessage.FromString(rows[1][1]).attributes) == dict(said)
