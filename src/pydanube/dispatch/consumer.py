"""A consumer as a subscription sees it."""

from collections.abc import Sequence
from typing import Final

from pydanube.dispatch.key_filter import KeyFilters

NO_LIMIT: Final = 1 << 59
"""More messages or bytes than will ever be counted, yet a small number to a compiler."""


class UnackedLimit:
    """How many messages may be sent and not acked: of one consumer, or of all that bring no limit of their own.

    Looked at before a send, so a batch may go beyond it.
    """

    __slots__ = ("left", "messages_max")

    def __init__(self, messages_max: int) -> None:
        self.messages_max = messages_max
        self.left = messages_max

    def change(self, messages_max: int) -> None:
        self.left += messages_max - self.messages_max
        self.messages_max = messages_max


class Consumer:
    """Registered by `join`; receives while a stream is attached and the stream has credit."""

    __slots__ = (
        "attached",
        "consumer_id",
        "counts_bytes",
        "credit",
        "credit_bytes",
        "filters",
        "joined",
        "keys_owned",
        "limit",
        "live",
        "lost_ms",
        "outstanding",
        "ready",
        "unacked_max",
        "unsent",
    )

    def __init__(self, consumer_id: int, joined: int, filters: Sequence[str], limit: UnackedLimit) -> None:
        self.consumer_id = consumer_id
        self.joined = joined
        """Place in join order: larger joined later."""
        self.attached = False
        self.credit = 0
        """How many more messages its stream takes; 0 or less also when it takes no more bytes."""
        self.credit_bytes = 0
        self.counts_bytes = False
        """Whether its stream takes a limited number of bytes."""
        self.limit = limit
        """Its own, or the one it shares."""
        self.unacked_max = 0
        """What its stream adds to the window; 0 if it lives within the subscription's."""
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

    def take_bytes(self, length: int) -> None:
        self.credit_bytes -= length
        if self.credit_bytes <= 0:
            self.credit = 0
