"""THE TABLE: which permission each call of each front door needs, and on what.

Names of operations are gRPC paths, and `native:` names for frames of the native protocol. An HTTP route asks under the
path of the RPC it stands for, so that the doors cannot differ, and under an `http:` name if there is none. What is not
listed here is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import Enum
from typing import Final

from pydanube.security.permissions import (
    CLUSTER,
    Permission,
    Resource,
    ResourceKind,
    broker_resource,
    namespace_resource,
    subject_resource,
    topic_resource,
)


class ResourceFrom(Enum):
    """How a front door finds the resource of a call."""

    NOTHING = "nothing"
    """Being authenticated is enough: there is no resource."""
    CLUSTER = "cluster"
    BROKER = "broker"
    """`field` holds the broker's id."""
    NAMESPACE = "namespace"
    """`field` holds the namespace."""
    TOPIC = "topic"
    """`field` holds the topic's name."""
    SUBJECT = "subject"
    """`field` holds the schema subject."""
    CONSUMER = "consumer"
    """`field` holds the id of a consumer: its topic, or if there is no such consumer, the topic named ""."""
    IMPORT = "import"
    """`field` holds the id of an import under way: the topic it will make, or without one, the topic named ""."""
    CHANNEL = "channel"
    """The topic that the frame's channel was opened for."""


_KIND: Final = {
    ResourceFrom.CLUSTER: ResourceKind.CLUSTER,
    ResourceFrom.BROKER: ResourceKind.BROKER,
    ResourceFrom.NAMESPACE: ResourceKind.NAMESPACE,
    ResourceFrom.TOPIC: ResourceKind.TOPIC,
    ResourceFrom.SUBJECT: ResourceKind.SUBJECT,
    ResourceFrom.CONSUMER: ResourceKind.TOPIC,
    ResourceFrom.IMPORT: ResourceKind.TOPIC,
    ResourceFrom.CHANNEL: ResourceKind.TOPIC,
}

_MADE_OF_NAME: Final[dict[ResourceKind, Callable[[str], Resource]]] = {
    ResourceKind.CLUSTER: lambda name: CLUSTER,
    ResourceKind.BROKER: broker_resource,
    ResourceKind.NAMESPACE: namespace_resource,
    ResourceKind.TOPIC: topic_resource,
    ResourceKind.SUBJECT: subject_resource,
}


