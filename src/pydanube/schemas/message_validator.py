"""Whether a message follows its topic's schema, asked before it is stored.

`check_now` answers from memory and awaits nothing. It returns None while the named schema is not in memory,
which is true of the first message with it, and for payloads too long to be checked within one turn of the
event loop; the caller then awaits `check`, which loads the schema and checks long payloads in a thread:

    verdict = validator.check_now(schema_id, schema_version, payload)
    if verdict is None:
        verdict = await validator.check(schema_id, schema_version, payload)
    if not verdict.accepted: …

What a schema's name alone decides is a `Rule`: many messages that name one schema need only one, from
`rule_now` or `rule`, and `apply` for each payload.

A caller whose topic has the policy `none` asks nothing at all (`is_idle`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.loaded_schemas import ANY_VERSION, LoadedSchemas, unknown_id, unknown_version
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy

FIRST_VERSION: Final = 1
"""What a message means that names no version."""

LARGE_PAYLOAD_BYTES: Final = 256 * 1024
"""From here on a payload is checked beside the event loop, whatever its schema."""

RULES_MAX: Final = 16
"""Versions of a subject in use at one time."""


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


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for every message that names one schema: a verdict, or a schema its payload has to fit."""

    policy: ValidationPolicy
    verdict: Verdict = ACCEPTED
    schema: ParsedSchema | None = None
    schema_name: str = ""
    quick_bytes_max: int = 0
    """Longer payloads are checked beside the event loop."""

    def must_wait(self, payload_bytes: int) -> bool:
        return self.schema is not None and payload_bytes > self.quick_bytes_max


_UNASKED: Final = Rule(ValidationPolicy.NONE)


class MessageValidator:
    """The judge of one topic. Its configuration may be replaced at any time between two messages."""

    def __init__(self, loaded: LoadedSchemas, config: TopicSchema) -> None:
        self._loaded = loaded
        self._config = config
        self._rules: dict[tuple[int, int], Rule] = {}
        """Of schemas payloads were checked against, under the present configuration and since the last deletion."""
        self._deletions = loaded.deletions
        self._warned = 0
        self._enforced = 0
        self.failures: dict[Reason, int] = dict.fromkeys(Reason, 0)

    @property
    def config(self) -> TopicSchema:
        return self._config

    @config.setter
    def config(self, config: TopicSchema) -> None:
        self._config = config
        self._rules.clear()

    @property
    def is_idle(self) -> bool:
        """Whether every message is accepted unseen."""
        return self.config.validation_policy is ValidationPolicy.NONE

    @property
    def checked(self) -> int:
        """Messages judged so far."""
        return self._warned + self._enforced

    def checked_under(self, policy: ValidationPolicy) -> int:
        """Messages judged so far under a policy."""
        match policy:
            case ValidationPolicy.NONE:
                return 0
            case ValidationPolicy.WARN:
                return self._warned
            case ValidationPolicy.ENFORCE:
                return self._enforced

    def check_now(self, schema_id: int | None, schema_version: int | None, payload: bytes) -> Verdict | None:
        """The verdict if it can be told from memory; None if `check` must load the schema first."""
        rule = self.rule_now(schema_id, schema_version)
        if rule is None or rule.must_wait(len(payload)):
            return None
        return self.apply(rule, payload)

    async def check(self, schema_id: int | None, schema_version: int | None, payload: bytes) -> Verdict:
        """The verdict, after loading what it needs."""
        return await self.apply_aside(await self.rule(schema_id, schema_version), payload)

    def rule_now(self, schema_id: int | None, schema_version: int | None) -> Rule | None:
        """The rule for messages that name this schema, if it is in memory."""
        config = self._config
        if not schema_id or config.subject is None:
            return _rule_without_schema(config)
        if self._deletions != self._loaded.deletions:
            self._deletions = self._loaded.deletions
            self._rules.clear()
        version = schema_version or FIRST_VERSION
        rule = self._rules.get((schema_id, version))
        if rule is not None:
            return rule
        if config.validation_policy is ValidationPolicy.NONE:
            return _UNASKED
        subject = self._loaded.subject_of(schema_id)
        if subject is None:
            return self._rule_if_unknown(schema_id, ANY_VERSION)
        if subject != config.subject or not config.enable_payload_validation:
            return _rule_by_subject(config, schema_id, subject)
        schema = self._loaded.get(schema_id, version)
        if schema is None:
            return self._rule_if_unknown(schema_id, version)
        if len(self._rules) >= RULES_MAX:
            self._rules.clear()
        rule = self._rules[schema_id, version] = _rule_by_schema(config, version, schema)
        return rule

    async def rule(self, schema_id: int | None, schema_version: int | None) -> Rule:
        """The rule, after loading what it needs."""
        config = self._config
        if not schema_id or config.subject is None:
            return _rule_without_schema(config)
        if config.validation_policy is ValidationPolicy.NONE:
            return _UNASKED
        subject = await self._loaded.load_subject(schema_id)
        if subject is None:
            return _failing(config, Reason.UNKNOWN_SCHEMA, unknown_id(schema_id))
        version = schema_version or FIRST_VERSION
        if subject != config.subject or not config.enable_payload_validation:
            return _rule_by_subject(config, schema_id, subject)
        return _rule_by_schema(config, version, await self._loaded.load(schema_id, version))

    def _rule_if_unknown(self, schema_id: int, version: int) -> Rule | None:
        """For schemas that were not there a moment ago; None if the store has to be asked."""
        why = self._loaded.why_unknown(schema_id, version)
        return None if why is None else _failing(self._config, Reason.UNKNOWN_SCHEMA, why)

    def apply(self, rule: Rule, payload: bytes) -> Verdict:
        """The verdict on one message, counted."""
        schema = rule.schema
        if schema is None:
            return self.apply_to_all(rule, 1)
        self._count(rule.policy, 1)
        problem = schema.check_payload(payload)
        return ACCEPTED if problem is None else self._misfit(rule, problem)

    def failures_among(
        self, rule: Rule, payloads: Sequence[bytes]
    ) -> Generator[tuple[int, Verdict], None, None]:
        """Place and verdict of the messages that fail; those up to where the caller stops are counted."""
        schema = rule.schema
        assert schema is not None, "a rule without schema has one verdict: apply_to_all"
        check = schema.check_payload
        looked_at = 0
        try:
            for payload in payloads:
                looked_at += 1
                problem = check(payload)
                if problem is not None:
                    yield looked_at - 1, self._misfit(rule, problem)
        finally:
            self._count(rule.policy, looked_at)

    async def apply_aside(self, rule: Rule, payload: bytes) -> Verdict:
        """As `apply`, with the payload checked in a thread."""
        schema = rule.schema
        if schema is None:
            return self.apply_to_all(rule, 1)
        problem = await self._loaded.check_payload(schema, payload)
        self._count(rule.policy, 1)
        return ACCEPTED if problem is None else self._misfit(rule, problem)

    def apply_to_all(self, rule: Rule, count: int) -> Verdict:
        """The one verdict on so many messages whose rule asks for no schema, counted."""
        self._count(rule.policy, count)
        verdict = rule.verdict
        if verdict.reason is not None:
            self.failures[verdict.reason] += count
        return verdict

    def _count(self, policy: ValidationPolicy, messages: int) -> None:
        # Not by a dictionary: an enum's hash is a call of its own.
        if policy is ValidationPolicy.ENFORCE:
            self._enforced += messages
        elif policy is ValidationPolicy.WARN:
            self._warned += messages

    def _misfit(self, rule: Rule, problem: str) -> Verdict:
        self.failures[Reason.PAYLOAD_INVALID] += 1
        text = f"the payload does not fit {rule.schema_name}: {problem}"
        return Verdict(rule.policy is not ValidationPolicy.ENFORCE, Reason.PAYLOAD_INVALID, text)


