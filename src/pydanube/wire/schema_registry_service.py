"""danube_schema.SchemaRegistry: schemas and their versions, and which topic follows which, as the published tools ask."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from google.protobuf.message import Message

from pydanube.broker.schema_control import SchemaControl
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Status
from pydanube.protocol import schema_registry_pb2 as pb
from pydanube.protocol.http2.headers import Headers
from pydanube.schemas.format import CompatibilityMode, kind_of, mode_of
from pydanube.schemas.registry import RegisteredSchema
from pydanube.schemas.topic_schemas import policy_of
from pydanube.wire.calls import parse
from pydanube.wire.storage_service import topic_of

SERVICE: Final = "/danube_schema.SchemaRegistry/"

_TRANSITIVE: Final = "_transitive"


class SchemaRegistryService:
    """Served on the client port and on the admin port."""

    def __init__(self, schemas: SchemaControl) -> None:
        self._schemas = schemas
        self._registry = schemas.registry

    def methods(self) -> dict[str, Callable[[bytes, Headers], Awaitable[bytes]]]:
        """Every method by its path."""
        answers = {
            "RegisterSchema": self.register_schema,
            "GetSchema": self.get_schema,
            "GetLatestSchema": self.get_latest_schema,
            "ListVersions": self.list_versions,
            "CheckCompatibility": self.check_compatibility,
            "DeleteSchemaVersion": self.delete_schema_version,
            "SetCompatibilityMode": self.set_compatibility_mode,
            "ConfigureTopicSchema": self.configure_topic_schema,
            "UpdateTopicValidationPolicy": self.update_topic_validation_policy,
            "GetTopicSchemaConfig": self.get_topic_schema_config,
            "ListSubjects": self.list_subjects,
        }
        return {SERVICE + name: _encoded(answer) for name, answer in answers.items()}

    # Subjects and versions

    async def register_schema(self, body: bytes) -> Message:
        request = parse(pb.RegisterSchemaRequest, body)
        made = await self._registry.register(
            request.subject,
            kind_of(request.schema_type),
            request.schema_definition,
            description=request.description,
            created_by=request.created_by,
            tags=tuple(request.tags),
        )
        return pb.RegisterSchemaResponse(
            schema_id=made.schema_id,
            version=made.version,
            is_new_version=made.is_new_version,
            fingerprint=made.fingerprint,
        )

    async def get_schema(self, body: bytes) -> Message:
        request = parse(pb.GetSchemaRequest, body)
        version = request.version if request.HasField("version") else None
        return _schema(await self._registry.get(request.schema_id, version))

    async def get_latest_schema(self, body: bytes) -> Message:
        return _schema(await self._registry.latest(parse(pb.GetLatestSchemaRequest, body).subject))

    async def list_versions(self, body: bytes) -> Message:
        versions = await self._registry.versions(parse(pb.ListVersionsRequest, body).subject)
        return pb.ListVersionsResponse(
            versions=[
                pb.SchemaVersionInfo(
                    version=record.version,
                    created_at=record.created_at,
                    created_by=record.created_by,
                    description=record.description,
                    fingerprint=record.fingerprint,
                    schema_id=schema_id,
                )
                for schema_id, record in versions
            ]
        )

    async def check_compatibility(self, body: bytes) -> Message:
        request = parse(pb.CheckCompatibilityRequest, body)
        with _unknown_as_internal():
            problems = await self._registry.check(
                request.subject,
                kind_of(request.schema_type),
                request.new_schema_definition,
                mode=_mode_or_none(request.compatibility_mode),
            )
        return pb.CheckCompatibilityResponse(
            is_compatible=not problems, errors=[problem.text for problem in problems]
        )

    async def delete_schema_version(self, body: bytes) -> Message:
        request = parse(pb.DeleteSchemaVersionRequest, body)
        was_there = await self._registry.delete_version(request.subject, request.version)
        outcome = "deleted" if was_there else "was not there"
        return pb.DeleteSchemaVersionResponse(
            success=True, message=f"version {request.version} of subject '{request.subject}' {outcome}"
        )

    async def set_compatibility_mode(self, body: bytes) -> Message:
        request = parse(pb.SetCompatibilityModeRequest, body)
        mode = mode_of(request.compatibility_mode)
        with _unknown_as_internal():
            await self._registry.set_mode(request.subject, mode)
        return pb.SetCompatibilityModeResponse(
            success=True, message=f"compatibility mode of subject '{request.subject}' is {mode.value}"
        )

    async def list_subjects(self, body: bytes) -> Message:
        parse(pb.ListSubjectsRequest, body)
        return pb.ListSubjectsResponse(
            subjects=[
                pb.SubjectSummary(
                    subject=summary.subject,
                    schema_type=summary.latest.schema_type.value,
                    latest_version=summary.latest.version,
                    compatibility_mode=summary.mode.value,
                    schema_id=summary.schema_id,
                    tags=summary.latest.tags,
                )
                for summary in await self._registry.subjects()
            ]
        )

    # Topics

    async def configure_topic_schema(self, body: bytes) -> Message:
        request = parse(pb.ConfigureTopicSchemaRequest, body)
        policy = policy_of(request.validation_policy)
        topic = topic_of(request.topic_name)
        await self._schemas.configure(
            topic, request.schema_subject, policy, validate_payloads=request.enable_payload_validation
        )
        return pb.ConfigureTopicSchemaResponse(
            success=True,
            message=f"topic {topic} follows subject '{request.schema_subject}' with validation policy {policy.value}",
        )

    async def update_topic_validation_policy(self, body: bytes) -> Message:
        request = parse(pb.UpdateTopicValidationPolicyRequest, body)
        policy = policy_of(request.validation_policy)
        topic = topic_of(request.topic_name)
        await self._schemas.set_policy(topic, policy, validate_payloads=request.enable_payload_validation)
        return pb.UpdateTopicValidationPolicyResponse(
            success=True, message=f"topic {topic} has validation policy {policy.value}"
        )

    async def get_topic_schema_config(self, body: bytes) -> Message:
        topic = topic_of(parse(pb.GetTopicSchemaConfigRequest, body).topic_name)
        config = self._schemas.config(topic)
        schema_id = await self._registry.schema_id(config.subject) if config.subject else None
        return pb.GetTopicSchemaConfigResponse(
            schema_subject=config.subject or "",
            validation_policy=config.validation_policy.value,
            enable_payload_validation=config.enable_payload_validation,
            schema_id=schema_id or 0,
        )


def _schema(schema: RegisteredSchema) -> pb.GetSchemaResponse:
    record = schema.record
    mode = schema.mode.value
    return pb.GetSchemaResponse(
        schema_id=schema.schema_id,
        version=record.version,
        subject=schema.subject,
        schema_type=record.schema_type.value,
        schema_definition=schema.envelope,
        description=record.description,
        created_at=record.created_at,
        created_by=record.created_by,
        tags=record.tags,
        fingerprint=record.fingerprint,
        compatibility_mode=mode.removesuffix(_TRANSITIVE),
        compatibility_is_transitive=mode.endswith(_TRANSITIVE),
    )


def _mode_or_none(text: str) -> CompatibilityMode | None:
    """The mode a check names; one that there is not means the subject's own, as in the published broker."""
    try:
        return mode_of(text)
    except Rejected:
        return None


@contextmanager
def _unknown_as_internal() -> Iterator[None]:
    """Some calls tell an unknown subject as INTERNAL: the published tools expect it so."""
    try:
        yield
    except Rejected as error:
        if error.code is not ErrorCode.SCHEMA_UNKNOWN:
            raise
        raise _Internal(error.text, error.code) from error


class _Internal(DanubeError):
    @property
    def status(self) -> Status:
        return Status.INTERNAL


def _encoded(answer: Callable[[bytes], Awaitable[Message]]) -> Callable[[bytes, Headers], Awaitable[bytes]]:
    async def run(body: bytes, headers: Headers) -> bytes:
        return (await answer(body)).SerializeToString()

    return run
