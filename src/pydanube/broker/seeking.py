"""Moving a whole subscription to another place in its topic's log."""

from pydanube.broker import facts
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import Topic
from pydanube.kernel.errors import Rejected
from pydanube.kernel.positions import Position, PositionKind
from pydanube.metadata.store import MetadataStore


async def move_subscription(
    topic: Topic, subscription: Subscription, position: Position, store: MetadataStore
) -> int:
    """Go on at `position`, also backwards; returns the offset that is. `topic.changing` must be held."""
    if not isinstance(topic, ReliableTopic) or not isinstance(subscription, DurableSubscription):
        raise Rejected(f"topic {topic.text} is non-reliable: there is nothing to seek in")
    if position.kind is PositionKind.CURSOR:
        next_offset = subscription.next_offset
    else:
        next_offset = await topic.find(position)
    # First where it begins at the latest, then how far it has come: a crash in between changes nothing.
    if next_offset - 1 < subscription.initial_cursor:
        subscription.initial_cursor = next_offset - 1
        key = facts.subscription_key(topic.name, subscription.name)
        await store.put(key, facts.encode(subscription.facts))
    subscription.seek(next_offset)
    await topic.log.move_cursor(subscription.name, subscription.cursor)
    return next_offset