def _rule_without_schema(config: TopicSchema) -> Rule:
    """For messages that name no schema, or a topic that is bound to none."""
    if config.validation_policy is ValidationPolicy.NONE:
        return _UNASKED
    if config.subject is not None:
        text = f"the message names no schema, the topic follows subject {config.subject!r}"
        return _failing(config, Reason.MISSING_SCHEMA_ID, text)
    if config.validation_policy is ValidationPolicy.WARN:
        return _WARNED
    text = "the topic enforces schemas and is bound to no subject: configure one"
    return _failing(config, Reason.TOPIC_WITHOUT_SUBJECT, text)


_WARNED: Final = Rule(ValidationPolicy.WARN)
_ENFORCED: Final = Rule(ValidationPolicy.ENFORCE)


def _rule_by_subject(config: TopicSchema, schema_id: int, subject: str) -> Rule:
    """Where the subject alone decides."""
    if subject == config.subject:
        return _ENFORCED if config.validation_policy is ValidationPolicy.ENFORCE else _WARNED
    return _failing(
        config,
        Reason.SUBJECT_MISMATCH,
        f"schema id {schema_id} is of subject {subject!r}, the topic follows {config.subject!r}",
    )


def _rule_by_schema(config: TopicSchema, version: int, schema: ParsedSchema | None) -> Rule:
    """Where the payload decides, if there is such a version."""
    if schema is None:
        assert config.subject is not None, "who has no subject has no rule by schema"
        return _failing(config, Reason.UNKNOWN_SCHEMA, unknown_version(config.subject, version))
    return Rule(
        config.validation_policy,
        schema=schema,
        schema_name=f"version {version} of {config.subject!r}",
        quick_bytes_max=min(schema.quick_bytes_max, LARGE_PAYLOAD_BYTES - 1),
    )


def _failing(config: TopicSchema, reason: Reason, text: str) -> Rule:
    policy = config.validation_policy
    return Rule(policy, Verdict(policy is not ValidationPolicy.ENFORCE, reason, text))
