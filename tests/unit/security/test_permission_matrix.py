"""Every call × every role × every scope, against the rules written down here a second time, as the specification has them."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor

import pydanube.protocol
from pydanube.kernel.errors import ErrorCode, Rejected, Status
from pydanube.metadata import MemoryStore
from pydanube.protocol import native_pb2
from pydanube.security.audit import AuditLog
from pydanube.security.guard import OPEN
from pydanube.security.operations import OPERATIONS, ResourceFrom
from pydanube.security.permissions import (
    CLUSTER,
    Permission,
    Resource,
    Scope,
    broker_resource,
    namespace_resource,
    subject_resource,
    topic_resource,
)
from pydanube.security.policy_guard import PolicyGuard
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import ANONYMOUS, Principal, PrincipalKind
from pydanube.security.rbac import Binding, Role
from pydanube.security.settings import AuditSettings

# service, methods, permission, resource
RULES = """
danube.Discovery                   TopicLookup TopicPartitions                        Lookup           topic
danube.ProducerService             CreateProducer SendMessage                         Produce          topic
danube.ConsumerService             Subscribe ReceiveMessages Ack Nack                 Consume          topic
danube.HealthCheck                 HealthCheck                                        -                -
danube.StorageService              ListSegmentDescriptors                             -                -
danube.edge.EdgeReplicatorService  ReplicateData                                      Replicate        topic
danube.edge.EdgeReplicatorService  RegisterEdge EdgeHeartbeat                         Replicate        namespace
danube_admin.BrokerAdmin           ListBrokers GetLeaderBroker                        ManageBroker     cluster
danube_admin.BrokerAdmin           ListNamespaces                                     ManageNamespace  cluster
danube_admin.BrokerAdmin           UnloadBroker ActivateBroker                        ManageBroker     broker
danube_admin.BrokerAdmin           GetClusterBalance TriggerRebalance                 ManageCluster    cluster
danube_admin.ClusterAdmin          ClusterStatus AddNode PromoteNode RemoveNode       ManageCluster    cluster
danube_admin.SecurityAdmin         CreateRole GetRole DeleteRole ListRoles            ManageCluster    cluster
danube_admin.SecurityAdmin         CreateBinding GetBinding DeleteBinding             ManageCluster    cluster
danube_admin.SecurityAdmin         ListBindings ListAllBindings                       ManageCluster    cluster
danube_admin.NamespaceAdmin        GetNamespaceTopics GetNamespacePolicies            ManageNamespace  namespace
danube_admin.NamespaceAdmin        CreateNamespace DeleteNamespace                    ManageNamespace  namespace
danube_admin.TopicAdmin            ListNamespaceTopics                                ManageTopic      namespace
danube_admin.TopicAdmin            ListBrokerTopics                                   ManageTopic      broker
danube_admin.TopicAdmin            CreateTopic CreatePartitionedTopic DeleteTopic     ManageTopic      topic
danube_admin.TopicAdmin            UnloadTopic ListSubscriptions Unsubscribe          ManageTopic      topic
danube_admin.TopicAdmin            SetSubscriptionFailurePolicy DescribeTopic         ManageTopic      topic
danube_admin.TopicAdmin            GetSubscriptionFailurePolicy                       ManageTopic      topic
danube_admin.TopicAdmin            SetSubscriptionDispatchConfig                      ManageTopic      topic
danube_admin.TopicAdmin            GetSubscriptionDispatchConfig                      ManageTopic      topic
danube_schema.SchemaRegistry       RegisterSchema GetLatestSchema ListVersions        ManageSchema     subject
danube_schema.SchemaRegistry       CheckCompatibility DeleteSchemaVersion             ManageSchema     subject
danube_schema.SchemaRegistry       SetCompatibilityMode                               ManageSchema     subject
danube_schema.SchemaRegistry       GetSchema ListSubjects                             ManageSchema     cluster
danube_schema.SchemaRegistry       ConfigureTopicSchema UpdateTopicValidationPolicy   ManageSchema     topic
danube_schema.SchemaRegistry       GetTopicSchemaConfig                               ManageSchema     topic
pydanube.storage.v1.StorageAdmin   Seal ListSegments DescribeStorage ReadSegment      ManageTopic      topic
pydanube.storage.v1.StorageAdmin   BeginImport ImportPart FinishImport AbandonImport  ManageTopic      topic
pydanube.storage.v1.StorageAdmin   BeginReplacement ReplacementPart FinishReplacement ManageTopic      topic
pydanube.storage.v1.StorageAdmin   AbandonReplacement DropCopies                      ManageTopic      topic
pydanube.storage.v1.History        ListTopics                                         Lookup           namespace
pydanube.storage.v1.History        DescribeStorage ListSegments ReadSegment           Consume          topic
pydanube.admin.v1.Admin            SetNamespacePolicies                               ManageNamespace  namespace
pydanube.admin.v1.Admin            SetTopicPolicies GetTopicPolicies TopicStats       ManageTopic      topic
pydanube.admin.v1.Admin            DescribeSubscription ResetCursor Purge             ManageTopic      topic
pydanube.admin.v1.Admin            PeekMessages                                       ManageTopic      topic
pydanube.admin.v1.Admin            RegisterSchemaWithReferences GetSchemaReferences   ManageSchema     cluster
pydanube.admin.v1.Admin            CheckSchemaWithReferences                          ManageSchema     cluster
native                             lookup                                             Lookup           topic
native                             open_producer publish                              Produce          topic
native                             subscribe open_reader credit ack nack seek         Consume          topic
native                             hello                                              -                -
http                               metrics                                            ReadMetrics      cluster
"""

RESOURCES = {
    "-": CLUSTER,
    "cluster": CLUSTER,
    "broker": broker_resource("17"),
    "namespace": namespace_resource("shop"),
    "topic": topic_resource("/shop/orders"),
    "subject": subject_resource("shop/orders"),
}

# Where a binding may be, and on which resources it counts.
PLACES: dict[tuple[Scope, str], set[str]] = {
    (Scope.CLUSTER, ""): {"cluster", "broker", "namespace", "topic", "subject"},
    (Scope.CLUSTER, "/shop"): {"cluster", "broker", "namespace", "topic", "subject"},
    (Scope.NAMESPACE, "shop"): {"namespace", "topic", "subject"},
    (Scope.NAMESPACE, "/shop"): {"namespace", "topic", "subject"},
    (Scope.NAMESPACE, "shop2"): set(),
    (Scope.NAMESPACE, "sho"): set(),
    (Scope.NAMESPACE, "17"): set(),
    (Scope.TOPIC, "/shop/orders"): {"topic", "subject"},
    (Scope.TOPIC, "/shop/orders2"): set(),
    (Scope.TOPIC, "/shop"): set(),
    (Scope.TOPIC, "/other/orders"): set(),
}


def rules() -> Iterator[tuple[str, str, str]]:
    for line in RULES.strip().splitlines():
        service, *methods, permission, resource = line.split()
        for method in methods:
            yield (
                (f"{service}:{method}" if service in ("native", "http") else f"/{service}/{method}"),
                permission,
                resource,
            )


def test_the_table_lists_exactly_these_calls() -> None:
    assert sorted(operation for operation, _, _ in rules()) == sorted(OPERATIONS)


def test_every_call_we_serve_is_in_the_table_and_its_field_in_the_request() -> None:
    services = 0
    for module in pkgutil.iter_modules(pydanube.protocol.__path__, "pydanube.protocol."):
        if not module.name.endswith("_pb2"):
            continue
        for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
            services += 1
            for method in service.methods:
                rule = OPERATIONS[f"/{service.full_name}/{method.name}"]
                has_field(method.input_type, rule.field)
    assert services >= 6
    requests = {
        "native:lookup": native_pb2.Lookup,
        "native:open_producer": native_pb2.OpenProducer,
        "native:subscribe": native_pb2.Subscribe,
        "native:open_reader": native_pb2.OpenReader,
    }
    for operation, message in requests.items():
        has_field(message.DESCRIPTOR, OPERATIONS[operation].field)


def test_a_rule_makes_the_resource_of_a_name() -> None:
    names = {"broker": "17", "namespace": "/shop", "topic": "shop/orders", "subject": "shop/orders"}
    for operation, _, kind in rules():
        assert OPERATIONS[operation].on(names.get(kind, "")) == RESOURCES[kind], operation


def has_field(message: Descriptor, path: str) -> None:
    for name in filter(None, path.split(".")):
        field = message.fields_by_name[name]
        message = field.message_type


def test_a_field_is_named_wherever_one_is_needed() -> None:
    without = {ResourceFrom.NOTHING, ResourceFrom.CLUSTER, ResourceFrom.CHANNEL}
    for operation, rule in OPERATIONS.items():
        assert bool(rule.field) == (rule.resource not in without), operation


@pytest.fixture
async def guard(policies: PolicyStore, clock, caplog: pytest.LogCaptureFixture) -> PolicyGuard:
    caplog.set_level("CRITICAL", "pydanube.audit")
    return PolicyGuard("tls", None, policies, AuditLog(AuditSettings(), clock))


def allowed(guard: PolicyGuard, principal: Principal, operation: str, resource: Resource) -> bool:
    try:
        guard.check(principal, operation, resource)
    except Rejected as error:
        if (error.code, error.status) != (ErrorCode.PERMISSION_DENIED, Status.PERMISSION_DENIED):
            raise
        return False
    return True


async def test_every_call_with_every_role_at_every_scope(guard: PolicyGuard, policies: PolicyStore) -> None:
    roles = {permission.value: {permission.value} for permission in Permission}
    roles |= {"everything": {permission.value for permission in Permission}, "nothing": set()}
    for name, permissions in roles.items():
        await policies.put_role(Role(name=name, permissions=tuple(sorted(permissions))))
    outcomes = {True: 0, False: 0}
    number = 0
    for role, permissions in [*roles.items(), ("deleted", set[str]())]:
        for (scope, name), covered in PLACES.items():
            number += 1
            holder = Principal(PrincipalKind.SERVICE_ACCOUNT, f"app{number}")
            await policies.put_binding(
                Binding(
                    id=f"b{number}",
                    principal_type="service_account",
                    principal_name=holder.name,
                    role_names=(role,),
                    scope=scope,
                    resource_name=name,
                )
            )
            for operation, permission, kind in rules():
                expected = permission == "-" or (permission in permissions and kind in covered)
                found = allowed(guard, holder, operation, RESOURCES[kind])
                assert found is expected, (operation, role, scope, name)
                outcomes[found] += 1
    assert outcomes[True] > 500
    assert outcomes[False] > 5000


async def test_callers_that_no_binding_is_needed_for(guard: PolicyGuard, metadata: MemoryStore) -> None:
    everything = [(operation, RESOURCES[kind], permission) for operation, permission, kind in rules()]
    for powerful in (
        Principal(PrincipalKind.BROKER_INTERNAL, "broker/17"),
        Principal(PrincipalKind.USER, "root"),
        Principal(PrincipalKind.SERVICE_ACCOUNT, "root"),
    ):
        assert all(allowed(guard, powerful, operation, resource) for operation, resource, _ in everything)
    for powerless in (
        Principal(PrincipalKind.USER, "Root"),
        Principal(PrincipalKind.ANONYMOUS, "root"),
        ANONYMOUS,
    ):
        for operation, resource, permission in everything:
            assert allowed(guard, powerless, operation, resource) is (permission == "-")
    for operation, resource, _ in everything:
        OPEN.check(ANONYMOUS, operation, resource)


@pytest.mark.parametrize(
    "operation",
    [
        "",
        "/",
        "/danube.Discovery/",
        "/danube.Discovery/TopicLookup/",
        "/danube.Discovery/topiclookup",
        "native:drop",
    ],
)
async def test_a_call_without_a_rule_is_denied_even_to_admins(guard: PolicyGuard, operation: str) -> None:
    assert not allowed(guard, Principal(PrincipalKind.USER, "root"), operation, CLUSTER)


async def test_a_door_that_checks_the_wrong_resource_is_a_bug(guard: PolicyGuard) -> None:
    root = Principal(PrincipalKind.USER, "root")
    for operation, permission, kind in rules():
        for other, resource in RESOURCES.items():
            if permission != "-" and other not in ("-", kind):
                with pytest.raises(Exception, match="was to be checked on") as caught:
                    guard.check(root, operation, resource)
                assert caught.value.code is ErrorCode.INTERNAL
