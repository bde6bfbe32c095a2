"""gRPC over the HTTP/2 core: one request message per call, one or many reply messages, a status.

events = connection.receive(data, now)     Call or Cancelled
connection.reply(stream_id, message)       a unary answer
connection.start / send / finish           a stream of answers
connection.fail(stream_id, status, text)   any other end
data = connection.data_to_send()
"""

from typing import Final

from librt.strings import read_i32_be

from pydanube.kernel.errors import Status
from pydanube.protocol.http2 import frames as h2
from pydanube.protocol.http2.connection import Event, Http2Connection
from pydanube.protocol.http2.headers import Headers
from pydanube.protocol.http2.hpack import encode_fields
from pydanube.protocol.http2.limits import Http2Limits
from pydanube.protocol.http2.stream import Stream

MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024
PREFIX_BYTES: Final = 5

_STATUS_TEXT_MAX: Final = 2048

_RESPONSE_BLOCK: Final = encode_fields([(b":status", b"200"), (b"content-type", b"application/grpc")])
_NO_COMPRESSION_BLOCK: Final = _RESPONSE_BLOCK + encode_fields([(b"grpc-accept-encoding", b"identity")])
_OK_BLOCK: Final = encode_fields([(b"grpc-status", b"0")])

# A unary reply is HEADERS, DATA, HEADERS. All but the stream id (three times), the length and the message is
# the same for every reply, so it is written as these pieces with the id between them.
_REPLY_HEADERS: Final = h2.frame_header(len(_RESPONSE_BLOCK), h2.HEADERS, h2.END_HEADERS, 0)[:5]
_REPLY_TRAILERS: Final = h2.frame_header(len(_OK_BLOCK), h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 0)[:5]


def _data_head(length: int) -> bytes:
    """What stands between the first two stream ids of a reply: the header block, length and type of DATA."""
    return _RESPONSE_BLOCK + (length + PREFIX_BYTES << 16).to_bytes(5, "big")


# Most replies are a few bytes long.
_SHORT_BYTES: Final = 64
_DATA_HEADS: Final = [_data_head(length) for length in range(_SHORT_BYTES)]
_PREFIXES: Final = [length.to_bytes(5, "big") for length in range(_SHORT_BYTES)]


class Call(Event):
    """A whole request message arrived."""

    def __init__(self, stream_id: int, path: str, headers: Headers, body: bytes) -> None:
        super().__init__(stream_id)
        self.path: Final = path
        self.headers: Final = headers
        self.body: Final = body


