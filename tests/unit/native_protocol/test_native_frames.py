"""Frames and their bodies: cut anywhere, and refused as soon as they are wrong."""

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import (
    RANGES_MAX,
    Item,
    decode_credit,
    decode_items,
    decode_published,
    decode_ranges,
    encode_item_header,
    encode_ranges,
)
from pydanube.protocol.native.frames import (
    PREFACE,
    FrameReader,
    encode_frame,
    frame_header,
    publish_header,
)


def assert_violation(reader: FrameReader, data: bytes) -> None:
    with pytest.raises(Rejected) as refusal:
        reader.receive(data)
    assert refusal.value.code is ErrorCode.PROTOCOL_VIOLATION


def test_the_preface_may_come_in_pieces() -> None:
    reader = FrameReader(100, preface=PREFACE)
    data = PREFACE + encode_frame(frames.PING, 0, 1, b"x")
    got = [frame for at in range(len(data)) for frame in reader.receive(data[at : at + 1])]
    assert [(frame.kind, frame.request, frame.body) for frame in got] == [(frames.PING, 1, b"x")]


@pytest.mark.parametrize("data", [b"PRI * HTTP/2.0", b"X", b"DANUBE\n\n"])
def test_another_beginning_is_refused_at_once(data: bytes) -> None:
    assert_violation(FrameReader(100, preface=PREFACE), data)


@pytest.mark.parametrize("at", [4, 5, 6, 7])
def test_an_unknown_type_or_a_reserved_field_is_refused(at: int) -> None:
    data = bytearray(encode_frame(frames.PING))
    data[at] = 99
    assert_violation(FrameReader(100), bytes(data))


def test_type_zero_is_refused() -> None:
    assert_violation(FrameReader(100), bytes(16))


def test_too_long_a_body_is_refused_by_its_header_alone() -> None:
    assert FrameReader(100).receive(frame_header(frames.DELIVER, 1, 0, 100)) == []
    assert_violation(FrameReader(100), frame_header(frames.DELIVER, 1, 0, 101))


def test_the_limit_may_be_raised_between_frames() -> None:
    reader = FrameReader(100)
    reader.receive(encode_frame(frames.PING))
    reader.body_bytes_max = 200
    assert len(reader.receive(encode_frame(frames.DELIVER, 1, 0, bytes(200)))) == 1


def test_a_publish_without_a_message_is_refused() -> None:
    assert_violation(FrameReader(100), encode_frame(frames.PUBLISH, 1, 1, bytes(8)))


def receive_into_room(reader: FrameReader, data: bytes) -> list[frames.Frame]:
    got: list[frames.Frame] = []
    while data:
        room = reader.room()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        got += reader.received(count)
        data = data[count:]
    return got


def test_the_rest_of_a_large_body_is_received_by_itself_and_nothing_behind_it() -> None:
    buffer = memoryview(bytearray(256 * 1024))
    reader = FrameReader(frames.FRAME_BYTES_MAX, buffer=buffer)
    assert len(reader.room()) == len(buffer)
    assert receive_into_room(reader, publish_header(1, 1, 1, 1_000_000) + b"begin") == []
    assert len(reader.room()) == 1_000_000 - 5
    assert [frame.body[:5] for frame in receive_into_room(reader, bytes(1_000_000 - 5))] == [b"begin"]


def test_behind_a_large_frame_little_more_than_a_header_is_read() -> None:
    reader = FrameReader(frames.FRAME_BYTES_MAX, buffer=memoryview(bytearray(256 * 1024)))
    receive_into_room(reader, publish_header(1, 1, 1, 1_000_000) + bytes(1_000_000))
    assert len(reader.room()) == frames.LOOK_AHEAD_BYTES
    receive_into_room(reader, encode_frame(frames.PING))
    assert len(reader.room()) == 256 * 1024


def test_readers_may_share_a_buffer() -> None:
    buffer = memoryview(bytearray(64))
    one, other = (FrameReader(frames.FRAME_BYTES_MAX, buffer=buffer) for _ in range(2))
    first, second = encode_frame(frames.PING, 0, 1, b"a" * 40), encode_frame(frames.PING, 0, 2, b"b" * 40)
    got = []
    for at in range(0, len(first), 10):
        got += receive_into_room(one, first[at : at + 10]) + receive_into_room(other, second[at : at + 10])
    assert [frame.body for frame in got] == [b"a" * 40, b"b" * 40]


@pytest.mark.parametrize(
    "decode",
    [
        lambda: decode_published(bytes(15)),
        lambda: decode_credit(bytes(11)),
        lambda: decode_credit(bytes(13)),
        lambda: decode_ranges(bytes(15)),
        lambda: decode_ranges(bytes(16 * (RANGES_MAX + 1))),
        lambda: decode_ranges(encode_ranges([(1, 2), (5, 4)])),
        lambda: decode_items(bytes(31)),
        lambda: decode_items(encode_item_header(0, 0, 0, 1, 1, 1)),
    ],
)
def test_a_malformed_body_is_refused(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(Rejected) as refusal:
        decode()
    assert refusal.value.code is ErrorCode.PROTOCOL_VIOLATION


def test_nothing_decodes_to_nothing() -> None:
    assert decode_items(b"") == []
    assert decode_ranges(b"") == []
    assert decode_published(b"") == []


def test_items_follow_each_other() -> None:
    body = encode_item_header(1, -5, 2, 3, 4, 2) + b"ab" + encode_item_header(9, 8, 0, 1, 1, 0)
    assert decode_items(body) == [Item(1, -5, 2, 3, 4, b"ab"), Item(9, 8, 0, 1, 1, b"")]
