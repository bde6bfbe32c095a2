"""The server side of one HTTP/2 connection: bytes and the time in, events and bytes out.

Knows no socket, no event loop and no clock. A subclass gives requests their meaning by overriding
`_request_ended`, `_expected_body_bytes` and `_body_too_large`; protocol/grpc.py is the one we have.

Fault model: the peer may send anything. Whatever it sends, memory stays within Http2Limits, no exception
leaves `receive`, and the answer is the error RFC 9113 names, or ENHANCE_YOUR_CALM where it is a flood.
"""

from collections import deque
from typing import Final

from librt.strings import read_i32_be

from pydanube.protocol.http2 import frames as h2
from pydanube.protocol.http2.body_windows import BodyWindows
from pydanube.protocol.http2.floods import (
    EMPTY_FRAMES,
    PINGS,
    PRIORITIES,
    RESETS,
    SETTINGS_CHANGES,
    WINDOW_UPDATES,
    FloodGate,
)
from pydanube.protocol.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    ID_MASK,
    PADDED,
    PRIORITIZED,
    GoAwayError,
    StreamResetError,
)
from pydanube.protocol.http2.header_blocks import HeaderBlocks, PartialBlock
from pydanube.protocol.http2.limits import Http2Limits
from pydanube.protocol.http2.outbox import Outbox
from pydanube.protocol.http2.settings import our_settings, read_settings
from pydanube.protocol.http2.stream import Stream

_PING_SHUTDOWN: Final = b"shutdown"
_PING_KEEPALIVE: Final = b"keepaliv"

# How many streams we closed early are remembered, whose late frames are no error.
_FORGIVEN_STREAMS_MAX: Final = 1024
_SKIPPED_RANGES_MAX: Final = 16

_SPECIAL_HEADERS: Final = END_HEADERS | PADDED | PRIORITIZED


