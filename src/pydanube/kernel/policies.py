"""What an operator may set per broker, namespace, topic or subscription. Zero means unlimited."""

from enum import Enum, IntEnum
from typing import Annotated

import msgspec


class DispatchStrategy(IntEnum):
    NON_RELIABLE = 0
    RELIABLE = 1


class SubscriptionType(IntEnum):
    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class FsyncPolicy(Enum):
    """When a reliable publish counts as taken.

    always: after fdatasync of the group it is part of. interval: after the write; synced within the
    configured interval, so a power cut may take the last moments. never: after the write; the
    operating system decides.
    """

    ALWAYS = "always"
    INTERVAL = "interval"
    NEVER = "never"


class PoisonPolicy(Enum):
    BLOCK = "block"
    DROP = "drop"
    DEAD_LETTER = "dead_letter"


class BackoffStrategy(Enum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Policies(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits of a topic: its own record if there is one, else its namespace's."""

    max_producers_per_topic: int = 0
    """Producers of one topic at a time; 0, here and below: as many as come."""
    max_subscriptions_per_topic: int = 0
    """Subscriptions of one topic."""
    max_consumers_per_topic: int = 0
    """Consumers of one topic at a time."""
    max_consumers_per_subscription: int = 0
    """Consumers of one subscription at a time."""
    max_publish_rate: int = 0
    """Messages a second to one topic."""
    max_subscription_dispatch_rate: int = 0
    """Messages a second from one subscription."""
    max_message_size: int = 10 * 1024 * 1024
    """Bytes of a payload."""


class FailurePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a reliable subscription does with a message that is nacked or not acked in time."""

    max_redelivery_count: int = 5
    ack_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 30_000
    base_redelivery_delay_ms: int = 1_000
    max_redelivery_delay_ms: int = 60_000
    backoff_strategy: BackoffStrategy = BackoffStrategy.EXPONENTIAL
    dead_letter_topic: str | None = None
    poison_policy: PoisonPolicy = PoisonPolicy.BLOCK

    def retry_delay_ms(self, *, attempts: int, requested_ms: int = 0) -> int:
        """How long to wait after the `attempts`-th send failed."""
        delay = self.base_redelivery_delay_ms
        if self.backoff_strategy is BackoffStrategy.EXPONENTIAL:
            # The shift is bounded so that a huge attempt count cannot build a huge integer.
            delay <<= min(max(attempts - 1, 0), 32)
        return min(max(delay, requested_ms), self.max_redelivery_delay_ms)


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When sealed history of a topic may be deleted.

    `time_minutes` and `size_mb` drop the oldest segments beyond that age or total size;
    `until_consumed` drops a segment once every subscription is past it. What some subscription has
    not consumed yet is kept whatever its age and size, unless `drop_unconsumed` says otherwise.
    """

    time_minutes: int | None = None
    size_mb: int | None = None
    until_consumed: bool = False
    drop_unconsumed: bool = False
