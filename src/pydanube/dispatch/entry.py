"""A message or a range of messages inside the dispatch window."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydanube.dispatch.consumer import Consumer
    from pydanube.dispatch.key_queue import KeyQueue

READY: Final = 0
"""To be sent: read from the log, or due again."""
AWAITING_ACK: Final = 1
"""Sent to `consumer`; `due_ms` is the ack deadline."""
WAITING: Final = 2
"""Failed; becomes ready again at `due_ms`."""
BLOCKED: Final = 3
"""Failed too often under the block policy: stays until the policy changes."""
EXHAUSTED: Final = 4
"""Failed too often under the dead-letter policy: its copy is to be published, at `due_ms` if that failed."""
DEAD_LETTERING: Final = 5
"""The driver is publishing its copy."""
SETTLED: Final = 6
"""Acked or skipped; no longer in the window."""
DELAYED: Final = 7
"""Never sent: its delivery time is still to come."""

STATE_NAMES: Final = (
    "ready",
    "awaiting-ack",
    "waiting",
    "blocked",
    "exhausted",
    "dead-lettering",
    "settled",
    "delayed",
)

NEVER: Final = 1 << 59
"""A moment that does not come; small enough to stay a plain machine number when compiled."""


class Entry:
    """`count` offsets from `offer` until they are settled. Holds the bytes, so a redelivery needs no second read.

    They share one state. An ack or a nack of some of them splits the entry; the parts hold the same `message`,
    whose first offset is `base`.
    """

    __slots__ = (
        "append_ms",
        "attempts",
        "base",
        "consumer",
        "count",
        "due_ms",
        "expires_ms",
        "key_queue",
        "message",
        "offset",
        "reason",
        "state",
    )

    def __init__(  # noqa: PLR0917 - one per message: by position is fastest
        self, offset: int, message: bytes, count: int, base: int, expires_ms: int, append_ms: int
    ) -> None:
        self.offset = offset
        self.message = message
        self.count = count
        self.base = base
        self.append_ms = append_ms
        """When it was appended, Unix milliseconds; only passed on."""
        self.expires_ms = expires_ms
        """When it is no longer worth sending; 0 for an entry that has to do with neither delays nor expiry."""
        self.state = READY
        self.attempts = 0
        """Sends so far, also those repeated because a stream was lost."""
        self.due_ms = NEVER
        self.consumer: Consumer | None = None
        """Whom it was sent to, while awaiting the ack."""
        self.reason: str | None = None
        """What the last nack said."""
        self.key_queue: KeyQueue | None = None

    def describe(self) -> str:
        """For a failed assertion."""
        return f"offset={self.offset} count={self.count} state={STATE_NAMES[self.state]} attempts={self.attempts} due_ms={self.due_ms}"
