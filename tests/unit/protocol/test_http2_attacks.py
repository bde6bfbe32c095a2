"""One test per known attack on HTTP/2 servers: each is answered, and memory stays within the limits."""

from collections.abc import Callable
from typing import Any

import pytest

from pydanube.protocol.grpc import Call
from pydanube.protocol.http2 import Http2Limits
from pydanube.protocol.http2.frames import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    HEADERS,
    NO_ERROR,
    PING,
    PRIORITY,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING_INITIAL_WINDOW_SIZE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

NewClient = Callable[..., Any]
MIB = 1024 * 1024
LIMITS = Http2Limits(
    resets_max=20,
    settings_max=20,
    pings_max=20,
    empty_frames_max=20,
    priorities_max=20,
    window_updates_max=20,
)


def message(body: bytes) -> bytes:
    return len(body).to_bytes(5, "big") + body


def test_rapid_reset(new_client: NewClient) -> None:
    """CVE-2023-44487: open and reset streams faster than any honest client."""
    client = new_client(LIMITS)
    for number in range(21):
        assert not client.server.closing
        client.open(1 + 2 * number)
        client.deliver(frame(RST_STREAM, 0, 1 + 2 * number, bytes(4)))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_made_you_reset(new_client: NewClient) -> None:
    """CVE-2025-8671: break a rule on each stream so that the server resets it."""
    client = new_client(LIMITS)
    for number in range(21):
        assert not client.server.closing
        client.call(1 + 2 * number)
        client.data(1 + 2 * number, b"after the end")
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_resets_spread_over_time_are_no_attack(new_client: NewClient) -> None:
    client = new_client(LIMITS)
    for number in range(100):
        client.now += 0.1
        client.open(1 + 2 * number)
        client.deliver(frame(RST_STREAM, 0, 1 + 2 * number, bytes(4)))
    assert not client.server.closing


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(frame(SETTINGS, 0, 0, b""), id="settings_flood"),
        pytest.param(frame(PING, 0, 0, bytes(8)), id="ping_flood"),
        pytest.param(frame(PRIORITY, 0, 1, bytes(5)), id="priority_flood"),
        pytest.param(frame(WINDOW_UPDATE, 0, 0, (1).to_bytes(4, "big")), id="window_update_flood"),
        pytest.param(frame(0x99, 0, 0, b""), id="unknown_frame_flood"),
        pytest.param(frame(DATA, 0, 1, b""), id="empty_data_flood"),
    ],
)
def test_floods(new_client: NewClient, flood: bytes) -> None:
    client = new_client(LIMITS)
    client.open(1)
    client.deliver(flood * 15)
    assert not client.server.closing
    client.now += 2
    client.deliver(flood * 15)
    assert not client.server.closing
    client.deliver(flood * 15)
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_window_updates_of_an_honest_reader_are_no_flood(new_client: NewClient) -> None:
    client = new_client(LIMITS)
    client.call(1)
    client.server.start(1)
    for _ in range(200):
        client.server.send(1, bytes(1000))
        client.frames()
        for stream_id in (0, 1):
            client.deliver(frame(WINDOW_UPDATE, 0, stream_id, (1005).to_bytes(4, "big")))
    assert not client.server.closing


