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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message as ProtobufMessage

from pydanube.client.cluster import Cluster
from pydanube.client.message import Message
from pydanube.client.registry_channel import RegistryChannel, Response
from pydanube.client.schema_codec import Codec, codec_of
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol import schema_registry_pb2 as pb

CODECS_MAX: Final = 1_000
"""Remembered at a time; a topic has a handful."""


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """Which version of a subject a producer means: the latest, exactly `version`, or the latest if it is `at_least`."""

    subject: str
    version: int | None = None
    at_least: int | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.at_least is not None:
            raise Rejected("version and at_least exclude each other: pass one of them")


AnySchema = str | SchemaRef
"""A subject stands for its latest version."""


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a registered schema is found; not new if the subject had it before."""

    schema_id: int
    version: int
    is_new_version: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a subject; `definition` is the text as it was registered."""

    schema_id: int
    version: int
    subject: str
    type: str
    definition: str
    description: str
    created_at: int
    """Unix seconds."""
    created_by: str
    tags: tuple[str, ...]
    fingerprint: str
    mode: str


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    version: int
    schema_id: int
    created_at: int
    created_by: str
    description: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Subject:
    subject: str
    schema_id: int
    type: str
    latest_version: int
    mode: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """Which subject a topic follows, and how strictly: none, warn or enforce."""

    subject: str | None
    schema_id: int | None
    policy: str
    payloads: bool
    """Whether payloads are checked, not only the names of schemas."""


class Schemas:
    """The registry of the cluster. Made by `Client.schemas`."""

    def __init__(self, cluster: Cluster, channel: RegistryChannel) -> None:
        self._cluster = cluster
        self._channel = channel
        self._codecs: dict[tuple[int, int], asyncio.Task[Codec]] = {}

    async def register(
        self,
        subject: str,
        definition: str | bytes,
        type: str,  # noqa: A002
        *,
        description: str = "",
        created_by: str = "pydanube",
        tags: Sequence[str] = (),
    ) -> Registered:
        """Make a schema the subject's next version, unless the subject has it already.

        Args:
            subject: what versions belong to, often named after a topic.
            definition: the schema; ignored for the plain types.
            type: json_schema, avro, protobuf, string, number or bytes.
            description: what this version is for.
            created_by: who made it.
            tags: any words.

        Raises:
            Rejected: it cannot be parsed, or would break readers the subject's mode protects; the text says how.
        """
        request = pb.RegisterSchemaRequest(
            subject=subject,
            schema_type=type,
            schema_definition=_bytes(definition),
            description=description,
            created_by=created_by,
            tags=tags,
        )
        made = await self._call("RegisterSchema", request, pb.RegisterSchemaResponse)
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
    ) -> list[str]:
        """What would keep a schema from being registered, by the subject's mode or another; empty if nothing would."""
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
        """Remove a version for good; one that is not there is no failure."""
        request = pb.DeleteSchemaVersionRequest(subject=subject, version=version)
        await self._call("DeleteSchemaVersion", request, pb.DeleteSchemaVersionResponse)

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
        return await self._codec(*await self.resolve(schema))

    async def decode(self, message: Message) -> object:
        """The value of a delivered message, by the schema it names; its payload if it names none.

        Raises:
            Rejected: the registry has no such schema any more, or the payload does not fit it.
        """
        if not message.schema_id:
            return message.payload
        return (await self._codec(message.schema_id, message.schema_version or 1)).decode(message.payload)

    async def close(self) -> None:
        for task in self._codecs.values():
            task.cancel()
        await asyncio.gather(*self._codecs.values(), return_exceptions=True)
        self._codecs.clear()

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

    async def _codec(self, schema_id: int, version: int) -> Codec:
        """Made once for all who ask; a version never changes."""
        named = (schema_id, version)
        task = self._codecs.get(named)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            if len(self._codecs) >= CODECS_MAX:
                self._codecs.pop(next(iter(self._codecs)))
            task = asyncio.create_task(self._load_codec(schema_id, version))
            self._codecs[named] = task
        return await asyncio.shield(task)

    async def _load_codec(self, schema_id: int, version: int) -> Codec:
        schema = await self.get(schema_id, version)
        # Protobuf definitions are compiled in a process: not while everything else waits.
        return await asyncio.to_thread(
            codec_of, schema.type, schema.definition.encode(), schema_id, schema.version
        )

    async def _call(self, method: str, request: ProtobufMessage, response: type[Response]) -> Response:
        return await self._cluster.with_retries(lambda: self._channel.call(method, request, response))


def _bytes(definition: str | bytes) -> bytes:
    return definition.encode() if isinstance(definition, str) else definition


def _schema(answer: pb.GetSchemaResponse) -> Schema:
    return Schema(
        answer.schema_id,
        answer.version,
        answer.subject,
        answer.schema_type,
        _definition(answer.schema_definition),
        answer.description,
        answer.created_at,
        answer.created_by,
        tuple(answer.tags),
        answer.fingerprint,
        answer.compatibility_mode,
    )


def _definition(envelope: bytes) -> str:
    """The text as it was registered, out of the envelope the registry puts around it."""
    document = json.loads(envelope)
    if not isinstance(document, dict):
        return ""
    fields = next(iter(document.values()))
    text: str = fields.get("raw_schema") or fields.get("raw_proto") or ""
    return text
