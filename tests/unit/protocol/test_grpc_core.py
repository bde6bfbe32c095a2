"""gRPC on the core: what is a call, what is refused and how, what a response looks like."""

from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.protocol.grpc import MESSAGE_BYTES_MAX, Call, percent_encode
from pydanube.protocol.http2.frames import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_UPDATE, frame

POST = ((":method", "POST"), (":scheme", "http"), (":path", "/s/m"))


def message(body: bytes) -> bytes:
    return len(body).to_bytes(5, "big") + body


def request(client: Any, *fields: tuple[str, str], body: bytes = message(b"")) -> list[Any]:
    events = client.deliver(frame(HEADERS, END_HEADERS, 1, client.block(*fields)))
    return events + client.data(1, body, ends=True)


@pytest.mark.parametrize(
    "content_type", ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"]
)
def test_every_grpc_content_type_is_a_call(client: Any, content_type: str) -> None:
    (event,) = request(client, *POST, ("content-type", content_type))
    assert isinstance(event, Call)


@pytest.mark.parametrize("content_type", ["application/json", "application/grpc-web", "text/plain", ""])
def test_other_content_is_an_unsupported_media_type(client: Any, content_type: str) -> None:
    assert request(client, *POST, ("content-type", content_type)) == []
    fields, body = client.response(1)
    assert fields[":status"] == "415"
    assert b"gRPC" in body


def test_a_missing_content_type_is_an_unsupported_media_type(client: Any) -> None:
    assert request(client, *POST) == []
    assert client.response(1)[0][":status"] == "415"


@pytest.mark.parametrize("method", ["GET", "PUT", "post"])
def test_other_methods_are_not_allowed(client: Any, method: str) -> None:
    fields = (
        (":method", method),
        (":scheme", "http"),
        (":path", "/s/m"),
        ("content-type", "application/grpc"),
    )
    assert request(client, *fields) == []
    answer, _ = client.response(1)
    assert (answer[":status"], answer["allow"]) == ("405", "POST")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00\x00\x00", id="half a prefix"),
        pytest.param(message(b"abc")[:-1], id="too short"),
        pytest.param(message(b"abc") + b"d", id="too long"),
        pytest.param(message(b"a") + message(b"b"), id="two messages"),
    ],
)
def test_anything_but_one_message_is_internal(client: Any, body: bytes) -> None:
    client.open(1)
    assert client.data(1, body, ends=True) == []
    assert client.response(1)[0]["grpc-status"] == "13"


def test_a_call_without_any_data_is_internal(client: Any) -> None:
    assert client.open(1, ends=True) == []
    assert client.response(1)[0]["grpc-status"] == "13"


def test_a_compressed_message_is_unimplemented(client: Any) -> None:
    client.open(1)
    assert client.data(1, b"\x01" + message(b"abc")[1:], ends=True) == []
    fields, _ = client.response(1)
    assert (fields["grpc-status"], fields["grpc-accept-encoding"]) == ("12", "identity")


def test_a_message_too_large_is_refused_by_its_prefix(client: Any) -> None:
    """Five bytes are enough to know: nothing of the rest is kept, or even waited for."""
    client.open(1)
    client.data(1, (MESSAGE_BYTES_MAX + 1).to_bytes(5, "big"))
    fields, _ = client.response(1)
    assert (fields["grpc-status"], fields[":status"]) == ("11", "200")
    assert client.server.open_streams == 0


def test_a_prefix_that_lies_is_found_out(client: Any) -> None:
    """A short claim and a long body: more than the limit is never kept."""
    client.open(1)
    client.data(1, (10).to_bytes(5, "big") + bytes(16_000))
    for _ in range(4):
        client.data(1, bytes(16_000))
    assert client.server.open_streams == 0


def test_an_error_before_any_headers_is_trailers_only(client: Any) -> None:
    client.call(1)
    client.server.fail(1, 5, "no such topic")
    (only,) = client.frames()
    assert only.flags == END_HEADERS | END_STREAM
    fields = dict(client.decoder.decode(only.payload))
    assert fields == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-status": "5",
        "grpc-message": "no such topic",
    }


def test_an_error_after_the_headers_is_trailers(client: Any) -> None:
    client.call(1)
    client.server.start(1)
    client.server.fail(1, 14, "moved")
    _, last = client.frames()
    assert dict(client.decoder.decode(last.payload, raw=False)) == {
        "grpc-status": "14",
        "grpc-message": "moved",
    }


def test_the_status_comes_after_everything_sent(client: Any) -> None:
    client.call(1)
    client.server.start(1)
    for number in range(100):
        client.server.send(1, bytes([number]) * 1000)
    client.server.finish(1)
    client.server.finish(1, 13, "a second end changes nothing")
    client.server.send(1, b"nor does a late message")
    sent = client.frames()
    while sent[-1].kind == DATA:
        for stream_id in (0, 1):
            client.deliver(frame(8, 0, stream_id, (100_000).to_bytes(4, "big")))
        sent += client.frames()
    assert b"".join(f.payload for f in sent if f.kind == DATA) == b"".join(
        message(bytes([number]) * 1000) for number in range(100)
    )
    assert client.decoder.decode(sent[-1].payload)[-1] == ("grpc-status", "0")


def test_headers_of_a_stream_go_out_before_its_first_message(client: Any) -> None:
    client.call(1)
    client.server.start(1)
    (headers,) = client.frames()
    assert (headers.kind, headers.flags) == (HEADERS, END_HEADERS)


def test_a_stream_never_started_starts_with_its_first_message(client: Any) -> None:
    client.call(1)
    client.server.send(1, b"x")
    assert [f.kind for f in client.frames()] == [HEADERS, DATA]


@given(st.text(max_size=300))
def test_status_texts_survive_percent_encoding(text: str) -> None:
    encoded = percent_encode(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


def test_a_very_long_status_text_is_cut(client: Any) -> None:
    client.call(1)
    client.server.fail(1, 13, "ü" * 100_000)
    (only,) = client.frames()
    assert len(only.payload) < 16_384


def test_a_cut_stream_completes_what_it_began_and_takes_back_the_rest(client: Any) -> None:
    """A takeover sends the waiting messages elsewhere: they must not leave here as well."""
    client.call(1)
    client.server.start(1)
    messages = [bytes([n]) * 50_000 for n in range(10)]
    for body in messages:
        client.server.send(1, body)
    _, before = client.response(1)
    assert 50_005 < len(before) < 100_010, "the first is out, the second was begun"
    client.server.cut(1)
    client.server.finish(1)
    wide = (2**24).to_bytes(4, "big")
    client.deliver(frame(WINDOW_UPDATE, 0, 0, wide) + frame(WINDOW_UPDATE, 0, 1, wide))
    trailers, after = client.response(1)
    assert before + after == message(messages[0]) + message(messages[1])
    assert trailers["grpc-status"] == "0"
    assert client.server.open_streams == 0