def test_padding_only_data_flood(new_client: NewClient) -> None:
    """Frames of nothing but padding are empty frames too."""
    client = new_client(LIMITS)
    client.open(1)
    client.deliver(frame(DATA, 0x8, 1, b"\x00") * 21)
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_continuation_flood(client) -> None:
    """CVE-2024-27316 and its kin: a header block that never ends."""
    client.deliver(frame(HEADERS, 0, 1, b""))
    client.deliver(frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b") * 8)
    assert not client.server.closing
    client.deliver(frame(CONTINUATION, 0, 1, b""))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_large_continuations_stop_at_the_byte_limit(client) -> None:
    client.deliver(frame(HEADERS, 0, 1, bytes(16_384)))
    for _ in range(4):
        client.deliver(frame(CONTINUATION, 0, 1, bytes(16_384)))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_a_header_block_never_completed_is_given_up(client) -> None:
    client.deliver(frame(HEADERS, 0, 1, b"\x82"))
    client.now += 30
    client.deliver(b"")
    client.server.tick(client.now)
    assert not client.server.closing
    client.server.tick(client.now + 35)
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_header_bomb(client) -> None:
    """A small block that unpacks to a large list."""
    large = b"\x40\x01a\x7f\x81\x0f" + b"v" * (127 + 1 + 15 * 128)
    client.deliver(frame(HEADERS, END_HEADERS, 1, large + b"\xbe" * 10_000))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_too_many_header_fields(client) -> None:
    client.deliver(frame(HEADERS, END_HEADERS, 1, b"\x82" * 129))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_oversized_frame(client) -> None:
    """Refused by its header alone: nothing of it needs to arrive."""
    client.deliver((16_385).to_bytes(3, "big") + bytes([DATA, 0, 0, 0, 0, 1]))
    assert client.goaway() == FRAME_SIZE_ERROR


def test_more_streams_than_allowed_are_refused(new_client: NewClient) -> None:
    client = new_client(Http2Limits(concurrent_streams_max=3))
    for stream_id in (1, 3, 5, 7):
        client.open(stream_id)
    assert client.resets() == [(7, REFUSED_STREAM)]
    assert client.server.open_streams == 3


def test_ping_without_reading_the_answers(new_client: NewClient) -> None:
    """The transport is paused: every answer would stay in memory."""
    client = new_client(Http2Limits(control_bytes_max=1000))
    client.server.pause()
    for _ in range(200):
        client.deliver(frame(PING, 0, 0, bytes(8)))
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_failing_calls_without_reading_the_answers(new_client: NewClient) -> None:
    client = new_client(Http2Limits(control_bytes_max=1000))
    client.server.pause()
    for number in range(100):
        for event in client.call(1 + 2 * number):
            client.server.fail(event.stream_id, 5, "not found")
    assert client.goaway() == ENHANCE_YOUR_CALM


def test_window_stall(new_client: NewClient) -> None:
    """CVE-2019-9511, 9517: ask for much, open no window. What is queued is bounded; the rest is refused."""
    limits = Http2Limits(connection_queue_bytes_max=1_000_000)
    client = new_client(limits, settings=SETTING_INITIAL_WINDOW_SIZE.to_bytes(2, "big") + bytes(4))
    for number in range(100):
        client.call(1 + 2 * number)
        client.server.reply(1 + 2 * number, bytes(100_000))
    assert client.server.open_streams == 10
    assert len([code for _, code in client.resets() if code == ENHANCE_YOUR_CALM]) == 90


def test_hoarding_bodies_ends_at_the_connection_window(client) -> None:
    """A liar that ignores windows is cut off at 16 MiB, whatever it claims."""
    first = (100_000).to_bytes(5, "big") + bytes(16_379)
    for number in range(500):
        client.open(1 + 2 * number)
        for chunk in (first, bytes(16_384), bytes(16_384), bytes(16_384)):
            client.data(1 + 2 * number, chunk)
        held = sum(stream.body_bytes for stream in client.server._streams.values())
        assert held <= 16 * MIB
    assert client.server.open_streams < 300


def test_unfinished_bodies_that_fill_the_window_make_way(client) -> None:
    """Honest but unlucky: more unfinished bodies than the window holds. The newest are told to come again."""
    part = (60_000).to_bytes(5, "big") + bytes(16_379)
    stream_id = 1
    refused: list[int] = []
    for _ in range(1100):
        client.open(stream_id)
        client.data(stream_id, part)
        stream_id += 2
        for sent in client.frames():
            if sent.kind == HEADERS:
                assert dict(client.decoder.decode(sent.payload))["grpc-status"] == "14"
                refused.append(sent.stream_id)
    assert refused
    assert not client.server.closing
    assert min(refused) > 1
    rest = bytes(60_005 - 16_384)
    client.data(1, rest[:16_384])
    client.data(1, rest[16_384:32_768])
    (event,) = client.data(1, rest[32_768:], ends=True)
    assert isinstance(event, Call)


def test_single_byte_frames_cost_no_object_each(client) -> None:
    client.open(1)
    for byte in message(bytes(3000))[:-1]:
        client.data(1, bytes([byte]))
    (event,) = client.data(1, b"\x00", ends=True)
    assert event.body == bytes(3000)


def test_data_beyond_the_connection_window(new_client: NewClient) -> None:
    limits = Http2Limits(connection_window_bytes=65_535, stream_window_bytes=MIB, frame_bytes_max=100_000)
    client = new_client(limits)
    client.open(1)
    client.data(1, bytes(65_536))
    assert client.goaway() == FLOW_CONTROL_ERROR


def test_an_incomplete_request_is_ended(client) -> None:
    """Slow loris: a body that never ends."""
    client.open(1)
    client.data(1, b"\x00")
    client.now += 61
    client.deliver(frame(PING, 0, 0, bytes(8)))
    client.server.tick(client.now)
    assert client.resets() == [(1, CANCEL)]


def test_a_silent_peer_is_asked_then_given_up(client) -> None:
    client.server.tick(client.now)
    assert client.server.tick(client.now + 21) == []
    assert [f.kind for f in client.frames()] == [PING]
    client.server.tick(client.now + 30)
    assert client.frames() == []
    client.server.tick(client.now + 41)
    assert client.server.closing
    assert client.goaway() == NO_ERROR


def test_a_peer_that_answers_is_kept(client) -> None:
    for _ in range(10):
        client.now += 21
        client.server.tick(client.now)
        (ping,) = client.frames()
        client.deliver(frame(PING, 1, 0, ping.payload))
    assert not client.server.closing


def test_settings_that_overflow_a_window(client) -> None:
    client.call(1)
    client.deliver(frame(WINDOW_UPDATE, 0, 1, (2**31 - 1 - 65_535).to_bytes(4, "big")))
    client.deliver(
        frame(SETTINGS, 0, 0, SETTING_INITIAL_WINDOW_SIZE.to_bytes(2, "big") + (70_000).to_bytes(4, "big"))
    )
    assert client.goaway() == FLOW_CONTROL_ERROR


def test_a_block_cache_that_is_never_hit_stays_small(client) -> None:
    """Every request with another literal: the memory of blocks is bounded by bytes."""
    fixed = b"\x83\x86\x04\x02/p\x00\x0ccontent-type\x10application/grpc"
    for number in range(2000):
        block = fixed + b"\x00\x01k\x70" + b"%0112d" % number
        client.deliver(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, block))
        client.server.data_to_send()
    known = client.server._headers.known
    assert sum(len(block) for block in known) <= Http2Limits().cached_block_bytes_max