class Event:
    """Something the driver must know; `stream_id` says about which call."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id: Final = stream_id


class Cancelled(Event):
    """A call that was handed over is gone: the peer reset it, or broke a rule on its stream."""


class Http2Connection:
    """Frames, header blocks, stream states and flow control of one connection."""

    def __init__(self, limits: Http2Limits) -> None:
        self.limits: Final = limits
        self.closing = False  # nothing more is read; close once the output is written
        self.fault: GoAwayError | None = None  # why, if the peer was at fault
        self.resets = 0
        self._streams: dict[int, Stream] = {}
        self._streams_max = limits.concurrent_streams_max
        self._stream_window = limits.stream_window_bytes
        self._body_bytes_max = limits.body_bytes_max
        self._outbox = Outbox()
        self._events: list[Event] = []
        self._floods = FloodGate(limits)
        self._headers = HeaderBlocks(limits)
        self._partial_block: PartialBlock | None = None
        self._buffer = b""
        self._now = 0.0
        self._received_at = 0.0
        self._ping_sent_at = 0.0
        self._preface_read = False
        self._settings_read = False
        self._stopping = False  # GOAWAY is announced: new streams are still served for one round trip
        self._draining = False  # no new streams; closes with the last open one
        self._last_stream_id = 0
        self._skipped: deque[tuple[int, int]] = deque(maxlen=_SKIPPED_RANGES_MAX)
        self._forgiven: dict[int, bool] = {}
        self._starving = False  # streams were denied room because the whole connection has too much queued
        self._outbox.pieces.append(our_settings(limits))
        self._bodies = BodyWindows(limits, self._outbox)

    # What the driver calls

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that arrived at `now` (seconds, any origin); return what happened."""
        if self.closing:
            return []
        self._now = self._received_at = now
        try:
            if self._outbox.control_bytes > self.limits.control_bytes_max:
                raise GoAwayError(h2.ENHANCE_YOUR_CALM, "makes us answer but does not read the answers")
            self._read_frames(self._buffer + data if self._buffer else data)
        except GoAwayError as fault:
            self._abort(fault)
        return self._take_events()

    def tick(self, now: float) -> list[Event]:
        """Let time pass: end requests that never complete, notice a silent peer. Call it every second or so."""
        if self.closing:
            return []
        self._now = now
        if self._received_at == 0.0:
            self._received_at = now
        try:
            self._end_overdue_requests(now)
            self._keep_alive(now)
        except GoAwayError as fault:
            self._abort(fault)
        return self._take_events()

    def data_to_send(self) -> bytes:
        """Everything to write now. Not to be called while paused."""
        data = self._outbox.take()
        if self._outbox.ended:
            self._settle_ended()
            data += self._outbox.take()
        if self._starving and self._outbox.queued_bytes < self.limits.connection_queue_bytes_max // 2:
            self._starving = False
            self._wake_idle_streams()
        return data

    def pause(self) -> None:
        """The peer does not read: keep response data in the queues, take no more of it."""
        self._outbox.paused = True

    def resume(self) -> None:
        """The peer reads again."""
        self._outbox.paused = False
        self._wake_idle_streams()

    @property
    def has_more_to_send(self) -> bool:
        """Whether calling `data_to_send` again would yield response data."""
        return self._outbox.has_more

    def take_drained(self) -> list[int]:
        """Streams that had no room and have some again."""
        drained = self._outbox.drained
        if drained:
            self._outbox.drained = []
        return drained

    def shutdown(self) -> None:
        """Refuse new streams after one round trip, let the open ones finish; then `closing` becomes true."""
        if self._stopping or self.closing:
            return
        self._stopping = True
        # The highest id first: streams already on their way to us are still served (section 6.8).
        self._outbox.pieces.append(h2.goaway_frame(ID_MASK, h2.NO_ERROR, "stopping"))
        self._outbox.pieces.append(h2.frame(h2.PING, 0, 0, _PING_SHUTDOWN))

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def is_open(self, stream_id: int) -> bool:
        return stream_id in self._streams

    # What a subclass overrides

    def _request_ended(self, stream: Stream) -> None:
        """The request is complete. A connection that is nothing more than HTTP/2 serves nobody."""
        self._reset(stream, h2.REFUSED_STREAM)

    def _expected_body_bytes(self, stream: Stream) -> int:
        """How long the body will be as far as its beginning tells, or -1."""
        return stream.headers.content_length

    def _body_too_large(self, stream: Stream) -> None:
        """The body is or will be larger than `body_bytes_max`."""
        self._reset(stream, h2.CANCEL)

    def _request_refused(self, stream: Stream) -> None:
        """There is no room to keep the request's body: nothing of it was used."""
        self._reset(stream, h2.REFUSED_STREAM)

    # Reading

    def _read_frames(self, data: bytes) -> None:
        pos = 0
        end = len(data)
        if not self._preface_read:
            if data[:24] != h2.PREFACE[:end]:
                raise GoAwayError(h2.PROTOCOL_ERROR, "the connection preface is not HTTP/2")
            if end < 24:
                self._buffer = data
                return
            self._preface_read = True
            pos = 24
        frame_bytes_max = self.limits.frame_bytes_max
        while end - pos >= 9:
            word: int = read_i32_be(data, pos)
            length = (word >> 8) & 0xFFFFFF
            if length > frame_bytes_max:
                raise GoAwayError(h2.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            start = pos + 9
            stop = start + length
            if stop > end:
                break
            kind = word & 0xFF
            flags = data[pos + 4]
            stream_id: int = read_i32_be(data, pos + 5) & ID_MASK
            pos = stop
            try:
                if kind == DATA and self._partial_block is None:
                    self._on_data(stream_id, flags, data, start, stop)
                elif kind == HEADERS and self._partial_block is None and self._settings_read:
                    if flags & _SPECIAL_HEADERS == END_HEADERS:
                        self._on_header_block(stream_id, flags, data[start:stop])
                    else:
                        self._on_headers(stream_id, flags, data[start:stop])
                else:
                    self._on_rare_frame(kind, flags, stream_id, data[start:stop])
            except StreamResetError as fault:
                self._answer_stream_fault(fault)
            if self.closing:
                return
        self._buffer = data[pos:]

    def _on_rare_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        partial = self._partial_block
        if partial is not None and (kind != h2.CONTINUATION or stream_id != partial.stream_id):
            raise GoAwayError(h2.PROTOCOL_ERROR, "a header block is interrupted")
        if not self._settings_read:
            if kind != h2.SETTINGS or flags & h2.ACK:
                raise GoAwayError(h2.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._settings_read = True
        if kind == h2.WINDOW_UPDATE:
            self._on_window_update(stream_id, payload)
        elif kind == h2.RST_STREAM:
            self._on_rst_stream(stream_id, payload)
        elif kind == h2.PING:
            self._on_ping(flags, stream_id, payload)
        elif kind == h2.SETTINGS:
            self._on_settings(flags, stream_id, payload)
        elif kind == h2.CONTINUATION:
            self._on_continuation(flags, stream_id, payload)
        elif kind == h2.PRIORITY:
            self._on_priority(stream_id, payload)
        elif kind == h2.GOAWAY:
            self._on_goaway(stream_id, payload)
        elif kind == h2.PUSH_PROMISE:
            raise GoAwayError(h2.PROTOCOL_ERROR, "a client cannot push")
        elif kind > h2.CONTINUATION:
            # Unknown frames are ignored (section 4.1), but not an endless stream of them.
            self._floods.count(PRIORITIES, self._now)

    # Requests

    def _on_headers(self, stream_id: int, flags: int, block: bytes) -> None:
        if flags & (PADDED | PRIORITIZED):
            block = self._strip_headers_payload(stream_id, flags, block)
        if not flags & END_HEADERS:
            if stream_id == 0:
                raise GoAwayError(h2.PROTOCOL_ERROR, "HEADERS on stream 0")
            self._partial_block = PartialBlock(stream_id, flags, block, self._now)
            return
        self._on_header_block(stream_id, flags, block)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        partial = self._partial_block
        if partial is None:
            raise GoAwayError(h2.PROTOCOL_ERROR, "CONTINUATION without a header block")
        partial.add(payload, self.limits)
        if flags & END_HEADERS:
            self._partial_block = None
            self._on_header_block(stream_id, partial.flags, partial.whole())

    def _on_header_block(self, stream_id: int, flags: int, block: bytes) -> None:
        if stream_id & 1 == 0:
            raise GoAwayError(h2.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        if stream_id <= self._last_stream_id:
            self._on_late_header_block(stream_id, flags, block)
            return
        if stream_id > self._last_stream_id + 2:
            self._skipped.append((self._last_stream_id + 1, stream_id - 1))
        self._last_stream_id = stream_id
        headers = self._headers.known.get(block)
        if headers is None:
            headers = self._headers.read_request(stream_id, block)
        if self._draining or len(self._streams) >= self._streams_max:
            raise StreamResetError(stream_id, h2.REFUSED_STREAM)
        stream = Stream(stream_id, headers, self._now, self._stream_window, self._outbox.initial_window)
        self._streams[stream_id] = stream
        if flags & END_STREAM:
            self._end_request(stream)

    def _on_late_header_block(self, stream_id: int, flags: int, block: bytes) -> None:
        """Trailers of an open stream, or a mistake."""
        stream = self._streams.get(stream_id)
        if stream is None and stream_id not in self._forgiven:
            if self._was_skipped(stream_id):
                raise GoAwayError(h2.PROTOCOL_ERROR, f"stream {stream_id} opened after a higher one")
            raise GoAwayError(h2.STREAM_CLOSED, f"HEADERS on the closed stream {stream_id}")
        if stream is None:
            self._headers.skip(block)
            return
        if stream.remote_closed:
            self._headers.skip(block)
            raise StreamResetError(stream_id, h2.STREAM_CLOSED)
        self._headers.read_trailers(stream_id, block)
        if not flags & END_STREAM:
            raise StreamResetError(stream_id, h2.PROTOCOL_ERROR)
        self._end_request(stream)

    def _strip_headers_payload(self, stream_id: int, flags: int, payload: bytes) -> bytes:
        start = 0
        stop = len(payload)
        if flags & PADDED:
            start, stop = self._unpad(payload, 0, stop)
        if flags & PRIORITIZED:
            if stop - start < 5:
                raise GoAwayError(h2.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            if read_i32_be(payload, start) & ID_MASK == stream_id:
                raise GoAwayError(h2.PROTOCOL_ERROR, "a stream depends on itself")
            start += 5
        return payload[start:stop]

    def _on_data(self, stream_id: int, flags: int, data: bytes, start: int, stop: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is None or stream.remote_closed:
            self._on_stray_data(stream_id, flags, data, start, stop)
            return
        self._bodies.charge(stream, stop - start)
        if flags & PADDED:
            start, stop = self._unpad(data, start, stop)
        ends = flags & END_STREAM
        if start < stop:
            if stream.body_bytes == 0:
                stream.body = data[start:stop]
                stream.body_bytes = stop - start
            else:
                stream.add_to_body(data[start:stop])
        elif not ends:
            self._floods.count(EMPTY_FRAMES, self._now)
        if ends:
            self._end_request(stream)
        else:
            self._plan_body(stream)

    def _on_stray_data(self, stream_id: int, flags: int, data: bytes, start: int, stop: int) -> None:
        """DATA for a stream that takes none: a mistake, unless we closed it while the bytes were on the way."""
        if not self._settings_read or stream_id == 0 or stream_id > self._last_stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, f"DATA on the idle stream {stream_id}")
        self._bodies.charge_stray(stop - start)
        if flags & PADDED:
            self._unpad(data, start, stop)
        if stream_id not in self._forgiven:
            raise StreamResetError(stream_id, h2.STREAM_CLOSED)

    def _unpad(self, data: bytes, start: int, stop: int) -> tuple[int, int]:
        if start >= stop:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "a padded frame without a pad length")
        padding = data[start]
        if start + 1 + padding > stop:
            raise GoAwayError(h2.PROTOCOL_ERROR, "padding longer than its frame")
        return start + 1, stop - padding

    def _end_request(self, stream: Stream) -> None:
        stream.remote_closed = True
        content_length = stream.headers.content_length
        if content_length >= 0 and content_length != stream.body_bytes:
            raise StreamResetError(stream.id, h2.PROTOCOL_ERROR)
        if stream.charged_bytes:
            self._bodies.release(stream)
        if stream.body_bytes > self._body_bytes_max:
            self._body_too_large(stream)
            return
        self._request_ended(stream)

    def _plan_body(self, stream: Stream) -> None:
        """After a DATA frame that is not the last: refuse a body too large, make way for a large one."""
        expected = self._expected_body_bytes(stream)
        if expected > self._body_bytes_max or stream.body_bytes > self._body_bytes_max:
            self._body_too_large(stream)
            return
        if expected > 0:
            self._bodies.reserve(stream, expected)
        if self._bodies.is_exhausted():
            self._refuse_newest_bodies()

    def _refuse_newest_bodies(self) -> None:
        for stream in [s for s in reversed(self._streams.values()) if s.charged_bytes]:
            if self._bodies.has_recovered():
                return
            self._bodies.release(stream)
            self._request_refused(stream)

    # Everything else the peer may send

    def _on_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes long")
        self._floods.count(WINDOW_UPDATES, self._now)
        if self._outbox.data_frames:
            # A reader answers each frame of data with up to two of these.
            self._floods.forgive(WINDOW_UPDATES, 2 * self._outbox.data_frames)
            self._outbox.data_frames = 0
        increment: int = read_i32_be(payload, 0) & ID_MASK
        if stream_id == 0:
            if increment == 0:
                raise GoAwayError(h2.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
            self._outbox.widen(increment)
            return
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_not_idle(stream_id, "WINDOW_UPDATE")
            return
        if increment == 0:
            raise StreamResetError(stream_id, h2.PROTOCOL_ERROR)
        self._outbox.widen_stream(stream, increment)

    def _on_rst_stream(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "RST_STREAM is not 4 bytes long")
        self._check_not_idle(stream_id, "RST_STREAM")
        self.resets += 1
        self._floods.count(RESETS, self._now)
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._forget(stream)
            self._report_cancelled(stream)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != 8:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "PING is not 8 bytes long")
        if flags & h2.ACK:
            if self._stopping and payload == _PING_SHUTDOWN:
                self._finish_shutdown()
            return
        self._floods.count(PINGS, self._now)
        self._outbox.control(h2.frame(h2.PING, h2.ACK, 0, payload))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, "SETTINGS on a stream")
        if flags & h2.ACK:
            if payload:
                raise GoAwayError(h2.FRAME_SIZE_ERROR, "a SETTINGS acknowledgement with content")
            return
        self._floods.count(SETTINGS_CHANGES, self._now)
        settings = read_settings(payload)
        frame_bytes_max = settings.get(h2.SETTING_MAX_FRAME_SIZE)
        if frame_bytes_max is not None:
            # Larger frames than ours would only let one stream hold up the others.
            self._outbox.frame_bytes_max = min(frame_bytes_max, self.limits.frame_bytes_max)
        initial_window = settings.get(h2.SETTING_INITIAL_WINDOW_SIZE)
        if initial_window is not None:
            self._change_initial_window(initial_window)
        self._outbox.control(h2.SETTINGS_ACK)

    def _change_initial_window(self, value: int) -> None:
        change = value - self._outbox.initial_window
        self._outbox.initial_window = value
        if change:
            for stream in self._streams.values():
                try:
                    self._outbox.widen_stream(stream, change)
                except StreamResetError:
                    raise GoAwayError(h2.FLOW_CONTROL_ERROR, "a stream window exceeds 2^31-1") from None

    def _on_priority(self, stream_id: int, payload: bytes) -> None:
        """Priorities are deprecated and ignored; only nonsense is answered."""
        self._floods.count(PRIORITIES, self._now)
        if stream_id == 0:
            raise GoAwayError(h2.PROTOCOL_ERROR, "PRIORITY on stream 0")
        if len(payload) != 5:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes long")
        if read_i32_be(payload, 0) & ID_MASK == stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, "a stream depends on itself")

    def _on_goaway(self, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise GoAwayError(h2.FRAME_SIZE_ERROR, "GOAWAY is shorter than 8 bytes")
        # The peer opens no more streams and closes when it has its answers: nothing changes for us.

    # Ends

    def _wake_idle_streams(self) -> None:
        """Tell the streams that had no room though their own queues were empty."""
        for stream in self._streams.values():
            if stream.wants_drain and stream.queue_bytes == 0:
                stream.wants_drain = False
                self._outbox.drained.append(stream.id)

    def _take_events(self) -> list[Event]:
        events = self._events
        self._events = []
        return events

    def _report_cancelled(self, stream: Stream) -> None:
        if stream.delivered:
            self._events.append(Cancelled(stream.id))

    def _answer_stream_fault(self, fault: StreamResetError) -> None:
        # A peer that makes us reset streams costs as much as one that resets them itself.
        self._floods.count(RESETS, self._now)
        self._outbox.control(h2.rst_stream_frame(fault.stream_id, fault.code))
        stream = self._streams.get(fault.stream_id)
        if stream is not None:
            self._forget(stream)
            self._report_cancelled(stream)
        self._forgive(fault.stream_id)

    def _reset(self, stream: Stream, code: int) -> None:
        """End a stream from our side, whatever its state."""
        self._outbox.pieces.append(h2.rst_stream_frame(stream.id, code))
        self._forgive(stream.id)
        self._forget(stream)

    def _settle_ended(self) -> None:
        """Streams whose response is completely written."""
        for stream in self._outbox.ended:
            if not stream.remote_closed:
                # The answer does not depend on the rest of the request (section 8.1): stop the upload.
                self._outbox.pieces.append(h2.rst_stream_frame(stream.id, h2.NO_ERROR))
                self._forgive(stream.id)
            self._forget(stream)
        self._outbox.ended = []

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        if stream.charged_bytes or stream.reserved_bytes or stream.waits_for_window:
            self._bodies.release(stream)
        if stream.queue_bytes:
            self._outbox.drop(stream)
        if self._draining:
            self._close_if_drained()

    def _forgive(self, stream_id: int) -> None:
        self._forgiven[stream_id] = True
        if len(self._forgiven) > _FORGIVEN_STREAMS_MAX:
            del self._forgiven[next(iter(self._forgiven))]

    def _was_skipped(self, stream_id: int) -> bool:
        return any(first <= stream_id <= last for first, last in self._skipped)

    def _check_not_idle(self, stream_id: int, what: str) -> None:
        if stream_id == 0 or stream_id > self._last_stream_id:
            raise GoAwayError(h2.PROTOCOL_ERROR, f"{what} on the idle stream {stream_id}")

    def _finish_shutdown(self) -> None:
        self._outbox.pieces.append(h2.goaway_frame(self._last_stream_id, h2.NO_ERROR, "stopping"))
        self._draining = True
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if not self._streams:
            self.closing = True

    def _abort(self, fault: GoAwayError) -> None:
        self.fault = fault
        self.closing = True
        self._buffer = b""
        self._outbox.pieces.append(h2.goaway_frame(self._last_stream_id, fault.code, fault.text))

    # Time

    def _end_overdue_requests(self, now: float) -> None:
        oldest = now - self.limits.request_seconds_max
        if self._partial_block is not None and self._partial_block.started_at < oldest:
            raise GoAwayError(h2.ENHANCE_YOUR_CALM, "a header block was never completed")
        for stream in [s for s in self._streams.values() if not s.remote_closed and s.started_at < oldest]:
            self._reset(stream, h2.CANCEL)

    def _keep_alive(self, now: float) -> None:
        silent = now - self._received_at
        if silent > self.limits.keepalive_seconds + self.limits.keepalive_timeout_seconds:
            raise GoAwayError(h2.NO_ERROR, f"nothing was heard for {silent:.0f} s")
        if silent > self.limits.keepalive_seconds and self._ping_sent_at <= self._received_at:
            self._ping_sent_at = now
            self._outbox.pieces.append(h2.frame(h2.PING, 0, 0, _PING_KEEPALIVE))
