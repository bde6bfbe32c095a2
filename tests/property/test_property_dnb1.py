"""Any message, any chunking: the same messages come back; cut or damaged anywhere, the others still do."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.protocol.dnb1 import (
    DamagedFrame,
    FrameDecoder,
    Message,
    decode_message,
    encode_frame,
    encode_message,
)

U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=12)
TOPICS = st.text("abc-_", min_size=1, max_size=300).map(lambda name: f"/default/{name}")
MESSAGES = st.builds(
    Message,
    request_id=U64,
    producer_id=U64,
    topic_name=TOPICS,
    broker_addr=TEXT,
    topic_offset=st.just(0),
    payload=st.binary(max_size=300),
    publish_time=U64,
    producer_name=TEXT,
    subscription_name=st.none() | TEXT,
    attributes=st.lists(st.tuples(TEXT, TEXT), max_size=4).map(tuple),
    schema_id=st.none() | U64,
    schema_version=st.none() | st.integers(0, 2**32 - 1),
    routing_key=st.none() | TEXT,
)


def file_of(messages: list[Message]) -> tuple[bytes, list[Message], list[int]]:
    """The bytes of a file, its messages with their offsets in them, and where each frame begins."""
    stamped = [message._replace(topic_offset=offset) for offset, message in enumerate(messages)]
    data, starts = b"", []
    for message in stamped:
        starts.append(len(data))
        data += encode_frame(message.topic_offset, encode_message(message))
    return data, stamped, starts


def read_all(data: bytes, sizes: list[int]) -> list[Message]:
    """Every message that can be read from the file, received in pieces of these sizes, damage skipped."""
    decoder = FrameDecoder()
    found: list[Message] = []
    is_damaged = False
    at = 0
    while True:
        size = sizes[at % len(sizes)]
        at_end = not data
        decoder.receive(data[:size])
        data = data[size:]
        at += 1
        while True:
            if is_damaged and not decoder.skip_damage(at_end=at_end):
                break
            is_damaged = False
            try:
                frame = decoder.next_frame()
            except DamagedFrame:
                is_damaged = True
                continue
            if frame is None:
                is_damaged = at_end and decoder.held_bytes > 0
                if is_damaged:
                    continue
                break
            found.append(decode_message(frame.body))
        if at_end:
            return found


SIZES = st.lists(st.integers(1, 400), min_size=1, max_size=5)


@given(st.lists(MESSAGES, max_size=6), SIZES)
def test_messages_come_back_as_they_were(messages: list[Message], sizes: list[int]) -> None:
    data, stamped, _ = file_of(messages)
    assert read_all(data, sizes) == stamped


@given(st.lists(MESSAGES, min_size=1, max_size=6), SIZES, st.data())
def test_whole_frames_before_a_torn_tail_come_back(
    messages: list[Message], sizes: list[int], data: st.DataObject
) -> None:
    file, stamped, starts = file_of(messages)
    cut = data.draw(st.integers(0, len(file)))
    whole = sum(end <= cut for end in [*starts[1:], len(file)])
    assert read_all(file[:cut], sizes) == stamped[:whole]


@given(st.lists(MESSAGES, min_size=2, max_size=6), SIZES, st.data())
def test_damage_costs_only_the_frames_it_touches(
    messages: list[Message], sizes: list[int], data: st.DataObject
) -> None:
    file, stamped, starts = file_of(messages)
    hit = data.draw(st.integers(0, len(messages) - 1))
    # The offset is left alone: no checksum covers it.
    at = data.draw(st.integers(starts[hit] + 8, [*starts, len(file)][hit + 1] - 1))
    damaged = bytearray(file)
    damaged[at] ^= data.draw(st.integers(1, 255))

    assert read_all(bytes(damaged), sizes) == stamped[:hit] + stamped[hit + 1 :]
