"""What can be permitted, on what, and where a permission is looked for."""

from enum import StrEnum
from typing import Final, NamedTuple

from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import NAME_CHARACTERS_MAX


class Permission(StrEnum):
    """None of them implies another."""

    LOOKUP = "Lookup"
    PRODUCE = "Produce"
    CONSUME = "Consume"
    REPLICATE = "Replicate"
    MANAGE_NAMESPACE = "ManageNamespace"
    MANAGE_TOPIC = "ManageTopic"
    MANAGE_SCHEMA = "ManageSchema"
    MANAGE_BROKER = "ManageBroker"
    MANAGE_CLUSTER = "ManageCluster"
    READ_METRICS = "ReadMetrics"
    """Ours, so that a scraper need not be trusted with anything else."""


class Scope(StrEnum):
    """How far a binding reaches."""

    CLUSTER = "cluster"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class ResourceKind(StrEnum):
    CLUSTER = "cluster"
    BROKER = "broker"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    SUBJECT = "subject"


class Place(NamedTuple):
    """Where bindings are looked for: a scope and the one resource of it."""

    scope: Scope
    name: str


class Resource(NamedTuple):
    """What a call is about. Names are those of the request and may be malformed: access is checked before form."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        """For people: a name that is much too long is cut."""
        return f"{self.kind}:{self.name[:NAME_CHARACTERS_MAX]}" if self.name else str(self.kind)


CLUSTER: Final = Resource(ResourceKind.CLUSTER, "")

_EVERYWHERE: Final = Place(Scope.CLUSTER, "")
_NARROWEST_SCOPE: Final = {
    ResourceKind.CLUSTER: Scope.CLUSTER,
    ResourceKind.BROKER: Scope.CLUSTER,
    ResourceKind.NAMESPACE: Scope.NAMESPACE,
    ResourceKind.TOPIC: Scope.TOPIC,
    ResourceKind.SUBJECT: Scope.TOPIC,
}


def broker_resource(broker_id: str) -> Resource:
    return Resource(ResourceKind.BROKER, broker_id)


def namespace_resource(name: str) -> Resource:
    return Resource(ResourceKind.NAMESPACE, name.removeprefix("/"))


def topic_resource(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, "/" + name.removeprefix("/"))


def subject_resource(name: str) -> Resource:
    return Resource(ResourceKind.SUBJECT, name)


def parse_scope(text: str) -> Scope:
    """The scope of that name, or Rejected."""
    try:
        return Scope(text)
    except ValueError:
        raise Rejected(f"there is no scope {text[:40]!r}, only {', '.join(Scope)}") from None


def narrowest_scope(resource: Resource) -> Scope:
    """The narrowest binding that can grant anything on this resource; labels the counters of decisions."""
    return _NARROWEST_SCOPE[resource.kind]


def place_of(scope: Scope, resource_name: str) -> Place:
    """The place a binding is for. A leading slash makes no difference, and the cluster has no name."""
    if scope is Scope.CLUSTER:
        return _EVERYWHERE
    name = resource_name.removeprefix("/")
    return Place(scope, name if scope is Scope.NAMESPACE else "/" + name)


def places_of(resource: Resource) -> tuple[Place, ...]:
    """Every place whose bindings count for this resource, widest first.

    A schema subject counts as the topic of the same name: subjects are usually named after topics.
    """
    if resource.kind is ResourceKind.NAMESPACE:
        return (_EVERYWHERE, Place(Scope.NAMESPACE, resource.name))
    if resource.kind is ResourceKind.TOPIC or resource.kind is ResourceKind.SUBJECT:
        path = resource.name.removeprefix("/")
        return (
            _EVERYWHERE,
            Place(Scope.NAMESPACE, path.partition("/")[0]),
            Place(Scope.TOPIC, "/" + path),
        )
    return (_EVERYWHERE,)
