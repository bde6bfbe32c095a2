"""Batches of nothing but payloads: the bytes are Arrow's, the large payloads are not copied."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native import arrow
from pydanube.protocol.native.batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, LZ4, read_layout
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.ipc_message import binary_column
from pydanube.protocol.native.payload_batch import (
    PIECE_BYTES,
    WHOLE_BYTES,
    decode_payload_batch,
    encode_payload_batch,
    is_payload_batch,
)
from pydanube.protocol.native_pb2 import BatchHead

HEAD = BatchHead(producer_id=7, producer_name="press", publish_time=1_700_000_000_000)
HEAD_BYTES = HEAD.SerializeToString()


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40))
def test_the_parts_are_what_arrow_writes(payloads: list[bytes]) -> None:
    assert b"".join(encode_payload_batch(payloads, HEAD_BYTES)) == arrow.encode_payloads(payloads, HEAD)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=40))
def test_what_arrow_writes_is_read(payloads: list[bytes]) -> None:
    body = arrow.encode_payloads(payloads, HEAD)
    assert decode_payload_batch(body, read_layout(body)) == payloads


def test_other_columns_and_compressed_ones_are_left_to_arrow() -> None:
    for body in (
        arrow.encode_payloads([b"x"], HEAD, routing_keys=["k"]),
        arrow.encode_payloads([b"x" * 1000], HEAD, codec=LZ4),
    ):
        assert not is_payload_batch(read_layout(body))


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ((-1, 2, 4, 6), "outside of their buffer"),
        ((0, 2, 4, 7), "outside of their buffer"),
        ((0, 9, 4, 6), "do not ascend"),
        ((0, 2, -4, 6), "do not ascend"),
        ((0, 2, 1 << 30, 6), "do not ascend"),
        ((6, 6, 6, 2), "do not ascend"),
    ],
)
def test_offsets_that_lie_are_refused(offsets: tuple[int, ...], why: str) -> None:
    body = bytearray(b"".join(encode_payload_batch([b"ab", b"cd", b"ef"], HEAD_BYTES)))
    layout = read_layout(bytes(body))
    struct.pack_into("<4i", body, binary_column(bytes(body), layout.arrow_at, 3).offsets_at, *offsets)
    with pytest.raises(Rejected, match=why) as refusal:
        decode_payload_batch(bytes(body), layout)
    assert refusal.value.code is ErrorCode.BATCH_INVALID


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES - 1, WHOLE_BYTES, PIECE_BYTES + 1])
@pytest.mark.parametrize("count", [1, 2, 1000, 1001])
def test_sizes_around_the_bounds_of_pieces_are_what_arrow_writes(size: int, count: int) -> None:
    count = min(count, BATCH_BYTES_MAX // (size + 8))
    payloads = [bytes([number % 256]) * size for number in range(count)]
    body = b"".join(encode_payload_batch(payloads, HEAD_BYTES))
    assert body == arrow.encode_payloads(payloads, HEAD)
    assert check_batch(body).payload_bytes == size * count


def test_one_large_payload_among_many_small_ones_is_where_it_belongs() -> None:
    payloads = [b"x", b"y" * (PIECE_BYTES * 3), b"", b"z"]
    body = b"".join(encode_payload_batch(payloads, HEAD_BYTES))
    assert arrow.decode_record_batch(body).column("payload").to_pylist() == payloads


def test_large_payloads_are_handed_on_as_they_are() -> None:
    payloads = [bytes(WHOLE_BYTES), bytes(2 * WHOLE_BYTES)]
    parts = encode_payload_batch(payloads, HEAD_BYTES)
    assert [id(part) for part in parts[1:3]] == [id(payload) for payload in payloads]


def test_small_payloads_come_in_few_parts() -> None:
    assert (
        len(encode_payload_batch([b"0123456789"] * 10_000, HEAD_BYTES)) <= 2 + 10_000 * 10 // PIECE_BYTES + 1
    )


@pytest.mark.parametrize(
    ("payloads", "code"),
    [
        ([], ErrorCode.BATCH_INVALID),
        ([bytes(BATCH_BYTES_MAX)], ErrorCode.MESSAGE_TOO_LARGE),
        ([bytes(BATCH_BYTES_MAX), b"x"], ErrorCode.MESSAGE_TOO_LARGE),
        ([b""] * (BATCH_MESSAGES_MAX + 1), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_no_batch_may_be_is_refused(payloads: list[bytes], code: ErrorCode) -> None:
    with pytest.raises(Rejected) as refusal:
        encode_payload_batch(payloads, HEAD_BYTES)
    assert refusal.value.code is code
