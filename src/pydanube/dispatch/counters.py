"""What happened on a reliable subscription since it was loaded; plain integers for the metrics."""

from typing import Final

COUNTER_NAMES: Final = (
    "ack_timeouts",
    "acked",
    "dead_lettered",
    "delivered",
    "dropped",
    "exhausted_blocked",
    "exhausted_dead_lettered",
    "exhausted_dropped",
    "expired",
    "filtered",
    "lost_to_retention",
    "nacked",
    "redelivered",
    "seeks",
)


class Counters:
    """Every field only grows. Messages are counted, not batches."""

    __slots__ = COUNTER_NAMES

    def __init__(self) -> None:
        self.delivered = 0
        """Sends, first ones and repeated ones."""
        self.redelivered = 0
        """Sends of a message that had been sent before."""
        self.acked = 0
        self.nacked = 0
        self.ack_timeouts = 0
        self.exhausted_blocked = 0
        self.exhausted_dropped = 0
        self.exhausted_dead_lettered = 0
        """Messages that failed too often, by the policy that met them."""
        self.dead_lettered = 0
        """Copies published, originals skipped."""
        self.dropped = 0
        """Skipped by the drop policy."""
        self.expired = 0
        """Skipped because their time to live had passed when they were to be sent."""
        self.filtered = 0
        """Skipped because no consumer's key filters accept them."""
        self.lost_to_retention = 0
        """Deleted from the log before they were read."""
        self.seeks = 0
        """How often the subscription was moved to another place in the log."""
