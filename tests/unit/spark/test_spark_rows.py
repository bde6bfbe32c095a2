"""Stored and delivered messages as rows of Spark."""

import pyarrow as pa

from pydanube.protocol.native.arrow import DELIVERED_SCHEMA
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.source.rows import RowMaker, joined
from pydanube.spark.topics import TopicPart

PART = TopicPart("/default/t", 3, "/default/t-part-3")


def delivered(
    offset: int, attributes: dict[str, str] | None = None, publish_ms: int = 5
) -> dict[str, object]:
    return {
        "offset": offset,
        "publish_time": publish_ms,
        "append_time": 7,
        "producer_name": "p",
        "routing_key": None,
        "attributes": None if attributes is None else list(attributes.items()),
        "schema_id": (1 << 64) - 1,
        "schema_version": 2,
        "payload": b"x",
    }


def batch(*rows: dict[str, object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=DELIVERED_SCHEMA)


def test_all_columns_have_the_types_of_spark() -> None:
    rows = RowMaker(PART, MESSAGE_SCHEMA.names).rows(batch(delivered(1, {"a": "b"})))
    assert rows.schema.equals(MESSAGE_SCHEMA)
    [row] = rows.to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == ("/default/t", 3, 1)
    assert (row["schema_id"], row["attributes"], row["producer_name"]) == (-1, [("a", "b")], "p")


def test_removed_messages_are_left_out_also_when_attributes_are_not_asked_for() -> None:
    removed = {"x-danube-removed": "erased"}
    messages = batch(
        delivered(1), delivered(2, removed), delivered(3, {"a": "b"}), delivered(4, {"a": "b"} | removed)
    )
    for part in (messages, messages.slice(1, 3)):
        rows = RowMaker(PART, ["offset"]).rows(part)
        assert rows.column("offset").to_pylist() == [
            one for one in part.column("offset").to_pylist() if one % 2
        ]


def test_marks_are_not_looked_for_where_nothing_was_removed() -> None:
    make = RowMaker(PART, ["offset"], may_have_removed=False)
    assert make.stored_columns == ["offset"]
    assert make.rows(batch(delivered(1)).select(["offset"])).column("offset").to_pylist() == [1]
    assert RowMaker(PART, ["topic"], may_have_removed=False).stored_columns == ["offset"]


def test_a_time_beyond_what_spark_can_express_becomes_its_last() -> None:
    rows = RowMaker(PART, ["publish_time"]).rows(batch(delivered(1), delivered(2, publish_ms=(1 << 63) - 1)))
    assert rows.column("publish_time").view(pa.int64()).to_pylist() == [5_000, ((1 << 63) - 1) // 1000 * 1000]


def test_small_batches_are_joined() -> None:
    small = [RowMaker(PART, ["offset"]).rows(batch(delivered(number))) for number in range(100)]
    [whole] = joined(small)
    assert whole.column("offset").to_pylist() == list(range(100))
    assert list(joined([])) == []
