"""What is left of a removed message in the columns of a segment, and how entries made of them are told."""

import numpy as np
import pyarrow as pa
import pytest

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.removed_messages import remove_messages, were_removed
from pydanube.history.segment_rows import RowGroup
from pydanube.protocol.native.removed import REMOVED_ATTRIBUTE, is_removed

COUNT = 60


def messages(*, as_rows: bool = False, payload: bytes = b"secret") -> pa.Table:
    rows = [
        {
            "offset": number,
            "publish_time": number,
            "append_time": 7,
            "producer_name": "alice's laptop",
            "routing_key": "alice",
            "attributes": [("user", "alice"), ("x-compaction-key", "alice")],
            "schema_id": 1,
            "schema_version": 2,
            "payload": payload,
            "producer_id": 9,
            "request_id": 5 if as_rows else None,
            "broker_addr": "b",
            "subscription_name": "s",
        }
        for number in range(COUNT)
    ]
    return pa.Table.from_pylist(rows, SEGMENT_SCHEMA)


def entries(table: pa.Table) -> list[tuple[int, bytes]]:
    (batch,) = table.combine_chunks().to_batches()
    rows = RowGroup(batch, 0, "/default/t").rows(0, messages_max=COUNT, bytes_max=1 << 20)
    return [(base, body) for base, body, _, _ in rows]


def test_offset_and_times_stay_and_nothing_else() -> None:
    chosen = np.arange(COUNT) % 2 == 0
    before = messages()
    after = remove_messages(before, chosen, "erased")
    assert after.schema == SEGMENT_SCHEMA
    for name in ("offset", "publish_time", "append_time"):
        assert after.column(name).equals(before.column(name))
    assert after.slice(1, 1).to_pylist() == before.slice(1, 1).to_pylist()
    first = after.slice(0, 1).to_pylist()[0]
    assert dict(first.pop("attributes")) == {REMOVED_ATTRIBUTE: "erased", "x-ttl": "1"}
    said = {
        name: value for name, value in first.items() if name not in ("offset", "publish_time", "append_time")
    }
    assert {value for value in said.values() if value not in (None, "", b"", 0)} == set()
    assert were_removed(after).tolist() == chosen.tolist()


def test_no_value_of_a_removed_message_stays_in_a_dictionary() -> None:
    after = remove_messages(messages(), np.ones(COUNT, bool), "erased")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SEGMENT_SCHEMA) as stream:
        stream.write_table(after)
    assert b"alice" not in sink.getvalue().to_pybytes()


@pytest.mark.parametrize("as_rows", [False, True])
def test_entries_hold_removed_messages_only_or_none(as_rows: bool) -> None:
    chosen = (np.arange(COUNT) >= 20) & (np.arange(COUNT) < 45)
    found = entries(remove_messages(messages(as_rows=as_rows), chosen, "compacted"))
    removed = [base for base, body in found if is_removed(body)]
    others = [base for base, body in found if not is_removed(body)]
    assert all(20 <= base < 45 for base in removed)
    assert all(not 20 <= base < 45 for base in others)
    assert removed


def test_a_message_that_speaks_of_removal_is_not_removed() -> None:
    for as_rows in (False, True):
        table = messages(as_rows=as_rows, payload=REMOVED_ATTRIBUTE.encode())
        assert not any(is_removed(body) for _, body in entries(table))
