"""The broker's facts in the metadata store: which keys, which JSON.

A namespace exists when its policy key does, a topic when its own key does; what belongs to a topic lies
below its key. Names are percent-encoded into one path part each.
"""

from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import quote, unquote

import msgspec

from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import DispatchStrategy, FailurePolicy, Policies, SubscriptionType
from pydanube.metadata.store import TRANSACTION_OPERATIONS_MAX, Delete, Entry, MetadataStore, Write
from pydanube.schemas.topic_schemas import TopicSchema

TOPICS = "/topics"
NAMESPACES = "/namespaces"
TOPIC_ID_COUNTER = "/counters/topic_id"
"""Numbers are never handed out twice: a topic made again under an old name is another topic."""

Record = TypeVar("Record", bound=msgspec.Struct)


class TopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What never changes of a topic."""

    id: int
    dispatch: DispatchStrategy
    created_ms: int


class ProducerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` counts the sessions of an idempotent producer; 0 if it never was one."""

    id: int
    name: str
    exclusive: bool = False
    epoch: int = 0


class ConsumerFacts(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    name: str
    key_filters: tuple[str, ...] = ()


class SubscriptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A durable subscription and its registered consumers, in joining order.

    `initial_cursor` is where it began; the journal knows how far it has come since.
    """

    name: str
    type: SubscriptionType
    initial_cursor: int
    consumers: tuple[ConsumerFacts, ...] = ()


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a broker takes topics: active, draining or drained, and why."""

    mode: str = "active"
    reason: str = ""


class DispatchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription's own window, where an operator set one."""

    max_unacked_messages: int


def topic_key(topic: TopicName) -> str:
    return f"{TOPICS}/{quote(topic.namespace, safe='')}/{quote(topic.topic, safe='')}"


def topic_policy_key(topic: TopicName) -> str:
    return topic_key(topic) + "/policy"


def producer_key(topic: TopicName, producer_id: int) -> str:
    return f"{topic_key(topic)}/producers/{producer_id}"


def subscription_key(topic: TopicName, subscription: str) -> str:
    return f"{topic_key(topic)}/subscriptions/{quote(subscription, safe='')}"


def failure_policy_key(topic: TopicName, subscription: str) -> str:
    return subscription_key(topic, subscription) + "/failure_policy"


def dispatch_key(topic: TopicName, subscription: str) -> str:
    return subscription_key(topic, subscription) + "/dispatch_config"


def broker_state_key(broker_id: str) -> str:
    return f"/cluster/brokers/{quote(broker_id, safe='')}/state"


def namespace_policy_key(namespace: str) -> str:
    return f"{NAMESPACES}/{quote(namespace, safe='')}/policy"


async def delete_topic(store: MetadataStore, topic: TopicName, and_write: Sequence[Write] = ()) -> None:
    """Remove a topic with all that belongs to it, and do the other writes in the moment it ceases to exist.

    Cut short before that moment, the topic exists with fewer producers and subscriptions: delete it again.
    """
    key = topic_key(topic)
    last: list[Write] = [Delete(key), *and_write]
    rest: list[Write] = [Delete(entry.key) for entry in await store.list(key) if entry.key != key]
    while len(rest) + len(last) > TRANSACTION_OPERATIONS_MAX:
        await store.transact([], rest[:TRANSACTION_OPERATIONS_MAX])
        del rest[:TRANSACTION_OPERATIONS_MAX]
    await store.transact([], [*rest, *last])


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(entry: Entry, kind: type[Record]) -> Record:
    return msgspec.json.decode(entry.value, type=kind)


class StoredSubscription(msgspec.Struct):
    """All facts of one subscription, as read at start."""

    facts: SubscriptionFacts | None = None
    failure_policy: FailurePolicy = FailurePolicy()
    max_unacked_messages: int | None = None


class StoredTopic(msgspec.Struct):
    """All facts of one topic, as read at start."""

    name: TopicName
    facts: TopicFacts | None = None
    policies: Policies | None = None
    schema: TopicSchema = TopicSchema()
    producers: list[ProducerFacts] = msgspec.field(default_factory=list)
    subscriptions: dict[str, StoredSubscription] = msgspec.field(default_factory=dict)


async def load_namespaces(store: MetadataStore) -> dict[str, Policies]:
    found = {}
    for entry in await store.list(NAMESPACES):
        parts = entry.key.split("/")[2:]
        if len(parts) == 2 and parts[1] == "policy":
            found[unquote(parts[0])] = decode(entry, Policies)
    return found


async def load_topic_policies(store: MetadataStore, topic: TopicName) -> Policies | None:
    """A topic's own limits, which may have been stored before the topic existed."""
    entry = await store.get(topic_policy_key(topic))
    return None if entry is None else decode(entry, Policies)


async def load_subscription_settings(
    store: MetadataStore, topic: TopicName, subscription: str
) -> StoredSubscription:
    """What an operator set for a subscription, which may have been stored before it existed."""
    settings = StoredSubscription()
    policy = await store.get(failure_policy_key(topic, subscription))
    if policy is not None:
        settings.failure_policy = decode(policy, FailurePolicy)
    window = await store.get(dispatch_key(topic, subscription))
    if window is not None:
        settings.max_unacked_messages = decode(window, DispatchFacts).max_unacked_messages
    return settings


async def load_topics(store: MetadataStore) -> list[StoredTopic]:
    """Read every topic with all that belongs to it, in one listing."""
    topics: dict[TopicName, StoredTopic] = {}
    for entry in await store.list(TOPICS):
        namespace, topic, *rest = (unquote(part) for part in entry.key.split("/")[2:])
        name = TopicName(namespace, topic)
        stored = topics.setdefault(name, StoredTopic(name=name))
        match rest:
            case []:
                stored.facts = decode(entry, TopicFacts)
            case ["policy"]:
                stored.policies = decode(entry, Policies)
            case ["schema_config"]:
                stored.schema = decode(entry, TopicSchema)
            case ["producers", _]:
                stored.producers.append(decode(entry, ProducerFacts))
            case ["subscriptions", subscription, *field]:
                _add_subscription_fact(stored, subscription, field, entry)
    # Settings may be stored before the topic they are for exists.
    return [stored for stored in topics.values() if stored.facts is not None]


def _add_subscription_fact(stored: StoredTopic, subscription: str, field: list[str], entry: Entry) -> None:
    held = stored.subscriptions.setdefault(subscription, StoredSubscription())
    match field:
        case []:
            held.facts = decode(entry, SubscriptionFacts)
        case ["failure_policy"]:
            held.failure_policy = decode(entry, FailurePolicy)
        case ["dispatch_config"]:
            held.max_unacked_messages = decode(entry, DispatchFacts).max_unacked_messages
