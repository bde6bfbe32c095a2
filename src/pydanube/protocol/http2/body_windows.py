"""How much request body a peer may have in flight: the receiving half of flow control (section 5.2).

The connection window bounds what one peer can make us hold. It is given back only when a body is handed
over or dropped, never on arrival. Small bodies fit the window every stream begins with; a larger one must
reserve what is missing, in order of asking. So large uploads cannot block each other halfway, all of them
waiting for a window that none will ever give back.
"""

from collections import deque

from pydanube.protocol.http2.frames import (
    DEFAULT_WINDOW,
    FLOW_CONTROL_ERROR,
    GoAwayError,
    StreamResetError,
    window_update_frame,
)
from pydanube.protocol.http2.limits import Http2Limits
from pydanube.protocol.http2.outbox import Outbox
from pydanube.protocol.http2.stream import Stream


class BodyWindows:
    """The receive windows of one connection."""

    def __init__(self, limits: Http2Limits, outbox: Outbox) -> None:
        self._outbox = outbox
        self._window = limits.connection_window_bytes
        self._window_low = 2 * limits.frame_bytes_max
        self._window_wanted = limits.connection_window_bytes // 8
        self._credit = 0  # consumed, not yet given back to the peer
        self._credit_max = limits.connection_window_bytes // 2
        self._reserved_bytes = 0
        self._reserved_bytes_max = limits.reserved_bytes_max
        self._waiting: deque[Stream] = deque()
        outbox.pieces.append(window_update_frame(0, limits.connection_window_bytes - DEFAULT_WINDOW))

    def charge(self, stream: Stream, length: int) -> None:
        """DATA arrived; raise if it is more than the peer was allowed."""
        self._window -= length
        if self._window < 0:
            raise GoAwayError(FLOW_CONTROL_ERROR, "DATA beyond the connection window")
        stream.charged_bytes += length
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamResetError(stream.id, FLOW_CONTROL_ERROR)

    def charge_stray(self, length: int) -> None:
        """DATA arrived that nobody wants: it counts, and is consumed at once."""
        self._window -= length
        if self._window < 0:
            raise GoAwayError(FLOW_CONTROL_ERROR, "DATA beyond the connection window")
        self._give_back(length)

    def reserve(self, stream: Stream, expected_bytes: int) -> None:
        """Let the stream send a body of `expected_bytes`, now or when others are done."""
        stream.expected_bytes = expected_bytes
        if _missing(stream) > 0 and not stream.waits_for_window:
            stream.waits_for_window = True
            self._waiting.append(stream)
            self._grant()

    def release(self, stream: Stream) -> None:
        """The stream's body is consumed or dropped: its window goes back to the peer."""
        if stream.reserved_bytes:
            self._reserved_bytes -= stream.reserved_bytes
            stream.reserved_bytes = 0
        if stream.waits_for_window:
            stream.waits_for_window = False
            self._waiting.remove(stream)
        if self._waiting:
            self._grant()
        self._give_back(stream.charged_bytes)
        stream.charged_bytes = 0

    def is_exhausted(self) -> bool:
        """Whether unfinished bodies fill the window, so that none of them can go on."""
        if self._window >= self._window_low:
            return False
        self._flush_credit()
        return self._window < self._window_low

    def has_recovered(self) -> bool:
        """Whether enough was dropped since then."""
        self._flush_credit()
        return self._window >= self._window_wanted

    def _grant(self) -> None:
        while self._waiting:
            stream = self._waiting[0]
            missing = _missing(stream)
            # One body at least is always let in, whatever its size.
            if self._reserved_bytes and self._reserved_bytes + missing > self._reserved_bytes_max:
                return
            self._waiting.popleft()
            stream.waits_for_window = False
            stream.reserved_bytes += missing
            stream.receive_window += missing
            self._reserved_bytes += missing
            self._outbox.pieces.append(window_update_frame(stream.id, missing))

    def _give_back(self, credit: int) -> None:
        self._credit += credit
        # Half a window at a time: one WINDOW_UPDATE for thousands of small requests.
        if self._credit > self._credit_max:
            self._flush_credit()

    def _flush_credit(self) -> None:
        if self._credit:
            self._outbox.pieces.append(window_update_frame(0, self._credit))
            self._window += self._credit
            self._credit = 0


def _missing(stream: Stream) -> int:
    return stream.expected_bytes - stream.body_bytes - stream.receive_window
