"""Schemas made of others: which version of which subject a definition means by a name.

A reference leads to a version that exists when it is made, versions never change, and one that is referred to cannot be
deleted: so references cannot form a circle and what a schema means never changes. What the references of a schema
refer to themselves belongs to it as well; within all that, one name has one meaning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.limits import DEFINITION_BYTES_MAX, REFERENCES_MAX, refuse
from pydanube.schemas.subjects import Reference, Subject, SubjectStore, check_subject

DEPTH_MAX: Final = 16
"""References of references of …"""
NAME_BYTES_MAX: Final = 255
REFERRERS_NAMED_MAX: Final = 10

_STRUCTURED: Final = (SchemaKind.AVRO, SchemaKind.JSON_SCHEMA, SchemaKind.PROTOBUF)


@dataclass(frozen=True, slots=True)
class Referenced:
    """A reference and the definition it leads to."""

    reference: Reference
    definition: bytes


def check_references(kind: SchemaKind, references: Sequence[Reference]) -> None:
    """Refuse references nobody can follow, before any is followed."""
    if references and kind not in _STRUCTURED:
        raise refuse(f"a schema of type {kind.value} has no definition, so it cannot refer to others")
    if len(references) > REFERENCES_MAX:
        raise refuse(f"{len(references)} references: a schema may have at most {REFERENCES_MAX}")
    names: set[str] = set()
    for reference in references:
        name = reference.name
        if not name or not name.isprintable() or len(name.encode()) > NAME_BYTES_MAX:
            raise refuse(
                f"invalid reference name {name[:NAME_BYTES_MAX]!r}: expected printable characters, 1 to "
                f"{NAME_BYTES_MAX} bytes of UTF-8"
            )
        if name in names:
            raise refuse(f"the reference {name!r} is given twice: one name has one meaning")
        names.add(name)
        check_subject(reference.subject)


class References:
    """Follows references in the store, within bounds whatever it holds."""

    def __init__(self, subjects: SubjectStore) -> None:
        self._subjects = subjects

    async def follow(self, kind: SchemaKind, references: Sequence[Reference]) -> list[Referenced]:
        """Everything a schema refers to, directly or not; what something refers to stands before it.

        Raises:
            Rejected: a version does not exist (SCHEMA_UNKNOWN), is of another type, is named ambiguously, or it is too
                much (SCHEMA_INVALID).
        """
        walk = _Walk(self._subjects, kind)
        await walk.visit(references, depth=1)
        return walk.found

    async def referred_subjects(self, references: Sequence[Reference]) -> list[Subject]:
        """The subjects as they are now, each once, all versions referred to being there."""
        subjects: dict[str, Subject] = {}
        for reference in references:
            # The subject first: a version that is deleted after this read changes it.
            subject = subjects.get(reference.subject) or await self._subjects.find(reference.subject)
            if subject is None or await self._subjects.version(reference.subject, reference.version) is None:
                raise _missing(reference)
            subjects[reference.subject] = subject
        return list(subjects.values())

    async def check_unused(self, subject: str, version: int) -> None:
        """Refuse to delete what others refer to."""
        referrers = await self._subjects.referrers(subject, version)
        if not referrers:
            return
        named = ", ".join(
            f"version {each.version} of {each.subject!r}" for each in referrers[:REFERRERS_NAMED_MAX]
        )
        more = len(referrers) - REFERRERS_NAMED_MAX
        raise Conflict(
            f"version {version} of subject {subject!r} is referred to by {named}"
            f"{f' and {more} more' if more > 0 else ''}: delete those first",
            ErrorCode.SCHEMA_IN_USE,
        )


class _Walk:
    def __init__(self, subjects: SubjectStore, kind: SchemaKind) -> None:
        self._subjects = subjects
        self._kind = kind
        self._meanings: dict[str, Reference] = {}
        self._size = 0
        self.found: list[Referenced] = []

    async def visit(self, references: Sequence[Reference], *, depth: int) -> None:
        if references and depth > DEPTH_MAX:
            raise refuse(f"references lead more than {DEPTH_MAX} schemas deep: refer to fewer")
        for reference in references:
            known = self._meanings.get(reference.name)
            if known is None:
                self._meanings[reference.name] = reference
                await self._open(reference, depth)
            elif known != reference:
                raise refuse(
                    f"the reference {reference.name!r} means both {_target(known)} and {_target(reference)}: "
                    "refer to one version of it everywhere"
                )

    async def _open(self, reference: Reference, depth: int) -> None:
        if len(self._meanings) > REFERENCES_MAX:
            raise refuse(f"more than {REFERENCES_MAX} references, with those of the references: use fewer")
        record = await self._subjects.version(reference.subject, reference.version)
        definition = await self._subjects.definition(reference.subject, reference.version)
        if record is None or definition is None:
            raise _missing(reference)
        if record.schema_type is not self._kind:
            raise refuse(
                f"the reference {reference.name!r} leads to {_target(reference)}, which is "
                f"{record.schema_type.value}: a schema of type {self._kind.value} refers to its own type only"
            )
        self._size += len(definition)
        if self._size > DEFINITION_BYTES_MAX:
            raise refuse(
                f"the references have more than {DEFINITION_BYTES_MAX} bytes together: refer to fewer"
            )
        await self.visit(record.references, depth=depth + 1)
        self.found.append(Referenced(reference, definition))


def unusable(subject: str, version: int, error: Rejected) -> Corrupt:
    """For a schema that was registered: it could be parsed then, and what it refers to cannot have gone."""
    return Corrupt(
        f"version {version} of schema subject {subject!r} was registered and cannot be parsed now: {error.text}",
        ErrorCode.METADATA_CORRUPT,
    )


def _missing(reference: Reference) -> Rejected:
    return Rejected(
        f"the reference {reference.name!r} leads to {_target(reference)}, which does not exist: register it first",
        ErrorCode.SCHEMA_UNKNOWN,
    )


def _target(reference: Reference) -> str:
    return f"version {reference.version} of subject {reference.subject!r}"
