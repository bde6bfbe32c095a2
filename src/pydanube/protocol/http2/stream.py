"""The state of one stream, from its HEADERS frame to the end of its response."""

from collections import deque

from pydanube.protocol.http2.headers import Headers


class Stream:
    """One request and its response.

    Most streams live for one read and one write, so all but four fields rest on class defaults.
    """

    # Request side
    remote_closed: bool = False  # the peer has sent END_STREAM
    delivered: bool = False  # the request was handed over: a later reset is a cancellation
    body: bytes = b""  # the first DATA frame's bytes, or the whole body once it is complete
    parts: bytearray | None = None  # the body as it grows past the first frame
    body_bytes: int = 0
    charged_bytes: int = 0  # connection window this stream holds
    expected_bytes: int = 0  # length of the body as far as its beginning tells
    reserved_bytes: int = 0
    waits_for_window: bool = False

    # Response side
    headers_sent: bool = False
    queue: deque[bytes] | None = None  # what the peer's windows did not yet admit
    queue_bytes: int = 0
    head_offset: int = 0  # bytes of queue[0] already sent
    trailers: bytes | None = None  # header block that ends the stream once the queue is empty; b"" = none
    ready: bool = False  # is in the outbox's line
    wants_drain: bool = False

    def __init__(
        self, stream_id: int, headers: Headers, started_at: float, receive_window: int, send_window: int
    ) -> None:
        self.id = stream_id
        self.headers = headers
        self.started_at = started_at
        self.receive_window = receive_window
        self.send_window = send_window

    def add_to_body(self, chunk: bytes) -> None:
        """Append the bytes of a DATA frame that is not the first."""
        # One growing buffer, not a list of pieces: a peer that sends single bytes must not make us keep
        # an object for each.
        if self.parts is None:
            self.parts = bytearray(self.body)
            self.body = b""
        self.parts += chunk
        self.body_bytes += len(chunk)
