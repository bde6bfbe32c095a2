"""What an operator may set of the journal."""

import msgspec

MEBIBYTE = 1 << 20


class JournalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Sizes and delays of one broker's journal."""

    file_bytes: int = 64 * MEBIBYTE
    """Size of a journal file; a full one is staged into runs and recycled."""
    group_bytes_max: int = 8 * MEBIBYTE
    """Hand-overs are merged into one write up to this size."""
    unstaged_bytes_max: int = 256 * MEBIBYTE
    """Memory for messages that are in the journal only; beyond it appends are refused as overloaded."""
    slowed_ms_max: int = 50
    """How long a commit waits for staging to catch up when three quarters of that memory are used."""
    cache_bytes_max: int = 64 * MEBIBYTE
    """Memory for messages that are in a run already but may still be read soon."""
    sync_interval_ms: int = 1000
    """How long bytes of topics with fsync policy `interval` may stay unsynced."""
    cursor_delay_ms_max: int = 200
    """How long a saved cursor waits for a group to ride with before it makes its own."""
    marker_delay_ms: int = 50
    """Idle time after which a marker says on disk that everything before it is durable."""
    space_retry_ms: int = 1000
    """Pause before trying again to get a new file from a full disk."""
