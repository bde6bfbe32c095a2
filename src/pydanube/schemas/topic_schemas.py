"""Which schema a topic's messages follow, and how strictly: the configuration of each topic, in the metadata store."""

from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.metadata import ABSENT, MetadataStore, VersionMismatch
from pydanube.schemas.registry import SchemaRegistry

ATTEMPTS_MAX: Final = 100


class ValidationPolicy(Enum):
    """What happens to a message that does not follow the topic's schema."""

    NONE = "none"
    WARN = "warn"
    ENFORCE = "enforce"


def policy_of(text: str) -> ValidationPolicy:
    """The policy a request names, in any case."""
    try:
        return ValidationPolicy(text.lower())
    except ValueError:
        known = ", ".join(policy.value for policy in ValidationPolicy)
        raise Rejected(f"unknown validation policy {text[:64]!r}: use one of {known}") from None


class TopicSchema(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one topic; a topic nobody configured has the defaults."""

    subject: str | None = None
    validation_policy: ValidationPolicy = ValidationPolicy.WARN
    enable_payload_validation: bool = False


@dataclass(frozen=True, slots=True)
class _Stored:
    config: TopicSchema
    version: int


class TopicSchemas:
    """Reads and changes the configurations. That the topic exists is the caller's business."""

    def __init__(self, metadata: MetadataStore, registry: SchemaRegistry) -> None:
        self._metadata = metadata
        self._registry = registry

    async def get(self, topic: TopicName) -> TopicSchema:
        return (await self._read(topic)).config

    async def configure(
        self, topic: TopicName, subject: str, policy: ValidationPolicy, *, validate_payloads: bool
    ) -> TopicSchema:
        """Bind the topic to a subject, whatever it was bound to; SCHEMA_UNKNOWN if the subject is not registered."""
        if await self._registry.schema_id(subject) is None:
            raise Rejected(
                f"schema subject {subject!r} not found: register a schema for it before binding {topic} to it",
                ErrorCode.SCHEMA_UNKNOWN,
            )
        config = TopicSchema(
            subject=subject, validation_policy=policy, enable_payload_validation=validate_payloads
        )
        await self._metadata.put(_key(topic), msgspec.json.encode(config))
        return config

    async def set_policy(
        self, topic: TopicName, policy: ValidationPolicy, *, validate_payloads: bool
    ) -> TopicSchema:
        """Change the strictness; SUBJECT_UNKNOWN, with nothing changed, if the topic has no subject."""
        for _ in range(ATTEMPTS_MAX):
            stored = await self._read(topic)
            if stored.config.subject is None:
                raise Conflict(
                    f"{topic} has no schema subject to validate against: configure one first",
                    ErrorCode.SUBJECT_UNKNOWN,
                )
            config = replace(
                stored.config, validation_policy=policy, enable_payload_validation=validate_payloads
            )
            if await self._write(topic, config, stored.version):
                return config
        raise _contended(topic)

    async def adopt(self, topic: TopicName, subject: str) -> TopicSchema:
        """A producer names a subject: the first one binds the topic to it, others must name the same.

        Raises:
            Conflict: the topic is bound to another subject (SUBJECT_CONFLICT).
            Rejected: the subject is not registered (SUBJECT_UNKNOWN).
        """
        for _ in range(ATTEMPTS_MAX):
            stored = await self._read(topic)
            if stored.config.subject == subject:
                return stored.config
            if stored.config.subject is not None:
                raise Conflict(
                    f"{topic} is bound to schema subject {stored.config.subject!r}, not to {subject!r}: "
                    "produce with that one, or have the topic configured anew",
                    ErrorCode.SUBJECT_CONFLICT,
                )
            if await self._registry.schema_id(subject) is None:
                raise Rejected(
                    f"schema subject {subject!r} not found: register a schema for it before producing to {topic}",
                    ErrorCode.SUBJECT_UNKNOWN,
                )
            config = replace(stored.config, subject=subject)
            if await self._write(topic, config, stored.version):
                return config
        raise _contended(topic)

    async def keep(self, topic: TopicName, config: TopicSchema) -> None:
        """Write the configuration of a new topic, whose subject may be registered later."""
        await self._metadata.put(_key(topic), msgspec.json.encode(config))

    async def forget(self, topic: TopicName) -> None:
        """The topic is deleted: a later one of its name begins anew."""
        await self._metadata.delete(_key(topic))

    async def _read(self, topic: TopicName) -> _Stored:
        entry = await self._metadata.get(_key(topic))
        if entry is None:
            return _Stored(TopicSchema(), ABSENT)
        try:
            return _Stored(msgspec.json.decode(entry.value, type=TopicSchema), entry.version)
        except msgspec.DecodeError as error:
            raise Corrupt(
                f"{entry.key} does not hold a topic's schema configuration: {error}",
                ErrorCode.METADATA_CORRUPT,
            ) from error

    async def _write(self, topic: TopicName, config: TopicSchema, version: int) -> bool:
        try:
            await self._metadata.put(_key(topic), msgspec.json.encode(config), expected_version=version)
        except VersionMismatch:
            return False
        return True


def _key(topic: TopicName) -> str:
    return f"/topics/{quote(topic.namespace, safe='')}/{quote(topic.topic, safe='')}/schema_config"


def _contended(topic: TopicName) -> Unavailable:
    return Unavailable(
        f"the schema configuration of {topic} is changed by others: {ATTEMPTS_MAX} attempts lost, try again",
        ErrorCode.OVERLOADED,
    )
