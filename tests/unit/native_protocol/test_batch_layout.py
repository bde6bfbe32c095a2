"""The fixed part of a batch: what is accepted, what is refused, and where its parts are."""

import struct

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native.batch import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    BATCH_MESSAGES_MAX,
    HEAD_BYTES_MAX,
    SHARED_BYTES_MAX,
    encode_batch,
    is_batch,
    message_count,
    read_layout,
)
from pydanube.protocol.native.bodies import ITEM_HEADER_BYTES
from pydanube.protocol.native.frames import FRAME_BYTES_MAX
from pydanube.protocol.native.head import decode_head
from pydanube.protocol.native_pb2 import BatchHead


def header(
    *,
    zero: int = 0,
    version: int = 1,
    codec: int = 0,
    reserved: int = 0,
    count: int = 1,
    raw_bytes: int = 5,
    columns: int = 1,
    head_bytes: int = 4,
) -> bytes:
    return struct.pack("<BBBBIIHH", zero, version, codec, reserved, count, raw_bytes, columns, head_bytes)


def test_a_batch_is_read_as_it_was_put_together() -> None:
    body = encode_batch(b"the head", b"arrow", codec=2, count=3, raw_bytes=77, columns=5)
    layout = read_layout(body)
    assert (layout.codec, layout.count, layout.raw_bytes, layout.columns) == (2, 3, 77, 5)
    assert layout.head == b"the head"
    assert body[layout.arrow_at :] == b"arrow"


@pytest.mark.parametrize("name_bytes", range(9))
def test_the_arrow_part_lies_on_a_boundary_of_8_and_the_head_means_the_same(name_bytes: int) -> None:
    head = BatchHead(producer_id=1, producer_name="n" * name_bytes)
    layout = read_layout(
        encode_batch(head.SerializeToString(), b"arrow", codec=2, count=1, raw_bytes=7, columns=1)
    )
    assert layout.arrow_at % 8 == 0
    assert decode_head(layout) == head


def test_padding_makes_no_head_too_large() -> None:
    head = bytes(SHARED_BYTES_MAX // BATCH_MESSAGES_MAX - 1)
    body = encode_batch(head, b"arrow", codec=2, count=BATCH_MESSAGES_MAX, raw_bytes=7, columns=1)
    assert read_layout(body).head == head


def test_the_first_byte_tells_a_batch_from_a_row() -> None:
    assert is_batch(header())
    assert not is_batch(b"\x12\x00")
    assert not is_batch(b"")


def test_messages_are_counted_without_looking_further() -> None:
    assert message_count(header(count=70_000)) == 70_000
    assert message_count(b"\x12\x00\x00\x00\x09\x09\x09\x09") == 1
    assert message_count(b"") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"zero": 1},
        {"version": 0},
        {"version": 2},
        {"codec": 3},
        {"reserved": 1},
        {"count": 0},
        {"count": BATCH_MESSAGES_MAX + 1},
        {"raw_bytes": 4},
        {"raw_bytes": 6},
        {"raw_bytes": BATCH_BYTES_MAX + 1, "codec": 1},
        {"columns": 0},
        {"columns": 2},
        {"columns": 1025},
        {"head_bytes": 9},
        {"head_bytes": 65_535},
    ],
)
def test_a_wrong_field_is_refused(wrong: dict[str, int]) -> None:
    assert read_layout(header() + b"headarrow").count == 1
    with pytest.raises(Rejected) as refusal:
        read_layout(header(**wrong) + b"headarrow")
    assert refusal.value.code is ErrorCode.BATCH_INVALID


@pytest.mark.parametrize("length", range(BATCH_HEADER_BYTES + 5))
def test_a_batch_cut_short_is_refused(length: int) -> None:
    with pytest.raises(Rejected) as refusal:
        read_layout((header() + b"headarrow")[:length])
    assert refusal.value.code is ErrorCode.BATCH_INVALID


def test_compression_may_not_make_a_batch_larger_than_any_other() -> None:
    with pytest.raises(Rejected):
        read_layout(header(codec=1, head_bytes=0) + bytes(BATCH_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("count", "raw_bytes", "head_bytes"),
    [
        (BATCH_MESSAGES_MAX + 1, 5, 0),
        (1, BATCH_BYTES_MAX + 1, 0),
        (1, 5, HEAD_BYTES_MAX + 1),
        (BATCH_MESSAGES_MAX, 5, SHARED_BYTES_MAX // BATCH_MESSAGES_MAX + 1),
    ],
)
def test_beyond_a_limit_nothing_is_encoded(count: int, raw_bytes: int, head_bytes: int) -> None:
    with pytest.raises(Rejected) as refusal:
        encode_batch(bytes(head_bytes), b"arrow", codec=0, count=count, raw_bytes=raw_bytes, columns=1)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_the_largest_batch_fits_in_a_frame() -> None:
    largest = encode_batch(
        bytes(HEAD_BYTES_MAX),
        bytes(BATCH_BYTES_MAX),
        codec=0,
        count=1,
        raw_bytes=BATCH_BYTES_MAX,
        columns=1,
    )
    assert read_layout(largest).raw_bytes == BATCH_BYTES_MAX
    assert len(largest) + ITEM_HEADER_BYTES <= FRAME_BYTES_MAX
