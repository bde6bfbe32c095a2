"""The bytes of a group."""

import pytest

from pydanube.entries.blocks import BLOCK_BYTES
from pydanube.entries.disk import JOINED_BYTES_MAX
from pydanube.entries.entry import KNOWN_CRC_BYTES, Kind, encode_cursor, encode_header
from pydanube.log.group import (
    HEADER_BYTES,
    body_is_whole,
    bytes_on_disk,
    decode_group_header,
    encode_group,
)


def group(buffers, position=0, **changes):
    fields = {"journal_id": 77, "file_sequence": 3, "group_sequence": 9, "synced_group": 8} | changes
    parts, size = encode_group(buffers, count=len(buffers), position=position, **fields)
    data = b"".join(parts)
    assert len(data) == size
    return data


@pytest.mark.parametrize(
    "sizes", [[], [0], [1], [4032], [4033], [100, JOINED_BYTES_MAX + 1, 7], [40_000, 50_000]]
)
def test_a_group_fills_whole_blocks_and_holds_its_buffers(sizes):
    buffers = [b"%d" % number * size for number, size in enumerate(sizes)]
    data = group(buffers)
    assert len(data) % BLOCK_BYTES == 0
    header = decode_group_header(data, 0, 77)
    assert bytes_on_disk(header.length) == len(data)
    assert (header.file_sequence, header.group_sequence, header.synced_group) == (3, 9, 8)
    assert data[HEADER_BYTES : HEADER_BYTES + header.length] == b"".join(buffers)
    assert body_is_whole(data, 0, header)


def test_the_checksum_is_that_of_all_bytes_also_where_large_bodies_are_not_read_again():
    bodies = [b"a" * KNOWN_CRC_BYTES, b"small", b"b" * (KNOWN_CRC_BYTES + 77), b"c" * 40_000]
    buffers = [encode_cursor(1, 1, "billing", 5)] * 3000
    for number, body in enumerate(bodies):
        buffers += [encode_header(Kind.BATCH, body, 9, 1, number, 0, 0, 0, 1), body]
    data = group(buffers)
    assert body_is_whole(data, 0, decode_group_header(data, 0, 77))
    # A body that changed after its header was made must not pass for whole.
    buffers[-3] = b"x" + buffers[-3][1:]
    assert len(buffers[-3]) >= KNOWN_CRC_BYTES
    data = group(buffers)
    assert not body_is_whole(data, 0, decode_group_header(data, 0, 77))


def test_a_header_is_known_by_its_place_in_the_file():
    data = group([b"x"], position=2 * BLOCK_BYTES)
    assert decode_group_header(data, 0, 77) is None
    assert decode_group_header(data, 0, 77, data_at=2 * BLOCK_BYTES) is not None


def test_it_is_no_group_elsewhere_nor_in_another_journal():
    data = group([b"x"])
    assert decode_group_header(bytes(BLOCK_BYTES) + data, BLOCK_BYTES, 77) is None
    assert decode_group_header(data, 0, 78) is None
    assert decode_group_header(data, 0, None).journal_id == 77


def test_no_bit_of_the_header_changes_unnoticed():
    data = group([b"x"])
    for bit in range(HEADER_BYTES * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert decode_group_header(bytes(damaged), 0, 77) is None


def test_no_bit_of_the_body_changes_unnoticed():
    data = group([b"body"])
    header = decode_group_header(data, 0, 77)
    for bit in range(HEADER_BYTES * 8, (HEADER_BYTES + 4) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert not body_is_whole(bytes(damaged), 0, header)


def test_a_group_cut_short_is_not_whole():
    data = group([b"x" * 5000])
    assert decode_group_header(data[:63], 0, 77) is None
    assert not body_is_whole(data[:BLOCK_BYTES], 0, decode_group_header(data[:BLOCK_BYTES], 0, 77))
