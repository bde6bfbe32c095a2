"""The registry's API without a network: every method of the published service is there, and statuses are told apart."""

from typing import Any

import pytest

from pydanube.broker.directory import TopicDirectory
from pydanube.broker.schema_control import SchemaControl
from pydanube.kernel.errors import DanubeError, Status
from pydanube.metadata import MemoryStore
from pydanube.protocol import schema_registry_pb2 as pb
from pydanube.protocol.http2 import Headers
from pydanube.schemas.registry import SchemaRegistry
from pydanube.server.process import SystemClock
from pydanube.wire.schema_registry_service import SchemaRegistryService

SERVICE = pb.DESCRIPTOR.services_by_name["SchemaRegistry"]


@pytest.fixture
def service() -> SchemaRegistryService:
    clock = SystemClock()
    store = MemoryStore(clock)
    return SchemaRegistryService(SchemaControl(TopicDirectory(), store, SchemaRegistry(store, clock)))


async def ask(service: SchemaRegistryService, method: str, **fields: Any) -> Any:
    described = SERVICE.methods_by_name[method]
    request = getattr(pb, described.input_type.name)(**fields)
    answer = await service.methods()[f"/{SERVICE.full_name}/{method}"](
        request.SerializeToString(), Headers("POST", "", {}, -1)
    )
    return getattr(pb, described.output_type.name).FromString(answer)


def test_every_method_is_served(service: SchemaRegistryService) -> None:
    assert set(service.methods()) == {f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods}


async def test_a_registration_and_its_way_back(service: SchemaRegistryService) -> None:
    made = await ask(service, "RegisterSchema", subject="s", schema_type="String")
    assert (made.schema_id, made.version, made.is_new_version, made.fingerprint) == (1, 1, True, "string")
    assert (await ask(service, "GetSchema", schema_id=1)).schema_definition == b'"String"'
    assert [each.subject for each in (await ask(service, "ListSubjects")).subjects] == ["s"]


@pytest.mark.parametrize(
    ("status", "method", "fields"),
    [
        (Status.INTERNAL, "RegisterSchema", {"subject": "s", "schema_type": "xml"}),
        (Status.INTERNAL, "RegisterSchema", {"subject": "s", "schema_type": "avro"}),
        (Status.INVALID_ARGUMENT, "RegisterSchema", {"subject": "", "schema_type": "string"}),
        (Status.INVALID_ARGUMENT, "RegisterSchema", {"subject": "a\nb", "schema_type": "string"}),
        (Status.NOT_FOUND, "GetSchema", {"schema_id": 9}),
        (Status.NOT_FOUND, "GetLatestSchema", {"subject": "unknown"}),
        (Status.NOT_FOUND, "ListVersions", {"subject": "unknown"}),
        (Status.INTERNAL, "CheckCompatibility", {"subject": "unknown", "schema_type": "string"}),
        (Status.INTERNAL, "SetCompatibilityMode", {"subject": "unknown", "compatibility_mode": "FULL"}),
        (Status.INVALID_ARGUMENT, "SetCompatibilityMode", {"subject": "s", "compatibility_mode": "half"}),
        (Status.INVALID_ARGUMENT, "ConfigureTopicSchema", {"topic_name": "/a/b", "validation_policy": "x"}),
        (
            Status.NOT_FOUND,
            "ConfigureTopicSchema",
            {"topic_name": "/a/b", "schema_subject": "unknown", "validation_policy": "none"},
        ),
        (
            Status.NOT_FOUND,
            "UpdateTopicValidationPolicy",
            {"topic_name": "/a/b", "validation_policy": "warn"},
        ),
        (Status.INVALID_ARGUMENT, "UpdateTopicValidationPolicy", {"topic_name": "/a/b"}),
        (Status.NOT_FOUND, "GetTopicSchemaConfig", {"topic_name": "/a/b"}),
        (Status.INVALID_ARGUMENT, "GetTopicSchemaConfig", {"topic_name": "no/such/name"}),
    ],
)
async def test_statuses(
    service: SchemaRegistryService, status: Status, method: str, fields: dict[str, str]
) -> None:
    with pytest.raises(DanubeError) as refused:
        await ask(service, method, **fields)
    assert refused.value.status is status


async def test_deleting_what_is_not_there_succeeds(service: SchemaRegistryService) -> None:
    assert (await ask(service, "DeleteSchemaVersion", subject="unknown", version=1)).success