class GrpcServerConnection(Http2Connection):
    """The server side of one gRPC connection.

    Every method that names a stream is harmless when that stream is already gone: a client may cancel at
    any moment, and the service learns of it by `Cancelled`.
    """

    def __init__(self, limits: Http2Limits, *, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        super().__init__(limits)
        self._message_bytes_max = message_bytes_max

    # Replies

    def reply(self, stream_id: int, message: bytes) -> None:
        """Answer a unary call: headers, message and status in one go."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        length = len(message)
        if not stream.headers_sent and self._outbox.fits(stream, length + 5):
            wire_id = stream_id.to_bytes(4, "big")
            self._outbox.pieces += (
                _REPLY_HEADERS,
                wire_id,
                _DATA_HEADS[length] if length < _SHORT_BYTES else _data_head(length),
                wire_id,
                _PREFIXES[length] if length < _SHORT_BYTES else length.to_bytes(5, "big"),
                message,
                _REPLY_TRAILERS,
                wire_id,
                _OK_BLOCK,
            )
            if stream.remote_closed:
                self._forget(stream)
            else:
                self._outbox.ended.append(stream)
            return
        self.start(stream_id)
        self.send(stream_id, message)
        self.finish(stream_id)

    def start(self, stream_id: int) -> None:
        """Open a stream of answers: its headers go out with the next write."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.headers_sent:
            self._outbox.headers(stream, _RESPONSE_BLOCK, ends=False)

    def send(self, stream_id: int, message: bytes, suffix: bytes = b"") -> None:
        """Queue one message, the bytes of `message` followed by `suffix`, on a started stream."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.trailers is not None:
            return
        if self._outbox.queued_bytes > self.limits.connection_queue_bytes_max:
            self._reset(stream, h2.ENHANCE_YOUR_CALM)
            self._report_cancelled(stream)
            return
        if not stream.headers_sent:
            self.start(stream_id)
        length = len(message) + len(suffix)
        self._outbox.queue(stream, b"".join((length.to_bytes(5, "big"), message, suffix)))

    def finish(self, stream_id: int, status: int = 0, text: str = "") -> None:
        """End a call with a status, after everything queued for it."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if stream.trailers is not None:
            return
        block = _OK_BLOCK if status == 0 else _status_block(status, text)
        if not stream.headers_sent:
            # Trailers only: a client that waits for the headers sees the failure at once.
            block = _RESPONSE_BLOCK + block
        self._outbox.end(stream, block)
        self._settle_ended()

    def cut(self, stream_id: int) -> None:
        """Take back the queued messages of a stream of which no byte has been framed yet."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._outbox.cut(stream)

    def fail(self, stream_id: int, status: int, text: str) -> None:
        """End a call with an error status."""
        self.finish(stream_id, status, text)

    def queued(self, stream_id: int) -> int:
        """Messages of this stream not yet (completely) framed."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None or stream.queue is None else len(stream.queue)

    def room(self, stream_id: int) -> int:
        """How many more messages the stream should be given now; after a 0 `take_drained` tells of room again."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return 0
        room = 0
        if self._outbox.queued_bytes >= self.limits.connection_queue_bytes_max:
            self._starving = True
        elif not self._outbox.paused and stream.queue_bytes < self.limits.stream_queue_bytes_max:
            queued = 0 if stream.queue is None else len(stream.queue)
            room = self.limits.stream_messages_max - queued
        if room <= 0:
            stream.wants_drain = True
            return 0
        return room

    # Requests

    def _request_ended(self, stream: Stream) -> None:
        headers = stream.headers
        if headers.method != "POST" or headers.content_type != "application/grpc":
            refusal = _http_refusal(headers)
            if refusal:
                self._refuse_http(stream, refusal)
                return
        body = stream.body if stream.parts is None else bytes(stream.parts)
        stream.body = b""
        stream.parts = None
        length = len(body) - PREFIX_BYTES
        if length < 0 or body[0] or read_i32_be(body, 1) != length:
            self._refuse_body(stream, body)
            return
        stream.delivered = True
        self._events.append(Call(stream.id, headers.path, headers, body[PREFIX_BYTES:]))

    def _expected_body_bytes(self, stream: Stream) -> int:
        prefix = stream.body if stream.parts is None else bytes(stream.parts[:PREFIX_BYTES])
        if len(prefix) < PREFIX_BYTES:
            return -1
        return PREFIX_BYTES + int.from_bytes(prefix[1:PREFIX_BYTES], "big")

    def _body_too_large(self, stream: Stream) -> None:
        text = f"the request message is larger than {self._message_bytes_max} bytes"
        self.fail(stream.id, Status.OUT_OF_RANGE, text)

    def _request_refused(self, stream: Stream) -> None:
        text = "too many unfinished requests on this connection: send it again"
        self.fail(stream.id, Status.UNAVAILABLE, text)

    def _refuse_body(self, stream: Stream, body: bytes) -> None:
        if len(body) >= PREFIX_BYTES and body[0]:
            text = "compressed messages are not supported: send them plain"
            block = _NO_COMPRESSION_BLOCK + _status_block(Status.UNIMPLEMENTED, text)
        else:
            text = "the request is not exactly one length-prefixed message"
            block = _RESPONSE_BLOCK + _status_block(Status.INTERNAL, text)
        self._outbox.end(stream, block)

    def _refuse_http(self, stream: Stream, status: bytes) -> None:
        """Somebody who does not speak gRPC gets a plain HTTP answer."""
        fields = [(b":status", status), (b"content-type", b"text/plain")]
        if status == b"405":
            fields.append((b"allow", b"POST"))
        self._outbox.headers(stream, encode_fields(fields), ends=False)
        self._outbox.queue(stream, b"this port speaks gRPC\n")
        self._outbox.end(stream, b"")


def _http_refusal(headers: Headers) -> bytes:
    """The HTTP status for a request that is not gRPC, or nothing."""
    if headers.method != "POST":
        return b"405"
    kind = headers.content_type
    if kind == "application/grpc" or kind.startswith(("application/grpc+", "application/grpc;")):
        return b""
    return b"415"


def _status_block(status: int, text: str) -> bytes:
    fields = [(b"grpc-status", str(status).encode())]
    if text:
        fields.append((b"grpc-message", percent_encode(text)))
    return encode_fields(fields)


def percent_encode(text: str) -> bytes:
    """A status text as the grpc-message header holds it: printable ASCII but for %, the rest as %XX."""
    raw = text.encode("utf-8", "replace")[:_STATUS_TEXT_MAX]
    return b"".join([bytes([c]) if 0x20 <= c <= 0x7E and c != 0x25 else b"%%%02X" % c for c in raw])
