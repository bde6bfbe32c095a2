"""The schema registry: subjects, their versions, and what a new version must not break.

A subject has one schema id for ever and versions 1, 2, 3, …; a number is never given twice, whatever was
deleted. A deleted version is gone: it is not the latest one, nothing is compared with it, and the same schema
may be registered again. A subject whose versions were all deleted keeps its id, its mode and its count; it
is not listed, and its next version may be of any type.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from msgspec.structs import replace

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import ErrorCode, Rejected, Unavailable
from pydanube.metadata import MetadataStore, VersionMismatch, next_id
from pydanube.schemas.compatibility import TRANSITIVE, check_compatibility
from pydanube.schemas.envelope import encode_envelope
from pydanube.schemas.format import CompatibilityMode, Incompatibility, ParsedSchema, SchemaKind
from pydanube.schemas.limits import PROBLEMS_MAX
from pydanube.schemas.loaded_schemas import LoadedSchemas, unknown_id
from pydanube.schemas.parsing import SchemaParser
from pydanube.schemas.references import Referenced, References, check_references, unusable
from pydanube.schemas.subjects import (
    SCHEMA_ID_COUNTER,
    SUBJECTS_MAX,
    VERSIONS_MAX,
    Reference,
    Subject,
    SubjectRecord,
    SubjectStore,
    VersionRecord,
    check_details,
    check_subject,
)

ATTEMPTS_MAX: Final = 100
"""Each lost attempt means that somebody else's change of the subject was made."""

READS_AT_ONCE_MAX: Final = 64

DEFAULT_MODE: Final = CompatibilityMode.BACKWARD


@dataclass(frozen=True, slots=True)
class Registered:
    """Where a registered schema is found; not new if the subject had it before."""

    schema_id: int
    version: int
    is_new_version: bool
    fingerprint: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject, with its definition as registered."""

    schema_id: int
    subject: str
    record: VersionRecord
    definition: bytes
    mode: CompatibilityMode

    @property
    def envelope(self) -> bytes:
        """The definition as Danube's clients receive it."""
        record = self.record
        return encode_envelope(
            record.schema_type,
            self.definition,
            fingerprint=record.fingerprint,
            message_name=record.message_name,
            references=record.references,
        )


@dataclass(frozen=True, slots=True)
class SubjectSummary:
    """A subject with at least one version."""

    subject: str
    schema_id: int
    latest: VersionRecord
    mode: CompatibilityMode


@runtime_checkable
class Successor(Protocol):
    """A schema whose format asks more of a next version than that data stays readable."""

    def problems_succeeding(self, older: ParsedSchema) -> list[Incompatibility]: ...


