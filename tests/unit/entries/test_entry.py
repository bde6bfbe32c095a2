"""The bytes of an entry."""

import pytest

from pydanube.entries.entry import (
    HEADER_BYTES,
    DamagedEntryError,
    Kind,
    decode_header,
    decode_start_offset,
    encode_cursor,
    encode_header,
    encode_topic_state,
    iterate_entries,
)


def entry(body=b"body", kind=Kind.ROW):
    return encode_header(kind, body, 1, 7, 42, 5, 6, 1_700_000_000_000, 3) + body


def test_the_layout_is_fixed():
    data = entry()
    assert len(data) == HEADER_BYTES + 4
    assert data.hex(" ", 4) == (
        "44450101 00000000 04000000 01000000 07000000 00000000 2a000000 00000000 "
        "05000000 00000000 06000000 00000000 0068e5cf 8b010000 03000000 " + data[60:64].hex() + " 626f6479"
    )


def test_a_header_comes_back_as_it_went():
    header = decode_header(entry())
    assert (header.kind, header.length, header.messages, header.topic_id) == (Kind.ROW, 4, 1, 7)
    assert (header.base_offset, header.producer_id, header.sequence) == (42, 5, 6)
    assert (header.append_ms, header.epoch) == (1_700_000_000_000, 3)


def test_entries_follow_each_other():
    data = entry(b"a") + entry(b"") + entry(b"ccc")
    assert [body for _, _, _, body in iterate_entries(data, 0, len(data))] == [b"a", b"", b"ccc"]


def test_no_bit_changes_unnoticed():
    data = entry()
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(DamagedEntryError):
            list(iterate_entries(bytes(damaged), 0, len(damaged)))


def test_a_cut_entry_is_noticed_wherever_it_is_cut():
    data = entry()
    for size in range(1, len(data)):
        with pytest.raises(DamagedEntryError, match="cut short"):
            list(iterate_entries(data[:size], 0, size))


def test_state_entries_say_what_they_mean():
    state = encode_topic_state(7, 3, start_offset=10, next_offset=20)
    [(_, header, _, body)] = iterate_entries(state, 0, len(state))
    assert (header.kind, header.topic_id, header.base_offset, decode_start_offset(body)) == (
        Kind.TOPIC_STATE,
        7,
        20,
        10,
    )
    cursor = encode_cursor(7, 3, "Zürich", 15)
    [(_, header, _, body)] = iterate_entries(cursor, 0, len(cursor))
    assert (header.kind, header.base_offset, body.decode()) == (Kind.CURSOR, 15, "Zürich")
