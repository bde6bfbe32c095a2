"""Whether a message follows its topic's schema, asked before it is stored.

`check_now` answers from memory and awaits nothing. It returns None while the named schema is not in memory,
which is true of the first message with it, and for payloads too large to be checked within one turn of the
event loop; the caller then awaits `check`, which loads the schema and checks large payloads in a thread:

    verdict = validator.check_now(schema_id, schema_version, payload)
    if verdict is None:
        verdict = await validator.check(schema_id, schema_version, payload)
    if not verdict.accepted: …

A caller whose topic has the policy `none` asks nothing at all (`is_idle`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.loaded_schemas import LoadedSchemas
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy

FIRST_VERSION: Final = 1
"""What a message means that names no version."""

LARGE_PAYLOAD_BYTES: Final = 256 * 1024
"""From here on a payload is checked beside the event loop."""


class Reason(Enum):
    """Why a message failed; the value is the label in the metrics."""

    TOPIC_WITHOUT_SUBJECT = "topic_without_subject"
    MISSING_SCHEMA_ID = "missing_schema_id"
    UNKNOWN_SCHEMA = "unknown_schema"
    SUBJECT_MISMATCH = "subject_mismatch"
    PAYLOAD_INVALID = "payload_invalid"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A message may fail and still be accepted: that is what the policy `warn` is for."""

    accepted: bool
    reason: Reason | None = None
    text: str = ""


ACCEPTED: Final = Verdict(True)


class MessageValidator:
    """The judge of one topic. Its configuration may be replaced at any time between two messages."""

    def __init__(self, loaded: LoadedSchemas, config: TopicSchema) -> None:
        self._loaded = loaded
        self.config = config
        self.checked = 0
        self.failures: dict[Reason, int] = dict.fromkeys(Reason, 0)

    @property
    def is_idle(self) -> bool:
        """Whether every message is accepted unseen."""
        return self.config.validation_policy is ValidationPolicy.NONE

    def check_now(self, schema_id: int | None, schema_version: int | None, payload: bytes) -> Verdict | None:
        """The verdict if it can be told from memory; None if `check` must load the schema first."""
        config = self.config
        if not schema_id or config.subject is None or self.is_idle:
            return self._judge_unnamed(config)
        subject = self._loaded.subject_of(schema_id)
        if subject is None:
            return None
        version = schema_version or FIRST_VERSION
        schema: ParsedSchema | None = None
        if config.enable_payload_validation and subject == config.subject:
            schema = self._loaded.get(schema_id, version)
            if schema is None or len(payload) >= LARGE_PAYLOAD_BYTES:
                return None
        problem = schema.check_payload(payload) if schema is not None else None
        return self._judge(config, _Named(schema_id, version, subject, schema), problem)

    async def check(self, schema_id: int | None, schema_version: int | None, payload: bytes) -> Verdict:
        """The verdict, after loading what it needs."""
        config = self.config
        if not schema_id or config.subject is None or self.is_idle:
            return self._judge_unnamed(config)
        subject = await self._loaded.load_subject(schema_id)
        version = schema_version or FIRST_VERSION
        schema: ParsedSchema | None = None
        if config.enable_payload_validation and subject == config.subject:
            schema = await self._loaded.load(schema_id, version)
        problem = await self._loaded.check_payload(schema, payload) if schema is not None else None
        return self._judge(config, _Named(schema_id, version, subject, schema), problem)

    def _judge_unnamed(self, config: TopicSchema) -> Verdict:
        """Of a message that names no schema, or on a topic that asks for none."""
        if config.validation_policy is ValidationPolicy.NONE:
            return ACCEPTED
        self.checked += 1
        if config.subject is not None:
            return self._fail(
                config,
                Reason.MISSING_SCHEMA_ID,
                f"the message names no schema, the topic follows subject {config.subject!r}",
            )
        if config.validation_policy is ValidationPolicy.WARN:
            return ACCEPTED
        return self._fail(
            config,
            Reason.TOPIC_WITHOUT_SUBJECT,
            "the topic enforces schemas and is bound to no subject: configure one",
        )

    def _judge(self, config: TopicSchema, named: "_Named", problem: str | None) -> Verdict:
        self.checked += 1
        if named.subject is None:
            return self._fail(
                config, Reason.UNKNOWN_SCHEMA, f"no schema has id {named.schema_id}: register it first"
            )
        if named.subject != config.subject:
            return self._fail(
                config,
                Reason.SUBJECT_MISMATCH,
                f"schema id {named.schema_id} is of subject {named.subject!r}, the topic follows {config.subject!r}",
            )
        if not config.enable_payload_validation:
            return ACCEPTED
        if named.schema is None:
            return self._fail(
                config, Reason.UNKNOWN_SCHEMA, f"subject {named.subject!r} has no version {named.version}"
            )
        if problem is None:
            return ACCEPTED
        return self._fail(
            config,
            Reason.PAYLOAD_INVALID,
            f"the payload does not fit version {named.version} of {named.subject!r}: {problem}",
        )

    def _fail(self, config: TopicSchema, reason: Reason, text: str) -> Verdict:
        self.failures[reason] += 1
        return Verdict(config.validation_policy is not ValidationPolicy.ENFORCE, reason, text)


class _Named(NamedTuple):
    """The schema a message names, and what the registry knows of it."""

    schema_id: int
    version: int
    subject: str | None
    schema: ParsedSchema | None