class SchemaRegistry:
    """Registers, finds, compares and deletes; one instance serves a broker, many may share a store."""

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._subjects = SubjectStore(metadata)
        self._references = References(self._subjects)
        self._parser = SchemaParser()
        self.loaded = LoadedSchemas(metadata, self._subjects, self._parser, clock)

    async def register(
        self,
        subject: str,
        kind: SchemaKind,
        definition: bytes,
        *,
        description: str = "",
        created_by: str = "",
        tags: Sequence[str] = (),
        references: Sequence[Reference] = (),
    ) -> Registered:
        """Make the schema the subject's next version, unless the subject has it already.

        Raises:
            Rejected: the definition cannot be used (SCHEMA_INVALID), refers to what does not exist
                (SCHEMA_UNKNOWN), would break readers (SCHEMA_INCOMPATIBLE, every reason in the text), or a bound is
                reached.
            Unavailable: the subject or the store is too busy; nothing was written.
        """
        check_subject(subject)
        check_details(description, created_by, tags)
        schema = await self._parse(kind, definition, references)
        version = VersionRecord(
            version=1,
            schema_type=kind,
            fingerprint=schema.fingerprint,
            created_at=self._clock.now_ms() // 1_000,
            created_by=created_by,
            description=description,
            tags=tuple(tags),
            message_name=getattr(schema, "message_name", ""),
            references=tuple(references),
        )
        for _ in range(ATTEMPTS_MAX):
            found = await self._subjects.find(subject)
            referred = await self._references.referred_subjects(references)
            try:
                if found is None:
                    return await self._create(subject, version, definition, referred)
                known = await self._subjects.version_like(subject, schema)
                if known is not None:
                    return Registered(found.record.schema_id, known, False, schema.fingerprint)
                return await self._append(found, schema, version, definition, referred)
            except VersionMismatch:
                continue  # somebody was faster: look at what the subject is now
        raise _contended(subject)

    async def get(self, schema_id: int, version: int | None = None) -> RegisteredSchema:
        """One version by the id of its subject, the latest one without a number."""
        return await self._read(await self._subject_of(schema_id), version)

    async def latest(self, subject: str) -> RegisteredSchema:
        return await self._read(subject, None)

    async def versions(self, subject: str) -> list[tuple[int, VersionRecord]]:
        """Schema id and record of every version that was not deleted, oldest first."""
        found = await self._known(subject)
        return [(found.record.schema_id, record) for record in await self._subjects.versions(subject)]

    async def references(self, schema_id: int, version: int) -> list[Referenced]:
        """All that a version refers to, directly or not; what something refers to stands before it."""
        subject = await self._subject_of(schema_id)
        record = await self._subjects.version(subject, version)
        if record is None:
            raise _no_version(subject, version)
        try:
            return await self._references.follow(record.schema_type, record.references)
        except Rejected as error:
            raise unusable(subject, version, error) from error

    async def check(
        self,
        subject: str,
        kind: SchemaKind,
        definition: bytes,
        *,
        mode: CompatibilityMode | None = None,
        references: Sequence[Reference] = (),
    ) -> list[Incompatibility]:
        """What would keep the schema from being registered, by the subject's mode or the given one."""
        found = await self._known(subject)
        schema = await self._parse(kind, definition, references)
        return await self._problems(found, schema, found.mode if mode is None else mode)

    async def delete_version(self, subject: str, version: int) -> bool:
        """Remove a version for good; False if there is none such, SCHEMA_IN_USE while others refer to it."""
        for _ in range(ATTEMPTS_MAX):
            found = await self._subjects.find(check_subject(subject))
            gone = await self._subjects.version(subject, version) if found else None
            if found is None or gone is None:
                return False
            await self._references.check_unused(subject, version)
            latest = found.record.latest
            if latest is not None and latest.version == version:
                remaining = [one for one in await self._subjects.versions(subject) if one.version != version]
                latest = remaining[-1] if remaining else None
            record = replace(found.record, version_count=found.record.version_count - 1, latest=latest)
            try:
                await self._subjects.remove(found, record, gone)
            except VersionMismatch:
                continue
            self.loaded.forget(record.schema_id, version)
            return True
        raise _contended(subject)

    async def set_mode(self, subject: str, mode: CompatibilityMode) -> None:
        """From now on; existing versions are not looked at again."""
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._subjects.set_mode(await self._known(subject), mode)
            except VersionMismatch:
                continue
        raise _contended(subject)

    async def subjects(self) -> list[SubjectSummary]:
        """Every subject that has a version, in the order of their ids."""
        names = await self._subjects.names()
        summaries: list[SubjectSummary] = []
        for start in range(0, len(names), READS_AT_ONCE_MAX):
            reads = (self._subjects.find(name) for name in names[start : start + READS_AT_ONCE_MAX])
            for found in await asyncio.gather(*reads):
                if found is not None and found.record.latest is not None:
                    record = found.record
                    summaries.append(
                        SubjectSummary(record.subject, record.schema_id, found.record.latest, found.mode)
                    )
        return summaries

    async def schema_id(self, subject: str) -> int | None:
        """The subject's id, None while it is not registered."""
        found = await self._subjects.find(subject)
        return None if found is None else found.record.schema_id

    async def resolve(
        self, subject: str, *, pinned: int | None = None, at_least: int | None = None
    ) -> tuple[int, int]:
        """Schema id and version a producer means by latest (neither given), a pinned or a least version."""
        found = await self._known(subject)
        latest = found.record.latest
        if latest is None or (at_least is not None and latest.version < at_least):
            now = "has no version" if latest is None else f"is at version {latest.version}"
            raise Rejected(
                f"subject {subject!r} {now}, wanted is {at_least or 'the latest'}: register it first",
                ErrorCode.SCHEMA_UNKNOWN,
            )
        if pinned is not None and await self._subjects.version(subject, pinned) is None:
            raise _no_version(subject, pinned)
        return found.record.schema_id, latest.version if pinned is None else pinned

    async def _parse(
        self, kind: SchemaKind, definition: bytes, references: Sequence[Reference]
    ) -> ParsedSchema:
        check_references(kind, references)
        followed = await self._references.follow(kind, references)
        return await self._parser.parse(
            kind, definition, {each.reference.name: each.definition for each in followed}
        )

    async def _create(
        self, subject: str, version: VersionRecord, definition: bytes, referred: list[Subject]
    ) -> Registered:
        schema_id = await next_id(self._metadata, SCHEMA_ID_COUNTER)
        # Ids are never fewer than subjects, so that counting them is rarely needed.
        if schema_id > SUBJECTS_MAX and len(await self._subjects.names()) >= SUBJECTS_MAX:
            raise Rejected(f"subject {subject!r} would be more than {SUBJECTS_MAX}: use an existing one")
        record = SubjectRecord(
            schema_id=schema_id, subject=subject, last_version=1, version_count=1, latest=version
        )
        await self._subjects.create(record, DEFAULT_MODE, definition, referred)
        self.loaded.expect_new()
        return Registered(schema_id, 1, True, version.fingerprint)

    async def _append(
        self,
        found: Subject,
        schema: ParsedSchema,
        version: VersionRecord,
        definition: bytes,
        referred: list[Subject],
    ) -> Registered:
        before = found.record
        if before.version_count >= VERSIONS_MAX:
            raise Rejected(
                f"subject {before.subject!r} has {before.version_count} versions, the most there may be: "
                "delete those nobody uses"
            )
        problems = await self._problems(found, schema, found.mode)
        if problems:
            raise Rejected(
                f"the schema would break readers of subject {before.subject!r}, whose mode is {found.mode.value}: "
                + "; ".join(problem.text for problem in problems),
                ErrorCode.SCHEMA_INCOMPATIBLE,
            )
        version = replace(version, version=before.last_version + 1)
        record = replace(
            before, last_version=version.version, version_count=before.version_count + 1, latest=version
        )
        await self._subjects.append(found, record, definition, referred)
        self.loaded.expect_new()
        return Registered(before.schema_id, version.version, True, version.fingerprint)

    async def _problems(
        self, found: Subject, schema: ParsedSchema, mode: CompatibilityMode
    ) -> list[Incompatibility]:
        if mode is CompatibilityMode.NONE or found.record.latest is None:
            return []
        against = [found.record.latest]
        if mode in TRANSITIVE:
            against = await self._subjects.versions(found.record.subject)
        problems: list[Incompatibility] = []
        # One at a time: a long history is neither held in memory nor compared to its end once it has failed.
        for record in reversed(against):
            older = await self.loaded.load_registered(found.record.schema_id, record.version)
            if older is not None:
                problems += await self._parser.aside(_compare, mode, schema, older, record.version)
            if len(problems) >= PROBLEMS_MAX:
                break
        return problems[:PROBLEMS_MAX]

    async def _read(self, subject: str, version: int | None) -> RegisteredSchema:
        found = await self._known(subject)
        if version is None:
            record = found.record.latest
        else:
            record = await self._subjects.version(subject, version)
        definition = await self._subjects.definition(subject, record.version) if record else None
        if record is None or definition is None:
            raise _no_version(subject, version)
        return RegisteredSchema(found.record.schema_id, subject, record, definition, found.mode)

    async def _subject_of(self, schema_id: int) -> str:
        subject = await self.loaded.load_subject(schema_id)
        if subject is None:
            raise Rejected(unknown_id(schema_id), ErrorCode.SCHEMA_UNKNOWN)
        return subject

    async def _known(self, subject: str) -> Subject:
        found = await self._subjects.find(check_subject(subject))
        if found is None:
            raise Rejected(
                f"schema subject {subject!r} not found: register a schema for it first",
                ErrorCode.SCHEMA_UNKNOWN,
            )
        return found


def _compare(
    mode: CompatibilityMode, schema: ParsedSchema, older: ParsedSchema, number: int
) -> list[Incompatibility]:
    problems = check_compatibility(mode, schema, [older], numbers=[number])
    if isinstance(schema, Successor):
        for problem in schema.problems_succeeding(older):
            text = f"the new schema takes from version {number} what a later one could misuse: {problem.text}"
            problems.append(Incompatibility(problem.path, problem.rule, text))
    return problems


def _no_version(subject: str, version: int | None) -> Rejected:
    which = "version" if version is None else f"version {version}"
    return Rejected(f"schema subject {subject!r} has no {which}", ErrorCode.SCHEMA_UNKNOWN)


def _contended(subject: str) -> Unavailable:
    return Unavailable(
        f"subject {subject!r} is changed by others: {ATTEMPTS_MAX} attempts lost, try again",
        ErrorCode.OVERLOADED,
    )
