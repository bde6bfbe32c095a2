"""Subjects and their versions in the metadata store: which keys, which JSON, which bounds.

    /schemas/{subject}/metadata              SubjectRecord
    /schemas/{subject}/compatibility         CompatibilityRecord
    /schemas/{subject}/versions/{n}          VersionRecord
    /schemas/{subject}/definitions/{n}       the registered bytes: apart, so that listing versions stays cheap
    /schemas/{subject}/fingerprints/{kind}:{fingerprint}    the version that has it: duplicates are one lookup
    /schemas/{subject}/referrers/{n}/{other subject}:{n}    Referrer: a version that refers to this one
    /schemas/_index/by_id/{schema_id}        IndexRecord
    /schemas/_global/next_schema_id          counter

Every change of a subject's versions rewrites its metadata in the same transaction, and is refused if that was
changed in between: so two writers never take the same version number. Who refers to a version rewrites the metadata
of its subject, too, unchanged: so a deletion that did not see the reference is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import msgspec

from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected
from pydanube.metadata import ABSENT, Change, Compare, Delete, Entry, MetadataStore, Put, Write
from pydanube.schemas.format import CompatibilityMode, ParsedSchema, SchemaKind

SUBJECTS: Final = "/schemas"
INDEX: Final = "/schemas/_index/by_id"
SCHEMA_ID_COUNTER: Final = "/schemas/_global/next_schema_id"

SUBJECTS_MAX: Final = 100_000
VERSIONS_MAX: Final = 10_000
SUBJECT_BYTES_MAX: Final = 255
DESCRIPTION_CHARACTERS_MAX: Final = 4_096
CREATOR_CHARACTERS_MAX: Final = 255
TAGS_MAX: Final = 64
TAG_CHARACTERS_MAX: Final = 128

Record = TypeVar("Record", bound=msgspec.Struct)


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What a definition means by a name that it does not declare itself."""

    name: str
    subject: str
    version: int