ADMINISTRATIVE: Final = frozenset(
    {
        Permission.MANAGE_NAMESPACE,
        Permission.MANAGE_TOPIC,
        Permission.MANAGE_SCHEMA,
        Permission.MANAGE_BROKER,
        Permission.MANAGE_CLUSTER,
        Permission.READ_METRICS,
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    permission: Permission | None
    """None: every authenticated caller may."""
    resource: ResourceFrom
    field: str = ""
    """Of the request, a dot before the field of a message in it."""
    changes: bool = False
    """An administrative call that changes something; others only look."""
    kind: ResourceKind | None = attribute(init=False)
    """What kind of resource the call must be checked on."""
    administrative: bool = attribute(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", _KIND.get(self.resource))
        object.__setattr__(self, "administrative", self.permission in ADMINISTRATIVE)

    def on(self, name: str = "") -> Resource:
        """The resource to check, by the name that was found for it; calls without one are about the cluster."""
        return CLUSTER if self.kind is None else _MADE_OF_NAME[self.kind](name)


_ANYONE: Final = Rule(None, ResourceFrom.NOTHING)


def _service(name: str, rules: dict[str, Rule]) -> dict[str, Rule]:
    return {f"/{name}/{method}": rule for method, rule in rules.items()}


def _on_topic(permission: Permission, field: str) -> Rule:
    return Rule(permission, ResourceFrom.TOPIC, field)


def _on_channel(permission: Permission) -> Rule:
    return Rule(permission, ResourceFrom.CHANNEL)


def _changes(permission: Permission, resource: ResourceFrom, field: str = "") -> Rule:
    return Rule(permission, resource, field, changes=True)


_CLIENT: Final = (
    _service(
        "danube.ProducerService",
        {
            "CreateProducer": _on_topic(Permission.PRODUCE, "topic_name"),
            "SendMessage": _on_topic(Permission.PRODUCE, "msg_id.topic_name"),
        },
    )
    | _service(
        "danube.ConsumerService",
        {
            "Subscribe": _on_topic(Permission.CONSUME, "topic_name"),
            "ReceiveMessages": Rule(Permission.CONSUME, ResourceFrom.CONSUMER, "consumer_id"),
            "Ack": _on_topic(Permission.CONSUME, "msg_id.topic_name"),
            "Nack": _on_topic(Permission.CONSUME, "msg_id.topic_name"),
        },
    )
    | _service(
        "danube.Discovery",
        {
            "TopicLookup": _on_topic(Permission.LOOKUP, "topic"),
            "TopicPartitions": _on_topic(Permission.LOOKUP, "topic"),
        },
    )
    | _service("danube.HealthCheck", {"HealthCheck": _ANYONE})
    | _service("danube.StorageService", {"ListSegmentDescriptors": _ANYONE})
    | _service(
        "danube.edge.EdgeReplicatorService",
        {
            # An edge's namespace has the edge's name. The heartbeat tells the edge's schemas: registered edges only.
            "RegisterEdge": Rule(Permission.REPLICATE, ResourceFrom.NAMESPACE, "edge_name"),
            "EdgeHeartbeat": Rule(Permission.REPLICATE, ResourceFrom.NAMESPACE, "edge_name"),
            "ReplicateData": _on_topic(Permission.REPLICATE, "topic_name"),
        },
    )
)

_NATIVE: Final = {
    "native:hello": _ANYONE,
    "native:lookup": _on_topic(Permission.LOOKUP, "topic"),
    "native:open_producer": _on_topic(Permission.PRODUCE, "topic"),
    "native:publish": _on_channel(Permission.PRODUCE),
    "native:subscribe": _on_topic(Permission.CONSUME, "topic"),
    "native:open_reader": _on_topic(Permission.CONSUME, "topic"),
    "native:credit": _on_channel(Permission.CONSUME),
    "native:ack": _on_channel(Permission.CONSUME),
    "native:nack": _on_channel(Permission.CONSUME),
    "native:seek": _on_channel(Permission.CONSUME),
}

_HTTP: Final = {"http:metrics": Rule(Permission.READ_METRICS, ResourceFrom.CLUSTER)}

_ADMIN: Final = (
    _service(
        "danube_admin.BrokerAdmin",
        {
            "ListBrokers": Rule(Permission.MANAGE_BROKER, ResourceFrom.CLUSTER),
            "GetLeaderBroker": Rule(Permission.MANAGE_BROKER, ResourceFrom.CLUSTER),
            "ListNamespaces": Rule(Permission.MANAGE_NAMESPACE, ResourceFrom.CLUSTER),
            "UnloadBroker": _changes(Permission.MANAGE_BROKER, ResourceFrom.BROKER, "broker_id"),
            "ActivateBroker": _changes(Permission.MANAGE_BROKER, ResourceFrom.BROKER, "broker_id"),
            "GetClusterBalance": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "TriggerRebalance": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
        },
    )
    | _service(
        "danube_admin.ClusterAdmin",
        {
            "ClusterStatus": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "AddNode": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "PromoteNode": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "RemoveNode": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
        },
    )
    | _service(
        "danube_admin.NamespaceAdmin",
        {
            "GetNamespaceTopics": Rule(Permission.MANAGE_NAMESPACE, ResourceFrom.NAMESPACE, "name"),
            "GetNamespacePolicies": Rule(Permission.MANAGE_NAMESPACE, ResourceFrom.NAMESPACE, "name"),
            "CreateNamespace": _changes(Permission.MANAGE_NAMESPACE, ResourceFrom.NAMESPACE, "name"),
            "DeleteNamespace": _changes(Permission.MANAGE_NAMESPACE, ResourceFrom.NAMESPACE, "name"),
        },
    )
    | _service(
        "danube_admin.TopicAdmin",
        {
            "ListNamespaceTopics": Rule(Permission.MANAGE_TOPIC, ResourceFrom.NAMESPACE, "name"),
            "ListBrokerTopics": Rule(Permission.MANAGE_TOPIC, ResourceFrom.BROKER, "broker_id"),
            "CreateTopic": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "name"),
            "CreatePartitionedTopic": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "base_name"),
            "DeleteTopic": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "name"),
            "UnloadTopic": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "name"),
            "ListSubscriptions": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "name"),
            "Unsubscribe": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
            "SetSubscriptionFailurePolicy": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
            "GetSubscriptionFailurePolicy": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
            "DescribeTopic": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "name"),
            "SetSubscriptionDispatchConfig": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
            "GetSubscriptionDispatchConfig": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        },
    )
    | _service(
        "danube_admin.SecurityAdmin",
        {
            "CreateRole": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "GetRole": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "DeleteRole": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "ListRoles": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "CreateBinding": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "GetBinding": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "DeleteBinding": _changes(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "ListBindings": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
            "ListAllBindings": Rule(Permission.MANAGE_CLUSTER, ResourceFrom.CLUSTER),
        },
    )
)

