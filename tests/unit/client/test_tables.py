"""Tables of many kinds as messages."""

import pyarrow as pa
import pytest

from pydanube.client import Rejected
from pydanube.client.routing import partition_of_key
from pydanube.client.tables import by_partition, message_columns, pieces


def test_columns_are_taken_by_their_own_names_or_by_given_ones() -> None:
    table = pa.table({"schema_id": [1], "body": ["text"], "who": ["me"], "noise": [0.5]})
    columns = message_columns(table, payload="body", routing_key="who")
    assert columns.column_names == ["payload", "routing_key", "schema_id"]
    assert columns.schema.types == [pa.binary(), pa.utf8(), pa.uint64()]
    assert columns.to_pylist() == [{"payload": b"text", "routing_key": "me", "schema_id": 1}]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x"], pa.large_binary()),
        pa.array(["x"], pa.large_utf8()),
        pa.array(["x"], pa.string_view()),
        pa.array([b"x"], pa.binary_view()),
        pa.array(["x"]).dictionary_encode(),
    ],
)
def test_payloads_come_in_many_types(column: pa.Array) -> None:
    assert message_columns(pa.table({"payload": column})).to_pylist() == [{"payload": b"x"}]


class Stream:
    """Anything that speaks Arrow's C interface, as frames of pandas and polars do."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Frame:
    """A frame that only knows how to become an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow(self) -> pa.Table:
        return self._table


@pytest.mark.parametrize("kind", [Stream, Frame, lambda t: t.to_batches()[0], lambda t: t.to_reader()])
def test_tables_come_in_many_kinds(kind: object) -> None:
    table = pa.table({"payload": [b"a", b"b"]})
    assert message_columns(kind(table)).equals(table)  # type: ignore[operator]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(Rejected, match="a list is no table"):
        message_columns([1, 2])


def test_rows_find_their_partition_and_keep_their_order() -> None:
    keys = [None if n % 7 == 0 else f"k{n % 11}" for n in range(100)]
    table = message_columns(pa.table({"payload": [b"%d" % n for n in range(100)], "routing_key": keys}))
    found: list[bytes] = []
    for rows, number in by_partition(table, 4):
        for row in rows.to_pylist():
            key = row["routing_key"]
            assert number == (None if key is None else partition_of_key(key, 4))
        payloads = [int(row["payload"]) for row in rows.to_pylist()]
        assert payloads == sorted(payloads)
        found += rows.column("payload").to_pylist()
    assert sorted(found) == sorted(b"%d" % n for n in range(100))


def test_without_keys_any_partition_will_do() -> None:
    table = pa.table({"payload": [b"a"]})
    assert [number for _, number in by_partition(table, 4)] == [None]
    assert [number for _, number in by_partition(table, 1)] == [0]
    unkeyed = pa.table({"payload": [b"a"], "routing_key": pa.nulls(1, pa.utf8())})
    assert [number for _, number in by_partition(unkeyed, 4)] == [None]


def test_pieces_fit_and_are_the_whole() -> None:
    table = pa.table({"payload": [bytes([n % 256]) * n for n in range(1000)]})
    parts = list(pieces(table, 10_000))
    assert all(part.nbytes <= 10_000 or part.num_rows == 1 for part in parts)
    assert pa.Table.from_batches(parts).equals(table)