class Referrer(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    version: int


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One version without its definition. `message_name` is the Protobuf message payloads are."""

    version: int
    schema_type: SchemaKind
    fingerprint: str
    created_at: int
    created_by: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    message_name: str = ""
    references: tuple[Reference, ...] = ()


class SubjectRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`last_version` is the highest number ever given, `latest` the highest version that was not deleted."""

    schema_id: int
    subject: str
    last_version: int
    version_count: int
    latest: VersionRecord | None


class CompatibilityRecord(msgspec.Struct, frozen=True, kw_only=True):
    mode: CompatibilityMode


class IndexRecord(msgspec.Struct, frozen=True, kw_only=True):
    subject: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject as read, and the versions of its keys: what a write based on it must still find."""

    record: SubjectRecord
    record_version: int
    mode: CompatibilityMode
    mode_version: int


def check_subject(subject: str) -> str:
    """Accept a subject's name: printable, not empty, bounded."""
    if not subject or not subject.isprintable() or len(subject.encode()) > SUBJECT_BYTES_MAX:
        raise Rejected(
            f"invalid subject {subject[:SUBJECT_BYTES_MAX]!r}: expected printable characters, 1 to "
            f"{SUBJECT_BYTES_MAX} bytes of UTF-8"
        )
    return subject


def check_details(description: str, created_by: str, tags: Sequence[str]) -> None:
    """Refuse texts around a version that are longer than anybody reads."""
    for what, text, most in (
        ("description", description, DESCRIPTION_CHARACTERS_MAX),
        ("creator", created_by, CREATOR_CHARACTERS_MAX),
    ):
        if len(text) > most:
            raise Rejected(f"the {what} has {len(text)} characters: {most} at most")
    if len(tags) > TAGS_MAX or any(len(tag) > TAG_CHARACTERS_MAX for tag in tags):
        raise Rejected(f"{len(tags)} tags: at most {TAGS_MAX} of {TAG_CHARACTERS_MAX} characters each")


class SubjectStore:
    """Reads and writes subjects; judges nothing."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def find(self, subject: str) -> Subject | None:
        entry = await self._metadata.get(_key(subject, "metadata"))
        if entry is None:
            return None
        mode = await self._metadata.get(_key(subject, "compatibility"))
        if mode is None:
            raise Corrupt(f"{_key(subject, 'compatibility')} is missing", ErrorCode.METADATA_CORRUPT)
        return Subject(
            _decode(entry, SubjectRecord),
            entry.version,
            _decode(mode, CompatibilityRecord).mode,
            mode.version,
        )

    async def name_of(self, schema_id: int) -> str | None:
        entry = await self._metadata.get(f"{INDEX}/{schema_id}")
        return None if entry is None else _decode(entry, IndexRecord).subject

    async def names(self) -> list[str]:
        """Every subject, in the order of their ids."""
        records = [_decode(entry, IndexRecord) for entry in await self._metadata.list(INDEX)]
        return [record.subject for record in sorted(records, key=lambda record: record.schema_id)]

    async def version(self, subject: str, number: int) -> VersionRecord | None:
        entry = await self._metadata.get(_key(subject, "versions", number))
        return None if entry is None else _decode(entry, VersionRecord)

    async def versions(self, subject: str) -> list[VersionRecord]:
        """Those not deleted, oldest first."""
        entries = await self._metadata.list(_key(subject, "versions"))
        # Keys are ordered as text, where 10 comes before 2.
        return sorted((_decode(entry, VersionRecord) for entry in entries), key=lambda record: record.version)

    async def definition(self, subject: str, number: int) -> bytes | None:
        entry = await self._metadata.get(_key(subject, "definitions", number))
        return None if entry is None else entry.value

    async def version_like(self, subject: str, schema: ParsedSchema) -> int | None:
        """The version that is the same schema, if the subject has one."""
        entry = await self._metadata.get(_fingerprint_key(subject, schema.kind, schema.fingerprint))
        return None if entry is None else int(entry.value)

    async def referrers(self, subject: str, number: int) -> list[Referrer]:
        """Versions that refer to this one, in the order of their names."""
        entries = await self._metadata.list(_key(subject, "referrers", number))
        return [_decode(entry, Referrer) for entry in entries]

    async def create(
        self,
        record: SubjectRecord,
        mode: CompatibilityMode,
        definition: bytes,
        referred: Sequence[Subject] = (),
    ) -> None:
        """Write a subject with its first version; VersionMismatch if it exists, or a referred subject changed."""
        subject = record.subject
        writes = _version_writes(record, definition)
        writes.append(Put(_key(subject, "compatibility"), _encode(CompatibilityRecord(mode=mode))))
        index = IndexRecord(subject=subject, schema_id=record.schema_id)
        writes.append(Put(f"{INDEX}/{record.schema_id}", _encode(index)))
        compares = [Compare(_key(subject, "metadata"), ABSENT)]
        _hold(referred, record, compares, writes)
        await self._metadata.transact(compares, writes)

    async def append(
        self, found: Subject, record: SubjectRecord, definition: bytes, referred: Sequence[Subject] = ()
    ) -> None:
        """Write the record's latest version; VersionMismatch if versions or mode, or a referred subject, changed."""
        compares = [
            Compare(_key(record.subject, "metadata"), found.record_version),
            Compare(_key(record.subject, "compatibility"), found.mode_version),
        ]
        writes = _version_writes(record, definition)
        _hold(referred, record, compares, writes)
        await self._metadata.transact(compares, writes)

    async def remove(self, found: Subject, record: SubjectRecord, gone: VersionRecord) -> None:
        """Delete one version and write what remains; VersionMismatch if versions changed since."""
        subject = record.subject
        writes: list[Write] = [
            Put(_key(subject, "metadata"), _encode(record)),
            Delete(_key(subject, "versions", gone.version)),
            Delete(_key(subject, "definitions", gone.version)),
            Delete(_fingerprint_key(subject, gone.schema_type, gone.fingerprint)),
            *(Delete(key) for key in _referrer_keys(subject, gone)),
        ]
        await self._metadata.transact([Compare(_key(subject, "metadata"), found.record_version)], writes)

    async def set_mode(self, found: Subject, mode: CompatibilityMode) -> None:
        await self._metadata.put(
            _key(found.record.subject, "compatibility"),
            _encode(CompatibilityRecord(mode=mode)),
            expected_version=found.mode_version,
        )


def deleted_version(change: Change) -> tuple[str, int] | None:
    """Subject and number if the change is the end of a version."""
    parts = change.key.removeprefix(SUBJECTS + "/").split("/")
    if change.value is None and len(parts) == 3 and parts[1] == "versions":
        return unquote(parts[0]), int(parts[2])
    return None


def is_new_version(change: Change) -> bool:
    parts = change.key.removeprefix(SUBJECTS + "/").split("/")
    return change.value is not None and len(parts) == 3 and parts[1] == "versions"


def _version_writes(record: SubjectRecord, definition: bytes) -> list[Write]:
    latest = record.latest
    assert latest is not None, "a record is written with the version it was made for"
    subject = record.subject
    referrer = _encode(Referrer(subject=subject, version=latest.version))
    return [
        *(Put(key, referrer) for key in _referrer_keys(subject, latest)),
        Put(_key(subject, "metadata"), _encode(record)),
        Put(_key(subject, "versions", latest.version), _encode(latest)),
        Put(_key(subject, "definitions", latest.version), definition),
        Put(_fingerprint_key(subject, latest.schema_type, latest.fingerprint), b"%d" % latest.version),
    ]


def _hold(
    referred: Sequence[Subject], record: SubjectRecord, compares: list[Compare], writes: list[Write]
) -> None:
    """Have the transaction fail if a referred subject changes before, and a deletion there if it comes after."""
    for other in referred:
        if other.record.subject != record.subject:  # whose metadata is compared and written anyway
            key = _key(other.record.subject, "metadata")
            compares.append(Compare(key, other.record_version))
            writes.append(Put(key, _encode(other.record)))


def _referrer_keys(subject: str, version: VersionRecord) -> list[str]:
    name = f"{quote(subject, safe='')}:{version.version}"
    # Two names may mean one version.
    return list(
        dict.fromkeys(_key(each.subject, "referrers", each.version, name) for each in version.references)
    )


def _key(subject: str, *parts: str | int) -> str:
    return "/".join([SUBJECTS, quote(subject, safe=""), *map(str, parts)])


def _fingerprint_key(subject: str, kind: SchemaKind, fingerprint: str) -> str:
    # With the kind: one JSON text can be a schema in two formats.
    return _key(subject, "fingerprints", f"{kind.value}:{fingerprint}")


def _encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def _decode(entry: Entry, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(entry.value, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{entry.key} does not hold a {kind.__name__}: {error}", ErrorCode.METADATA_CORRUPT
        ) from error
