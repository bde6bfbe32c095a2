"""Schemas of a cluster: registering and finding them, binding topics to them, payloads as values.

await client.schemas.register("orders", '{"type": "object"}', "json_schema")
await client.schemas.configure_topic("/default/orders", "orders", policy="enforce", payloads=True)
codec = await client.schemas.codec("orders")
async with client.producer("/default/orders", schema="orders") as producer:
    await producer.send(codec.encode({"id": 7}))
async for message in consumer:
    order = await client.schemas.decode(message)
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from google.protobuf.message import Message as ProtobufMessage

from pydanube.client.message import Message
from pydanube.client.pinned_schema import FIRST_VERSION, PinnedSchema
from pydanube.client.schema_codec import Codec, codec_of
from pydanube.client.schema_codecs import SchemaCodecs
from pydanube.client.schema_records import (
    AnySchema,
    Registered,
    Schema,
    SchemaRef,
    SchemaReference,
    SchemaVersion,
    Subject,
    TopicSchema,
    full_mode,
)
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.protocol import pydanube_admin_pb2 as own_pb
from pydanube.protocol import schema_registry_pb2 as pb

PUBLISHED: Final = "danube_schema.SchemaRegistry/"
OWN: Final = "pydanube.admin.v1.Admin/"

Response = TypeVar("Response", bound=ProtobufMessage)
Decode = Callable[[Message], Awaitable[Any]]


class Registry(Protocol):
    """The way to a broker's registry."""

    async def call(self, method: str, request: ProtobufMessage, response: type[Response]) -> Response:
        """One call; `method` is package.Service/Method."""


