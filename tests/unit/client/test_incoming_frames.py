"""What a broker sends is cut into frames the same way however it arrives, out of a buffer that stays small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client.incoming import (
    BUFFER_BYTES,
    KEPT_BYTES_MAX,
    LARGE_ITEM_BYTES,
    Delivery,
    IncomingFrames,
)
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import Item, encode_item_header
from pydanube.protocol.native.frames import FRAME_BYTES_MAX, Frame, encode_frame, frame_header

LENGTHS = st.sampled_from([0, 1, 15, 100, LARGE_ITEM_BYTES - 1, LARGE_ITEM_BYTES, 70_000, BUFFER_BYTES])


def deliver(items: list[Item], channel: int = 5) -> bytes:
    parts = [
        encode_item_header(item.base, item.append_ms, item.skip, item.messages, item.attempt, len(item.body))
        + item.body
        for item in items
    ]
    return encode_frame(frames.DELIVER, channel, 0, b"".join(parts))


def item_of(number: int, length: int) -> Item:
    return Item(number, 1_000 + number, number % 3, 1 + number, 1, bytes([number % 251]) * length)


def arrive(incoming: IncomingFrames, data: bytes) -> list[Frame | Delivery]:
    """Put the bytes where they are wanted, as far as there is room each time."""
    found: list[Frame | Delivery] = []
    while data:
        room = incoming.room()
        size = min(len(room), len(data))
        assert size > 0
        room[:size] = data[:size]
        data = data[size:]
        found += incoming.received(size)
    return found


def seen(found: list[Frame | Delivery]) -> list[object]:
    return [
        frame if isinstance(frame, Delivery) else (frame.kind, frame.channel, frame.request, frame.body)
        for frame in found
    ]


@given(st.lists(st.one_of(LENGTHS, st.lists(LENGTHS, min_size=1, max_size=4)), max_size=6), st.data())
def test_frames_come_out_as_they_were_sent_however_they_are_cut(
    plan: list[int | list[int]], data: st.DataObject
) -> None:
    sent = b""
    expected: list[object] = []
    for number, part in enumerate(plan):
        if isinstance(part, int):
            body = bytes([number]) * part
            sent += encode_frame(frames.PUBLISHED, 3, number, body)
            expected.append((frames.PUBLISHED, 3, number, body))
        else:
            items = [item_of(place, length) for place, length in enumerate(part)]
            sent += deliver(items)
            expected.append(Delivery(5, items))
    incoming = IncomingFrames()
    found: list[Frame | Delivery] = []
    while sent:
        size = data.draw(st.sampled_from([1, 7, 16, 33, 5_000, 100_000, 1_000_000]))
        found += arrive(incoming, sent[:size])
        sent = sent[size:]
    assert seen(found) == expected
    assert incoming.held_bytes == 0


def test_what_was_handed_out_does_not_change_when_more_comes() -> None:
    incoming = IncomingFrames()
    first = arrive(incoming, deliver([item_of(1, 50_000)]))
    arrive(incoming, deliver([item_of(2, 50_000)]))
    assert seen(first) == [Delivery(5, [item_of(1, 50_000)])]


def test_the_buffer_for_a_very_large_frame_is_given_up_behind_it() -> None:
    incoming = IncomingFrames()
    large = item_of(1, FRAME_BYTES_MAX - 32)
    assert seen(arrive(incoming, deliver([large]))) == [Delivery(5, [large])]
    assert len(incoming.room()) == BUFFER_BYTES
    middling = item_of(2, KEPT_BYTES_MAX // 2)
    arrive(incoming, deliver([middling]))
    assert len(incoming.room()) <= KEPT_BYTES_MAX


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(frame_header(frames.DELIVER, 1, 0, FRAME_BYTES_MAX + 1), id="too long"),
        pytest.param(bytes(16), id="type 0"),
        pytest.param(frame_header(frames.CLOSED + 1, 1, 0, 0), id="unknown type"),
        pytest.param(b"\0\0\0\0\x11\1\0\0" + bytes(8), id="flags"),
        pytest.param(encode_frame(frames.DELIVER, 1, 0, bytes(31)), id="item header cut short"),
        pytest.param(
            encode_frame(frames.DELIVER, 1, 0, encode_item_header(0, 0, 0, 1, 1, 5_000) + bytes(4_999)),
            id="item cut short",
        ),
        pytest.param(
            encode_frame(
                frames.DELIVER, 1, 0, encode_item_header(0, 0, 0, 1, 1, 5_000) + bytes(5_000) + bytes(31)
            ),
            id="second item header cut short",
        ),
    ],
)
def test_violations_are_refused(data: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        arrive(IncomingFrames(), data)
    assert caught.value.code is ErrorCode.PROTOCOL_VIOLATION
