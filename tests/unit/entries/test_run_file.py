"""The bytes of a run."""

import pytest
from crc32c import crc32c

from pydanube.entries.entry import Kind, encode_header, iterate_entries
from pydanube.entries.run_file import (
    FOOTER_BYTES,
    HEADER_BYTES,
    INDEX_EVERY_BYTES,
    KNOWN_CRC_BYTES,
    DamagedRunError,
    belongs_to,
    check_header,
    decode_footer,
    decode_index,
    encode_run,
    run_id,
)


def entries(bodies, first=100):
    heads = [
        encode_header(Kind.ROW, body, 1, 7, first + number, 0, 0, 1000 + number, 1)
        for number, body in enumerate(bodies)
    ]
    return heads, bodies


def index_of(data):
    position, length, crc = decode_footer(data[-FOOTER_BYTES:], len(data))
    return decode_index(data[position : position + length], position, crc)


def check_all(data, descriptor):
    check_header(data, descriptor)
    return index_of(data)


def test_the_descriptor_describes_the_bytes():
    buffers, descriptor = encode_run(*entries([b"a", b"bb", b"ccc"]), created_ms=5_999)
    data = b"".join(buffers)
    assert (descriptor.start_offset, descriptor.end_offset, descriptor.next_offset) == (100, 102, 103)
    assert (descriptor.size, descriptor.entry_count, descriptor.topic_id) == (len(data), 3, 7)
    assert (descriptor.min_append_ms, descriptor.max_append_ms, descriptor.created_at) == (1000, 1002, 5)
    assert descriptor.checksum == f"{crc32c(data):08x}"
    assert descriptor.run_id == run_id(7, 100, 103)


def test_the_checksum_covers_large_bodies_without_reading_them_again():
    sizes = [KNOWN_CRC_BYTES, 3, KNOWN_CRC_BYTES - 1, KNOWN_CRC_BYTES + 1, KNOWN_CRC_BYTES * 9 + 5, 0, 40_000]
    large = bytes(KNOWN_CRC_BYTES)
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)] + [large, large]
    buffers, descriptor = encode_run(*entries(bodies), created_ms=0)
    assert descriptor.checksum == f"{crc32c(b''.join(buffers)):08x}"


def test_a_large_body_that_changed_after_its_header_was_made_does_not_fit_the_checksum():
    heads, bodies = entries([b"a", bytes(KNOWN_CRC_BYTES), b"c"])
    bodies[1] = bytes(KNOWN_CRC_BYTES - 1) + b"\1"
    buffers, descriptor = encode_run(heads, bodies, created_ms=0)
    assert descriptor.checksum != f"{crc32c(b''.join(buffers)):08x}"


def test_a_name_tells_whose_segment_it_is():
    assert belongs_to(run_id(7, 0, 10), 7)
    assert belongs_to(run_id(7, 0, 10) + ".tmp", 7)
    assert not belongs_to(run_id(7, 0, 10), 8)
    assert not belongs_to(run_id(0x17, 0, 10), 7)


def test_every_offset_is_inside_the_window_the_index_gives():
    bodies = [bytes(number * 37 % 5000) for number in range(300)]
    data = b"".join(encode_run(*entries(bodies), created_ms=0)[0])
    index = index_of(data)
    assert len(index.offsets) > 5
    for offset in range(100, 400):
        for wanted in (0, 1000, INDEX_EVERY_BYTES * 2):
            start, end = index.window(offset, wanted)
            offsets = [header.base_offset for _, header, _, _ in iterate_entries(data, start, end)]
            assert offset in offsets
            assert end - start <= max(wanted, INDEX_EVERY_BYTES + 5064) + INDEX_EVERY_BYTES


def test_a_window_for_everything_is_everything():
    bodies = [bytes(1000)] * 300
    data = b"".join(encode_run(*entries(bodies), created_ms=0)[0])
    start, end = index_of(data).window(100, 1 << 30)
    assert len(list(iterate_entries(data, start, end))) == 300


def test_header_footer_and_index_notice_every_changed_bit():
    buffers, descriptor = encode_run(*entries([b"a", b"b"]), created_ms=1)
    data = b"".join(buffers)
    index_at = check_all(data, descriptor).end
    for position in [*range(HEADER_BYTES), *range(index_at, len(data))]:
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(DamagedRunError):
            check_all(bytes(damaged), descriptor)


def test_another_segment_in_its_place_is_noticed():
    _, descriptor = encode_run(*entries([b"a", b"b"]), created_ms=1)
    other, _ = encode_run(*entries([b"a", b"b"], first=200), created_ms=1)
    with pytest.raises(DamagedRunError, match="another run"):
        check_header(b"".join(other), descriptor)
