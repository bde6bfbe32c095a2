"""The subscription for a type."""

from pydanube.dispatch.key_shared import KeySharedSubscription
from pydanube.dispatch.live import (
    LiveFailoverSubscription,
    LiveKeySharedSubscription,
    LiveSharedSubscription,
    LiveSubscription,
)
from pydanube.dispatch.reliable import ReliableSubscription
from pydanube.dispatch.settings import WINDOW_BYTES_DEFAULT, WINDOW_DEFAULT, Settings
from pydanube.dispatch.shared import SharedSubscription
from pydanube.dispatch.single_active import ExclusiveSubscription, FailoverSubscription
from pydanube.kernel.policies import FailurePolicy, SubscriptionType


def reliable_subscription(
    kind: SubscriptionType,
    *,
    cursor: int = -1,
    window: int = WINDOW_DEFAULT,
    window_bytes: int = WINDOW_BYTES_DEFAULT,
    policy: FailurePolicy | None = None,
    dispatch_rate: int = 0,
) -> ReliableSubscription:
    """A reliable subscription that continues behind `cursor`."""
    settings = Settings(window, window_bytes, policy or FailurePolicy(), dispatch_rate)
    if kind is SubscriptionType.EXCLUSIVE:
        return ExclusiveSubscription(cursor, settings)
    if kind is SubscriptionType.FAILOVER:
        return FailoverSubscription(cursor, settings)
    if kind is SubscriptionType.SHARED:
        return SharedSubscription(cursor, settings)
    return KeySharedSubscription(cursor, settings)


def live_subscription(kind: SubscriptionType) -> LiveSubscription:
    """A subscription of a non-reliable topic."""
    if kind is SubscriptionType.SHARED:
        return LiveSharedSubscription()
    if kind is SubscriptionType.KEY_SHARED:
        return LiveKeySharedSubscription()
    return LiveFailoverSubscription(exclusive=kind is SubscriptionType.EXCLUSIVE)
