"""What one native connection may cost its broker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NativeLimits:
    """What one connection may cost; told to the client in WELCOME."""

    publish_window_bytes: int = 32 * 1024 * 1024
    channels_max: int = 10_000
    requests_max: int = 1_000
    """Requests under way at once; not told, no honest client comes near."""
    hello_seconds: float = 10.0
    idle_seconds_max: int = 60
    unacked_default: int = 50_000
    """Unacknowledged messages of a consumer that asks for no number of its own."""
    unacked_max: int = 1_000_000
    write_buffer_bytes: int = 1024 * 1024
    """Deliveries wait while so much was sent and not taken; the entry that reaches it goes out whole."""
    crowded_seconds_max: float = 2.0
    """How long it is not read from because segments are written too slowly; then publishes are refused instead."""
    answers_bytes_max: int = 8 * 1024 * 1024
    """A client that asks, but has left so much unread, is not read from; more than deliveries alone can make it."""
