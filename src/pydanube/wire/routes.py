"""Which method of the gRPC API is served by what."""

from dataclasses import dataclass

from pydanube.broker.administration import Administration
from pydanube.broker.broker import Broker
from pydanube.broker.schema_control import SchemaControl
from pydanube.broker.storage_control import StorageControl
from pydanube.kernel.clock import Clock
from pydanube.security.policy_store import PolicyStore
from pydanube.wire.admin_brokers_service import AdminBrokersService, Registration
from pydanube.wire.admin_cluster_service import AdminClusterService
from pydanube.wire.admin_namespaces_service import AdminNamespacesService
from pydanube.wire.admin_topics_service import AdminTopicsService
from pydanube.wire.consumer_service import ConsumerService
from pydanube.wire.discovery_service import Advertised, DiscoveryService
from pydanube.wire.grpc_connection import Handler, asynchronous
from pydanube.wire.health_service import HealthService
from pydanube.wire.history_service import HistoryService
from pydanube.wire.producer_service import ProducerService
from pydanube.wire.pydanube_admin_service import PydanubeAdminService
from pydanube.wire.schema_references_service import SchemaReferencesService
from pydanube.wire.schema_registry_service import SchemaRegistryService
from pydanube.wire.security_admin_service import SecurityAdminService
from pydanube.wire.storage_admin_service import StorageAdminService
from pydanube.wire.storage_service import StorageService


@dataclass(frozen=True, slots=True)
class DataPlane:
    """The services of the client port."""

    producer: ProducerService
    consumer: ConsumerService
    discovery: DiscoveryService
    health: HealthService
    storage: StorageService
    schemas: SchemaRegistryService
    references: SchemaReferencesService
    history: HistoryService

    @classmethod
    def of(cls, broker: Broker, advertised: Advertised, storage: StorageControl) -> "DataPlane":
        return cls(
            ProducerService(broker),
            ConsumerService(broker),
            DiscoveryService(broker, advertised),
            HealthService(broker),
            StorageService(storage),
            SchemaRegistryService(broker.schemas),
            SchemaReferencesService(broker.schemas.registry),
            HistoryService(storage),
        )

    def routes(self) -> dict[str, Handler]:
        return {
            "/danube.ProducerService/CreateProducer": asynchronous(self.producer.create_producer),
            "/danube.ProducerService/SendMessage": self.producer.send_message,
            "/danube.ConsumerService/Subscribe": asynchronous(self.consumer.subscribe),
            "/danube.ConsumerService/ReceiveMessages": self.consumer.receive_messages,
            "/danube.ConsumerService/Ack": self.consumer.ack,
            "/danube.ConsumerService/Nack": self.consumer.nack,
            "/danube.Discovery/TopicLookup": self.discovery.topic_lookup,
            "/danube.Discovery/TopicPartitions": self.discovery.topic_partitions,
            "/danube.HealthCheck/HealthCheck": self.health.health_check,
            "/danube.StorageService/ListSegmentDescriptors": self.storage.list_segment_descriptors,
        } | {
            path: asynchronous(answer)
            for service in (self.schemas, self.references, self.history)
            for path, answer in service.methods().items()
        }


@dataclass(frozen=True, slots=True)
class AdminPlane:
    """The services of the admin port."""

    brokers: AdminBrokersService
    cluster: AdminClusterService
    namespaces: AdminNamespacesService
    topics: AdminTopicsService
    own: PydanubeAdminService
    storage: StorageAdminService
    schemas: SchemaRegistryService
    references: SchemaReferencesService
    security: SecurityAdminService

    @classmethod
    def of(
        cls,
        administration: Administration,
        storage: StorageControl,
        *,
        registration: Registration,
        schemas: SchemaControl,
        policies: PolicyStore,
        clock: Clock,
    ) -> "AdminPlane":
        return cls(
            AdminBrokersService(administration, registration),
            AdminClusterService(administration, registration),
            AdminNamespacesService(administration),
            AdminTopicsService(administration, registration, schemas.registry),
            PydanubeAdminService(administration, clock),
            StorageAdminService(storage),
            SchemaRegistryService(schemas),
            SchemaReferencesService(schemas.registry),
            SecurityAdminService(policies),
        )

    def routes(self) -> dict[str, Handler]:
        services = (
            self.brokers,
            self.cluster,
            self.namespaces,
            self.topics,
            self.own,
            self.storage,
            self.schemas,
            self.references,
            self.security,
        )
        return {
            path: asynchronous(answer) for service in services for path, answer in service.methods().items()
        }
