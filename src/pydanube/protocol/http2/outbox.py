"""What goes to the peer: control frames at once, response data as the peer's windows allow."""

from collections import deque
from typing import Final

from pydanube.protocol.http2.frames import (
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    WINDOW_MAX,
    GoAwayError,
    StreamResetError,
    frame,
    frame_header,
)
from pydanube.protocol.http2.stream import Stream

# One pump writes at most this much, so that a fast reader's stream cannot occupy the loop.
_PUMP_BYTES_MAX: Final = 1024 * 1024


class Outbox:
    """Frames waiting to be written, and the streams that have more to say.

    `pieces` is the output in order. Streams with queued data stand in line; each turn sends one DATA frame,
    so streams share the connection window evenly.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.control_bytes = 0  # what the peer made us write since it last took something
        self.paused = False  # the peer does not read: response data stays in the queues
        self.send_window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.frame_bytes_max = 16384
        self.queued_bytes = 0
        self.data_frames = 0
        self.ended: list[Stream] = []
        self.drained: list[int] = []
        self._line: deque[Stream] = deque()

    def control(self, data: bytes) -> None:
        """Answer a frame of the peer."""
        self.control_bytes += len(data)
        self.pieces.append(data)

    def headers(self, stream: Stream, block: bytes, *, ends: bool) -> None:
        """Write a header block in one frame; response blocks are far below the smallest frame limit."""
        flags = END_HEADERS | END_STREAM if ends else END_HEADERS
        self.control(frame(HEADERS, flags, stream.id, block))
        stream.headers_sent = True

    def fits(self, stream: Stream, length: int) -> bool:
        """Whether `length` bytes of DATA may go out at once; if so, the windows are charged."""
        if (
            length > self.frame_bytes_max
            or length > self.send_window
            or length > stream.send_window
            or self.paused
        ):
            return False
        self.send_window -= length
        stream.send_window -= length
        self.data_frames += 1
        return True

    def queue(self, stream: Stream, chunk: bytes) -> None:
        """Put response data in line."""
        if stream.queue is None:
            stream.queue = deque()
        stream.queue.append(chunk)
        stream.queue_bytes += len(chunk)
        self.queued_bytes += len(chunk)
        self._line_up(stream)

    def end(self, stream: Stream, trailers: bytes) -> None:
        """End the response after its queued data, with a trailer block or, if that is empty, without one."""
        if stream.queue_bytes:
            stream.trailers = trailers
        else:
            self._write_end(stream, trailers)

    def cut(self, stream: Stream) -> None:
        """Forget queued chunks of which nothing has been sent; one that was begun is still completed."""
        queue = stream.queue
        if not queue:
            return
        begun = queue.popleft() if stream.head_offset else b""
        queue.clear()
        left = len(begun) - stream.head_offset
        if begun:
            queue.append(begun)
        self.queued_bytes -= stream.queue_bytes - left
        stream.queue_bytes = left

    def drop(self, stream: Stream) -> None:
        """Forget what a dead stream had to say."""
        self.queued_bytes -= stream.queue_bytes
        stream.queue_bytes = 0
        stream.queue = None
        stream.trailers = None

    def widen(self, increment: int) -> None:
        """WINDOW_UPDATE for the connection."""
        self.send_window += increment
        if self.send_window > WINDOW_MAX:
            raise GoAwayError(FLOW_CONTROL_ERROR, "the connection window exceeds 2^31-1")

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """WINDOW_UPDATE for a stream, or its share of a changed initial window."""
        stream.send_window += increment
        if stream.send_window > WINDOW_MAX:
            raise StreamResetError(stream.id, FLOW_CONTROL_ERROR)
        if stream.queue_bytes:
            self._line_up(stream)

    def take(self) -> bytes:
        """Everything that may be written now."""
        if self._line and not self.paused:
            self._pump()
        self.control_bytes = 0
        pieces = self.pieces
        if not pieces:
            return b""
        self.pieces = []
        return b"".join(pieces)

    @property
    def has_more(self) -> bool:
        """Whether another `take` would write response data."""
        return bool(self._line) and self.send_window > 0

    def _line_up(self, stream: Stream) -> None:
        if not stream.ready:
            stream.ready = True
            self._line.append(stream)

    def _pump(self) -> None:
        line = self._line
        budget = _PUMP_BYTES_MAX
        while line and budget > 0 and self.send_window > 0:
            stream = line.popleft()
            stream.ready = False
            allowed = min(stream.send_window, self.send_window, self.frame_bytes_max)
            # A dropped stream has nothing to say; a blocked one comes back with its WINDOW_UPDATE.
            if stream.queue_bytes == 0 or allowed <= 0:
                continue
            budget -= self._write_frame(stream, allowed)
            if stream.queue_bytes:
                if stream.send_window > 0:
                    self._line_up(stream)
            elif stream.trailers is not None:
                self._write_end(stream, stream.trailers)

    def _write_frame(self, stream: Stream, allowed: int) -> int:
        """Write one DATA frame of up to `allowed` bytes: whole chunks, or a part of a large one."""
        queue = stream.queue
        assert queue is not None
        pieces = self.pieces
        header_at = len(pieces)
        pieces.append(b"")
        size = 0
        while queue:
            chunk = queue[0]
            offset = stream.head_offset
            left = len(chunk) - offset
            room = allowed - size
            if left <= room:
                queue.popleft()
                pieces.append(chunk if offset == 0 else chunk[offset:])
                stream.head_offset = 0
                size += left
                continue
            # A chunk is split only where it must be: at the head of a frame.
            if size == 0:
                pieces.append(chunk[offset : offset + room])
                stream.head_offset = offset + room
                size = room
            break
        flags = 0
        if not queue and stream.trailers == b"":
            flags = END_STREAM
            stream.trailers = None
            self.ended.append(stream)
        pieces[header_at] = frame_header(size, DATA, flags, stream.id)
        self.data_frames += 1
        self.send_window -= size
        stream.send_window -= size
        stream.queue_bytes -= size
        self.queued_bytes -= size
        if stream.wants_drain and not queue:
            stream.wants_drain = False
            self.drained.append(stream.id)
        return size

    def _write_end(self, stream: Stream, trailers: bytes) -> None:
        stream.trailers = None
        if trailers:
            self.headers(stream, trailers, ends=True)
        else:
            self.pieces.append(frame_header(0, DATA, END_STREAM, stream.id))
        self.ended.append(stream)