_SCHEMAS: Final = _service(
    "danube_schema.SchemaRegistry",
    {
        "RegisterSchema": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "GetSchema": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.CLUSTER),
        "GetLatestSchema": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "ListVersions": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "CheckCompatibility": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "DeleteSchemaVersion": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "SetCompatibilityMode": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.SUBJECT, "subject"),
        "ConfigureTopicSchema": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.TOPIC, "topic_name"),
        "UpdateTopicValidationPolicy": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.TOPIC, "topic_name"),
        "GetTopicSchemaConfig": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.TOPIC, "topic_name"),
        "ListSubjects": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.CLUSTER),
    },
)

_STORAGE: Final = _service(
    "pydanube.storage.v1.StorageAdmin",
    {
        "Seal": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "ListSegments": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "DescribeStorage": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "ReadSegment": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "BeginImport": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        # A part is no change by itself: begin and finish are, once for an import.
        "ImportPart": Rule(Permission.MANAGE_TOPIC, ResourceFrom.IMPORT, "topic_id"),
        "FinishImport": _changes(Permission.MANAGE_TOPIC, ResourceFrom.IMPORT, "topic_id"),
        "AbandonImport": _changes(Permission.MANAGE_TOPIC, ResourceFrom.IMPORT, "topic_id"),
        "BeginReplacement": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "ReplacementPart": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "FinishReplacement": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "AbandonReplacement": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "DropCopies": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
    },
)

_HISTORY: Final = _service(
    "pydanube.storage.v1.History",
    {
        "ListTopics": Rule(Permission.LOOKUP, ResourceFrom.NAMESPACE, "namespace"),
        "DescribeStorage": _on_topic(Permission.CONSUME, "topic"),
        "ListSegments": _on_topic(Permission.CONSUME, "topic"),
        "ReadSegment": _on_topic(Permission.CONSUME, "topic"),
    },
)

_OPERATORS: Final = _service(
    "pydanube.admin.v1.Admin",
    {
        "SetNamespacePolicies": _changes(Permission.MANAGE_NAMESPACE, ResourceFrom.NAMESPACE, "namespace"),
        "SetTopicPolicies": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "GetTopicPolicies": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "TopicStats": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "DescribeSubscription": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "ResetCursor": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "Purge": _changes(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        "PeekMessages": Rule(Permission.MANAGE_TOPIC, ResourceFrom.TOPIC, "topic"),
        # What refers to other subjects reads them, and keeps their versions from being deleted.
        "RegisterSchemaWithReferences": _changes(Permission.MANAGE_SCHEMA, ResourceFrom.CLUSTER),
        "CheckSchemaWithReferences": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.CLUSTER),
        "GetSchemaReferences": Rule(Permission.MANAGE_SCHEMA, ResourceFrom.CLUSTER),
    },
)

OPERATIONS: Final[dict[str, Rule]] = (
    _CLIENT | _NATIVE | _HTTP | _ADMIN | _SCHEMAS | _STORAGE | _HISTORY | _OPERATORS
)