class Schemas:
    """The registry of the cluster. Made by `Client.schemas`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._codecs = SchemaCodecs(self._load_codec)

    async def register(
        self,
        subject: str,
        definition: str | bytes,
        type: str,  # noqa: A002
        *,
        description: str = "",
        created_by: str = "pydanube",
        tags: Sequence[str] = (),
        references: Iterable[SchemaReference] = (),
    ) -> Registered:
        """Make a schema the subject's next version, unless the subject has it already.

        Args:
            subject: what versions belong to, often named after a topic.
            definition: the schema; ignored for the plain types.
            type: json_schema, avro, protobuf, string, number or bytes.
            description: what this version is for.
            created_by: who made it.
            tags: any words.
            references: versions of other subjects that the definition names.

        Raises:
            Rejected: it cannot be parsed, or would break readers the subject's mode protects; the text says how.
        """
        given: dict[str, Any] = {
            "subject": subject,
            "schema_type": type,
            "schema_definition": _bytes(definition),
            "description": description,
            "created_by": created_by,
            "tags": tags,
        }
        made: pb.RegisterSchemaResponse | own_pb.RegisterSchemaWithReferencesResponse
        if named := _references(references):
            wide = own_pb.RegisterSchemaWithReferencesRequest(**given, references=named)
            made = await self._registry.call(
                OWN + "RegisterSchemaWithReferences", wide, own_pb.RegisterSchemaWithReferencesResponse
            )
        else:
            request = pb.RegisterSchemaRequest(**given)
            made = await self._call("RegisterSchema", request, pb.RegisterSchemaResponse)
        self._codecs.expect_new()
        return Registered(made.schema_id, made.version, made.is_new_version, made.fingerprint)

    async def get(self, schema_id: int, version: int | None = None) -> Schema:
        """A version by the id of its subject, the latest one without a number."""
        request = pb.GetSchemaRequest(schema_id=schema_id, version=version)
        return _schema(await self._call("GetSchema", request, pb.GetSchemaResponse))

    async def latest(self, subject: str) -> Schema:
        request = pb.GetLatestSchemaRequest(subject=subject)
        return _schema(await self._call("GetLatestSchema", request, pb.GetSchemaResponse))

    async def versions(self, subject: str) -> list[SchemaVersion]:
        """Oldest first."""
        request = pb.ListVersionsRequest(subject=subject)
        answer = await self._call("ListVersions", request, pb.ListVersionsResponse)
        return [
            SchemaVersion(
                each.version,
                each.schema_id,
                each.created_at,
                each.created_by,
                each.description,
                each.fingerprint,
            )
            for each in answer.versions
        ]

    async def subjects(self) -> list[Subject]:
        answer = await self._call("ListSubjects", pb.ListSubjectsRequest(), pb.ListSubjectsResponse)
        return [
            Subject(
                each.subject,
                each.schema_id,
                each.schema_type,
                each.latest_version,
                each.compatibility_mode,
                tuple(each.tags),
            )
            for each in answer.subjects
        ]

    async def check(
        self,
        subject: str,
        definition: str | bytes,
        type: str,  # noqa: A002
        *,
        mode: str | None = None,
        references: Iterable[SchemaReference] = (),
    ) -> list[str]:
        """What would keep a schema from being registered, by the subject's mode or another; empty if nothing would."""
        if named := _references(references):
            wide = own_pb.CheckSchemaWithReferencesRequest(
                subject=subject,
                schema_type=type,
                schema_definition=_bytes(definition),
                compatibility_mode=mode or "",
                references=named,
            )
            answer = await self._registry.call(
                OWN + "CheckSchemaWithReferences", wide, own_pb.CheckSchemaWithReferencesResponse
            )
            return list(answer.errors)
        request = pb.CheckCompatibilityRequest(
            subject=subject,
            new_schema_definition=_bytes(definition),
            schema_type=type,
            compatibility_mode=mode,
        )
        return list((await self._call("CheckCompatibility", request, pb.CheckCompatibilityResponse)).errors)

    async def set_mode(self, subject: str, mode: str) -> None:
        """none, backward, forward, full, or one of the latter three with _transitive."""
        request = pb.SetCompatibilityModeRequest(subject=subject, compatibility_mode=mode)
        await self._call("SetCompatibilityMode", request, pb.SetCompatibilityModeResponse)

    async def delete_version(self, subject: str, version: int) -> None:
        """Remove a version for good; one that is not there is no failure, one that others refer to is a Conflict."""
        request = pb.DeleteSchemaVersionRequest(subject=subject, version=version)
        try:
            await self._call("DeleteSchemaVersion", request, pb.DeleteSchemaVersionResponse)
        except Conflict as error:
            raise Conflict(error.text, ErrorCode.SCHEMA_IN_USE) from error

    async def configure_topic(
        self, topic: str, subject: str, *, policy: str = "enforce", payloads: bool = True
    ) -> None:
        """Have a topic's messages follow a subject, whatever they followed before."""
        request = pb.ConfigureTopicSchemaRequest(
            topic_name=topic,
            schema_subject=subject,
            validation_policy=policy,
            enable_payload_validation=payloads,
        )
        await self._call("ConfigureTopicSchema", request, pb.ConfigureTopicSchemaResponse)

    async def set_topic_policy(self, topic: str, policy: str, *, payloads: bool = True) -> None:
        """Change how strictly a topic follows its subject."""
        request = pb.UpdateTopicValidationPolicyRequest(
            topic_name=topic, validation_policy=policy, enable_payload_validation=payloads
        )
        await self._call("UpdateTopicValidationPolicy", request, pb.UpdateTopicValidationPolicyResponse)

    async def topic_config(self, topic: str) -> TopicSchema:
        request = pb.GetTopicSchemaConfigRequest(topic_name=topic)
        config = await self._call("GetTopicSchemaConfig", request, pb.GetTopicSchemaConfigResponse)
        return TopicSchema(
            config.schema_subject or None,
            config.schema_id or None,
            config.validation_policy,
            config.enable_payload_validation,
        )

    async def resolve(self, schema: AnySchema) -> tuple[int, int]:
        """Schema id and version a reference means now; Rejected if there is no such version."""
        found = await self._find(schema)
        return found.schema_id, found.version

    async def codec(self, schema: AnySchema) -> Codec:
        """What turns values into payloads of a schema, and back."""
        return await self._codecs.get(*await self.resolve(schema))

    async def codec_by_id(self, schema_id: int, version: int | None = None) -> Codec:
        """The same for the version a message names, the latest one without a number."""
        return await self._codecs.get(schema_id, version)

    async def decode(self, message: Message) -> Any:
        """The value of a delivered message, by the schema it names; its payload if it names none.

        Raises:
            Rejected: the registry has no such schema any more, or the payload does not fit it.
        """
        if not message.schema_id:
            return message.payload
        codec = await self._codecs.get(message.schema_id, message.schema_version or FIRST_VERSION)
        return codec.decode(message.payload)

    async def pin(self, schema: AnySchema, *, topic: str | None = None) -> PinnedSchema:
        """Read with one version from now on, whatever version messages of the subject were written with.

        Args:
            schema: the version, as for a producer; of a subject alone, the one that is the latest now.
            topic: whose messages are to be read.

        Raises:
            Rejected: there is no such version (SCHEMA_UNKNOWN).
            Conflict: the topic follows another subject (SUBJECT_CONFLICT).
        """
        found = await self._find(schema)
        if topic is not None:
            await self._check_followed(topic, found.subject)
        return PinnedSchema(
            self._codecs, await self._codecs.get(found.schema_id, found.version), found.subject
        )

    async def decoder(self, topic: str, schema: AnySchema | None) -> Decode:
        """How messages of a topic become values: by a pinned schema, or without one each by its own."""
        return self.decode if schema is None else (await self.pin(schema, topic=topic)).decode

    async def close(self) -> None:
        await self._codecs.close()

    async def _check_followed(self, topic: str, subject: str) -> None:
        try:
            followed = (await self.topic_config(topic)).subject
        except DanubeError as error:
            if error.code not in (ErrorCode.SCHEMA_UNKNOWN, ErrorCode.TOPIC_UNKNOWN):
                raise
            return  # who subscribes to it now makes it, and it follows none
        if followed is not None and followed != subject:
            raise Conflict(
                f"{topic} follows schema subject {followed!r}, not {subject!r}: read it with a version of that one",
                ErrorCode.SUBJECT_CONFLICT,
            )

    async def _find(self, schema: AnySchema) -> Schema:
        reference = SchemaRef(schema) if isinstance(schema, str) else schema
        latest = await self.latest(reference.subject)
        if reference.at_least is not None and latest.version < reference.at_least:
            raise Rejected(
                f"subject {reference.subject!r} is at version {latest.version}, wanted is {reference.at_least} or later: "
                "register it first",
                ErrorCode.SCHEMA_UNKNOWN,
            )
        if reference.version is None or reference.version == latest.version:
            return latest
        return await self.get(latest.schema_id, reference.version)

    async def _load_codec(self, schema_id: int, version: int | None) -> Codec:
        schema = await self.get(schema_id, version)
        references = await self._referenced(schema) if schema.references else {}
        # Protobuf definitions are compiled in a process: not while everything else waits.
        return await asyncio.to_thread(
            codec_of, schema.type, schema.definition.encode(), schema_id, schema.version, references
        )

    async def _referenced(self, schema: Schema) -> dict[str, bytes]:
        request = own_pb.GetSchemaReferencesRequest(schema_id=schema.schema_id, version=schema.version)
        answer = await self._registry.call(
            OWN + "GetSchemaReferences", request, own_pb.GetSchemaReferencesResponse
        )
        return {each.reference.name: each.definition for each in answer.schemas}

    async def _call(self, method: str, request: ProtobufMessage, response: type[Response]) -> Response:
        return await self._registry.call(PUBLISHED + method, request, response)


def _bytes(definition: str | bytes) -> bytes:
    return definition.encode() if isinstance(definition, str) else definition


def _references(given: Iterable[SchemaReference]) -> list[own_pb.SchemaReference]:
    return [
        own_pb.SchemaReference(name=each.name, subject=each.subject, version=each.version) for each in given
    ]


def _schema(answer: pb.GetSchemaResponse) -> Schema:
    definition, references = _opened(answer.schema_definition)
    return Schema(
        answer.schema_id,
        answer.version,
        answer.subject,
        answer.schema_type,
        definition,
        answer.description,
        answer.created_at,
        answer.created_by,
        tuple(answer.tags),
        answer.fingerprint,
        full_mode(answer),
        references,
    )


def _opened(envelope: bytes) -> tuple[str, tuple[SchemaReference, ...]]:
    """The text as it was registered and what it refers to, out of the envelope the registry puts around it."""
    document = json.loads(envelope)
    if not isinstance(document, dict):
        return "", ()
    fields = next(iter(document.values()))
    text: str = fields.get("raw_schema") or fields.get("raw_proto") or ""
    return text, tuple(SchemaReference(**each) for each in fields.get("references", ()))
