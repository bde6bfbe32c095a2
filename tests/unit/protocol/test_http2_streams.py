"""The HTTP/2 core: states, windows, answers. h2spec covers the rules one by one; here are the ones that are ours."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.protocol.grpc import Call
from pydanube.protocol.http2 import Cancelled, Event, Http2Limits
from pydanube.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTING_INITIAL_WINDOW_SIZE,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    frame,
)

NewClient = Callable[..., Any]
MIB = 1024 * 1024


def message(body: bytes) -> bytes:
    return len(body).to_bytes(5, "big") + body


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def initial_window(size: int) -> bytes:
    return SETTING_INITIAL_WINDOW_SIZE.to_bytes(2, "big") + size.to_bytes(4, "big")


def bodies(events: list[Event]) -> list[tuple[int, bytes]]:
    return [(event.stream_id, event.body) for event in events if isinstance(event, Call)]


# --- requests


def test_the_server_greets_with_its_settings_and_a_wide_window(client) -> None:
    settings, window, ack = client.greeting
    assert settings.kind == SETTINGS
    assert (window.kind, window.stream_id) == (WINDOW_UPDATE, 0)
    assert (ack.kind, ack.flags) == (SETTINGS, ACK)


def test_a_whole_request_is_one_call(client) -> None:
    (event,) = client.call(1, b"hello")
    assert isinstance(event, Call)
    assert (event.stream_id, event.path, event.body) == (1, "/test.Echo/Unary", b"hello")
    assert event.headers.get("te") == "trailers"
    assert event.headers.get("authorization") is None


def test_a_body_in_many_frames_arrives_whole(client) -> None:
    body = bytes(range(256)) * 40
    client.open(1)
    whole = message(body)
    events = []
    for at in range(0, len(whole), 1000):
        events += client.data(1, whole[at : at + 1000], ends=at + 1000 >= len(whole))
    assert bodies(events) == [(1, body)]


def test_an_empty_last_frame_ends_the_request(client) -> None:
    client.open(1)
    assert client.data(1, message(b"x")) == []
    assert bodies(client.data(1, b"", ends=True)) == [(1, b"x")]


def test_trailers_end_the_request(client) -> None:
    client.open(1)
    client.data(1, message(b"x"))
    block = client.block(("x-checksum", "1"))
    assert bodies(client.deliver(frame(HEADERS, END_HEADERS | END_STREAM, 1, block))) == [(1, b"x")]


def test_padding_is_not_content_but_counts_in_the_window(client) -> None:
    client.open(1)
    payload = b"\x04" + message(b"x") + bytes(4)
    assert bodies(client.deliver(frame(DATA, PADDED | END_STREAM, 1, payload))) == [(1, b"x")]


def test_a_header_block_may_come_in_pieces(client) -> None:
    block = client.block()
    client.deliver(frame(HEADERS, 0, 1, block[:3]))
    client.deliver(frame(CONTINUATION, 0, 1, block[3:7]))
    client.deliver(frame(CONTINUATION, END_HEADERS, 1, block[7:]))
    assert bodies(client.data(1, message(b"x"), ends=True)) == [(1, b"x")]


def test_equal_header_blocks_share_their_headers(client) -> None:
    client.call(1)
    headers = [client.call(stream_id)[0].headers for stream_id in (3, 5, 7)]
    assert headers[1] is headers[0]
    assert headers[2] is headers[0]


def test_a_changed_table_changes_the_meaning_of_equal_blocks(client) -> None:
    """The same bytes refer to another table entry after an insertion: the cache must not answer."""
    fixed = b"\x83\x86\x04\x02/p\x00\x0ccontent-type\x10application/grpc"
    insert_first = b"\x40\x05x-key\x05first"
    insert_second = b"\x40\x05x-key\x06second"

    def key_of(stream_id: int, block: bytes) -> str | None:
        events = client.deliver(frame(HEADERS, END_HEADERS, stream_id, block))
        events += client.data(stream_id, message(b""), ends=True)
        return events[0].headers.get("x-key")

    assert key_of(1, fixed + insert_first) == "first"
    assert key_of(3, fixed + b"\xbe") == "first"
    assert key_of(5, fixed + b"\xbe") == "first"
    assert key_of(7, fixed + insert_second) == "second"
    assert key_of(9, fixed + b"\xbe") == "second"


@given(data=st.data())
def test_the_same_bytes_cut_anywhere_give_the_same_events(new_client: NewClient, data: st.DataObject) -> None:
    def conversation() -> bytes:
        client = new_client()
        block = client.block()
        stream = b"".join(
            [
                frame(HEADERS, END_HEADERS, 1, block),
                frame(DATA, END_STREAM, 1, message(b"one")),
                frame(HEADERS, 0, 3, block[:2]),
                frame(CONTINUATION, END_HEADERS, 3, block[2:]),
                frame(PING, 0, 0, b"12345678"),
                frame(DATA, 0, 3, message(b"two" * 50)[:20]),
                frame(SETTINGS, 0, 0, initial_window(100_000)),
                frame(DATA, END_STREAM, 3, message(b"two" * 50)[20:]),
                window_update(0, 1000),
                frame(HEADERS, END_HEADERS, 5, client.block()),
                frame(RST_STREAM, 0, 1, bytes(4)),
                frame(DATA, END_STREAM | PADDED, 5, b"\x02" + message(b"three") + b"\x00\x00"),
                frame(0x77, 0, 0, b"unknown"),
                frame(DATA, 0, 9, b"an error ends it"),
                frame(PING, 0, 0, b"unheard "),
            ]
        )
        return PREFACE + frame(SETTINGS, 0, 0, b"") + stream

    def outcome(pieces: list[bytes]) -> tuple[list[tuple[object, ...]], bytes]:
        server = type(new_client().server)(Http2Limits())
        seen: list[tuple[object, ...]] = []
        for piece in pieces:
            for event in server.receive(piece, 1.0):
                kind = type(event).__name__
                seen.append((kind, event.stream_id, event.body if isinstance(event, Call) else b""))
        return seen, server.data_to_send()

    whole = conversation()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert outcome(pieces) == outcome([whole])
    assert outcome([whole[at : at + 1] for at in range(len(whole))]) == outcome([whole])


# --- responses


def test_a_unary_reply_is_headers_data_trailers(client) -> None:
    client.call(1)
    client.server.reply(1, b"answer")
    headers, data, trailers = client.frames()
    assert (headers.kind, headers.flags) == (HEADERS, END_HEADERS)
    assert (data.kind, data.flags, data.payload) == (DATA, 0, message(b"answer"))
    assert (trailers.kind, trailers.flags) == (HEADERS, END_HEADERS | END_STREAM)
    assert dict(client.decoder.decode(headers.payload))[":status"] == "200"
    assert client.decoder.decode(trailers.payload) == [("grpc-status", "0")]
    assert client.server.open_streams == 0


def test_a_reply_larger_than_a_frame_is_cut(client) -> None:
    client.call(1)
    client.server.reply(1, bytes(40_000))
    sent = [f for f in client.frames() if f.kind == DATA]
    assert [len(f.payload) for f in sent] == [16384, 16384, 40_005 - 2 * 16384]


def test_messages_share_a_frame(client) -> None:
    client.call(1)
    client.server.start(1)
    for number in range(10):
        client.server.send(1, b"%d" % number, b"suffix")
    _, data = client.frames()
    assert data.payload == b"".join(message(b"%dsuffix" % number) for number in range(10))


def test_nothing_is_sent_beyond_the_stream_window(new_client: NewClient) -> None:
    client = new_client(settings=initial_window(10))
    client.call(1)
    client.server.reply(1, b"0123456789")
    assert [f.payload for f in client.frames() if f.kind == DATA] == [message(b"0123456789")[:10]]
    assert client.server.queued(1) == 1
    client.deliver(window_update(1, 2))
    assert [f.payload for f in client.frames()] == [b"56"]
    client.deliver(frame(SETTINGS, 0, 0, initial_window(1000)))
    ack, data, trailers = client.frames()
    assert (ack.kind, data.payload, trailers.flags) == (SETTINGS, b"789", END_HEADERS | END_STREAM)


def test_a_window_made_smaller_is_waited_out(new_client: NewClient) -> None:
    client = new_client(settings=initial_window(8))
    client.call(1)
    client.server.reply(1, b"0123456789")
    client.frames()
    client.deliver(frame(SETTINGS, 0, 0, initial_window(0)))
    client.deliver(window_update(1, 8))
    assert [f.kind for f in client.frames()] == [SETTINGS]
    client.deliver(window_update(1, 7))
    assert client.response(1)[1] == b"3456789"


def test_streams_share_the_connection_window(new_client: NewClient) -> None:
    client = new_client(settings=initial_window(MIB))
    for stream_id in (1, 3, 5):
        client.call(stream_id)
        client.server.start(stream_id)
        client.server.send(stream_id, bytes(100_000))
    sent = [f for f in client.frames() if f.kind == DATA]
    assert sum(len(f.payload) for f in sent) == 65_535
    assert {f.stream_id for f in sent} == {1, 3, 5}
    client.deliver(window_update(0, MIB))
    assert sum(len(f.payload) for f in client.frames()) == 3 * 100_005 - 65_535


def test_room_ends_at_the_message_limit_and_comes_back(new_client: NewClient) -> None:
    client = new_client(Http2Limits(stream_messages_max=4), settings=initial_window(20))
    client.call(1)
    client.server.start(1)
    for _ in range(4):
        assert client.server.room(1) > 0
        client.server.send(1, b"12345")
    assert client.server.room(1) == 0
    client.frames()
    assert client.server.take_drained() == []
    client.deliver(window_update(1, 1000))
    client.frames()
    assert client.server.take_drained() == [1]
    assert client.server.take_drained() == []
    assert client.server.room(1) == 4


def test_there_is_no_room_while_the_peer_does_not_read(client) -> None:
    client.call(1)
    client.server.start(1)
    client.frames()
    client.server.pause()
    assert client.server.room(1) == 0
    client.server.resume()
    assert client.server.take_drained() == [1]
    assert client.server.room(1) > 0


def test_no_room_for_the_connection_is_no_room_for_its_streams(new_client: NewClient) -> None:
    client = new_client(Http2Limits(connection_queue_bytes_max=1000), settings=initial_window(0))
    for stream_id in (1, 3):
        client.call(stream_id)
        client.server.start(stream_id)
    client.server.send(1, bytes(2000))
    assert client.server.room(3) == 0
    client.deliver(window_update(1, 3000))
    client.frames()
    assert client.server.take_drained() == [3]


def test_a_reply_while_paused_waits_in_its_stream(client) -> None:
    client.call(1)
    client.server.pause()
    client.server.reply(1, b"later")
    assert client.server.open_streams == 1
    client.server.resume()
    assert client.response(1)[1] == message(b"later")


# --- ends


def test_a_reset_of_a_call_is_a_cancellation(client) -> None:
    client.call(1)
    (event,) = client.deliver(frame(RST_STREAM, 0, 1, (8).to_bytes(4, "big")))
    assert isinstance(event, Cancelled)
    assert event.stream_id == 1
    client.server.reply(1, b"nobody hears this")
    client.server.send(1, b"nor this")
    client.server.finish(1)
    assert client.frames() == []


def test_a_reset_before_the_request_was_complete_is_nobodys_business(client) -> None:
    client.open(1)
    assert client.deliver(frame(RST_STREAM, 0, 1, bytes(4))) == []


def test_a_stream_error_of_a_running_call_cancels_it(client) -> None:
    client.call(1)
    (event,) = client.data(1, b"after the end")
    assert isinstance(event, Cancelled)
    assert client.resets() == [(1, STREAM_CLOSED)]


def test_the_rest_of_a_refused_upload_is_ignored(client) -> None:
    client.open(1)
    client.data(1, (5 * MIB).to_bytes(5, "big") + bytes(100))
    fields, _ = client.response(1)
    assert fields["grpc-status"] == "11"
    assert client.data(1, bytes(16_000)) == []
    assert client.data(1, bytes(16_000), ends=True) == []
    assert client.frames() == []
    assert bodies(client.call(3, b"next")) == [(3, b"next")]


def test_an_early_answer_stops_the_upload_without_an_error(client) -> None:
    client.open(1)
    client.data(1, (5 * MIB).to_bytes(5, "big"))
    assert client.resets() == [(1, NO_ERROR)]


def test_shutdown_serves_what_is_on_its_way_then_closes(client) -> None:
    client.call(1)
    client.server.shutdown()
    goaway, ping = client.frames()
    assert (goaway.kind, goaway.payload[:8]) == (GOAWAY, b"\x7f\xff\xff\xff" + bytes(4))
    assert bodies(client.call(3, b"was on its way")) == [(3, b"was on its way")]
    client.deliver(frame(PING, ACK, 0, ping.payload))
    (last,) = client.frames()
    assert (last.kind, last.payload[:8]) == (GOAWAY, (3).to_bytes(4, "big") + bytes(4))
    assert client.call(5) == []
    assert client.resets() == [(5, REFUSED_STREAM)]
    client.server.reply(1, b"")
    assert not client.server.closing
    client.server.reply(3, b"")
    assert client.server.closing


def test_an_idle_connection_closes_one_round_trip_after_shutdown(client) -> None:
    client.server.shutdown()
    _, ping = client.frames()
    assert not client.server.closing
    client.deliver(frame(PING, ACK, 0, ping.payload))
    assert client.server.closing


def test_nothing_is_read_after_a_connection_error(client) -> None:
    client.deliver(frame(DATA, 0, 1, b"on an idle stream"))
    assert client.server.closing
    assert client.goaway() == PROTOCOL_ERROR
    assert client.call(1) == []


def test_a_wrong_preface_is_a_protocol_error(new_client: NewClient) -> None:
    server = type(new_client().server)(Http2Limits())
    server.receive(b"GET / HTTP/1.1\r\n", 0.0)
    assert server.closing


# --- windows of request bodies


def test_a_body_beyond_the_stream_window_is_a_flow_control_error(new_client: NewClient) -> None:
    client = new_client(Http2Limits(stream_window_bytes=100))
    client.open(1)
    client.data(1, b"\x00\x00\x00\x40\x00" + bytes(96))
    assert (1, FLOW_CONTROL_ERROR) in client.resets()


def test_a_large_body_is_given_the_window_it_needs(client) -> None:
    client.open(1)
    client.data(1, message(bytes(MIB))[:1000])
    (update,) = [f for f in client.frames() if f.kind == WINDOW_UPDATE]
    assert update.stream_id == 1
    assert int.from_bytes(update.payload, "big") == MIB + 5 - 64 * 1024


def test_large_bodies_are_let_in_one_after_the_other(new_client: NewClient) -> None:
    limits = Http2Limits(reserved_bytes_max=2 * MIB, stream_window_bytes=65_536)
    client = new_client(limits)
    whole = message(bytes(MIB + 100_000))
    for stream_id in (1, 3, 5):
        client.open(stream_id)
        client.data(stream_id, whole[:1000])
    assert [f.stream_id for f in client.frames() if f.kind == WINDOW_UPDATE] == [1]
    client.deliver(frame(RST_STREAM, 0, 1, bytes(4)))
    assert [f.stream_id for f in client.frames() if f.kind == WINDOW_UPDATE] == [3]
    at = 1000
    events = []
    while at < len(whole):
        events += client.data(3, whole[at : at + 16_384], ends=at + 16_384 >= len(whole))
        at += 16_384
    assert [stream_id for stream_id, _ in bodies(events)] == [3]
    assert [f.stream_id for f in client.frames() if f.kind == WINDOW_UPDATE] == [5]


def test_a_body_that_gives_up_waiting_leaves_the_line(new_client: NewClient) -> None:
    client = new_client(Http2Limits(reserved_bytes_max=MIB))
    for stream_id in (1, 3, 5):
        client.open(stream_id)
        client.data(stream_id, message(bytes(MIB))[:1000])
    client.frames()
    client.deliver(frame(RST_STREAM, 0, 3, bytes(4)))
    assert client.frames() == []
    client.deliver(frame(RST_STREAM, 0, 1, bytes(4)))
    assert [f.stream_id for f in client.frames() if f.kind == WINDOW_UPDATE] == [5]


def test_the_window_comes_back_as_requests_are_handed_over(new_client: NewClient) -> None:
    client = new_client(Http2Limits(connection_window_bytes=100_000))
    returned = 0
    for number in range(50):
        assert bodies(client.call(1 + 2 * number, bytes(9_995))) != []
        client.server.reply(1 + 2 * number, b"")
        returned += sum(int.from_bytes(f.payload, "big") for f in client.frames() if f.kind == WINDOW_UPDATE)
    assert returned >= 50 * 10_000 - 100_000


@pytest.mark.parametrize("late", [1, 3])
def test_frames_on_streams_that_never_were_are_errors(client, late: int) -> None:
    client.call(5)
    client.open(late)
    assert client.goaway() == PROTOCOL_ERROR
