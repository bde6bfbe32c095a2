"""Every bound a connection keeps, in one place: what one peer can make this process spend."""

from dataclasses import dataclass
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Http2Limits:
    """Bounds of one HTTP/2 connection.

    Rates count frames per `flood_interval_seconds`. A peer that goes past a rate, a header bound or the
    control-reply bound is told GOAWAY ENHANCE_YOUR_CALM; a peer that ignores a window or a frame size
    gets the error RFC 9113 names for it.
    """

    # Sizes
    frame_bytes_max: int = 16 * KIB
    header_list_bytes_max: int = 32 * KIB
    header_fields_max: int = 128
    header_block_bytes_max: int = 64 * KIB
    continuation_frames_max: int = 8
    cached_block_bytes_max: int = 128 * KIB
    body_bytes_max: int = 4 * MIB + 5

    # Request bodies held at once: the connection window is all a peer may ever have in flight, and it is
    # given back only when a request is handed over or dropped. Bodies larger than the window of a stream
    # reserve their share first, in order of asking, so that large uploads cannot starve each other.
    concurrent_streams_max: int = 4096
    stream_window_bytes: int = 64 * KIB
    connection_window_bytes: int = 16 * MIB
    reserved_bytes_max: int = 8 * MIB

    # Responses waiting for the peer's windows
    stream_messages_max: int = 128
    stream_queue_bytes_max: int = 1 * MIB
    connection_queue_bytes_max: int = 64 * MIB
    control_bytes_max: int = 256 * KIB

    # Floods
    flood_interval_seconds: float = 1.0
    resets_max: int = 500
    settings_max: int = 50
    pings_max: int = 10_000
    empty_frames_max: int = 1_000
    priorities_max: int = 10_000
    window_updates_max: int = 50_000

    # Deadlines
    request_seconds_max: float = 60.0
    keepalive_seconds: float = 20.0
    keepalive_timeout_seconds: float = 20.0

    def __post_init__(self) -> None:
        # Below these values the protocol itself leaves us no way to say what we want.
        if self.connection_window_bytes < 65535 or self.frame_bytes_max < 16384:
            raise ValueError("connection_window_bytes must be 65535 or more, frame_bytes_max 16384 or more")
