"""A consumer as a subscription sees it."""

from collections.abc import Sequence

from pydanube.dispatch.key_filter import KeyFilters


class Consumer:
    """Registered by `join`; receives while a stream is attached and the stream has credit."""

    __slots__ = (
        "attached",
        "consumer_id",
        "credit",
        "filters",
        "joined",
        "keys_owned",
        "live",
        "lost_ms",
        "outstanding",
        "ready",
        "unsent",
    )

    def __init__(self, consumer_id: int, joined: int, filters: Sequence[str]) -> None:
        self.consumer_id = consumer_id
        self.joined = joined
        """Place in join order: larger joined later."""
        self.attached = False
        self.credit = 0
        """How many more messages its stream takes."""
        self.outstanding = 0
        """Messages sent to it that await their ack."""

        # Key-shared only.
        self.filters = KeyFilters(filters)
        self.live = True
        """May own keys: attached, or without a stream for less than the grace."""
        self.lost_ms = -1
        """When its stream was lost; -1 if it has one or the moment is not known yet."""
        self.keys_owned = 0
        self.ready: list[int] = []
        """Heap of the offsets it may be sent next, one per key at most."""
        self.unsent = 0
        """Messages of its keys that are ready to be sent or wait behind such a one."""
