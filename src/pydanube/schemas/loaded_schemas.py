"""Parsed schemas by id and version: answered from memory, or loaded once for all who wait."""

import asyncio
from typing import Final

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.metadata import HistoryLost, MetadataStore
from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.parsing import SchemaParser
from pydanube.schemas.recently_unknown import RecentlyUnknown
from pydanube.schemas.recently_used import RecentlyUsed
from pydanube.schemas.references import References, unusable
from pydanube.schemas.subjects import SUBJECTS, SubjectStore, deleted_version, is_new_version

LOADED_MAX: Final = 4_096
LOADED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of definitions."""

SUBJECTS_KNOWN_MAX: Final = 100_000

UNKNOWN_MAX: Final = 4_096
UNKNOWN_MS: Final = 1_000
"""How long an id or a version that is not there is not asked for again; a registration ends it."""

ANY_VERSION: Final = 0


class LoadedSchemas:
    """`subject_of` and `get` never wait; `load_subject` and `load` ask the store and remember the answer."""

    def __init__(
        self, metadata: MetadataStore, subjects: SubjectStore, parser: SchemaParser, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._subjects = subjects
        self._references = References(subjects)
        self._parser = parser
        # An id belongs to its subject for ever.
        self._names: RecentlyUsed[int, str] = RecentlyUsed(
            count_max=SUBJECTS_KNOWN_MAX, weight_max=SUBJECTS_KNOWN_MAX
        )
        self._schemas: RecentlyUsed[tuple[int, int], ParsedSchema] = RecentlyUsed(
            count_max=LOADED_MAX, weight_max=LOADED_BYTES_MAX
        )
        self._unknown: RecentlyUnknown[tuple[int, int]] = RecentlyUnknown(
            count_max=UNKNOWN_MAX, ms=UNKNOWN_MS, now_ms=clock.monotonic_ms
        )
        self._registrations = 0
        self._loading: dict[tuple[int, int], asyncio.Task[ParsedSchema | None]] = {}
        self.deletions = 0
        """Grows whenever something was forgotten: who keeps a schema longer looks at it."""
        self.is_following = False

    def subject_of(self, schema_id: int) -> str | None:
        """The subject of an id, if it is in memory."""
        return self._names.get(schema_id)

    def get(self, schema_id: int, version: int) -> ParsedSchema | None:
        """A schema, if it is in memory."""
        return self._schemas.get((schema_id, version))

    def why_unknown(self, schema_id: int, version: int = ANY_VERSION) -> str | None:
        """Why there is no such schema, if that was found lately."""
        return self._unknown.reason((schema_id, version))

    async def load_subject(self, schema_id: int) -> str | None:
        """The subject of an id; None if there is none such."""
        name = self._names.get(schema_id)
        if name is None and self.why_unknown(schema_id) is None:
            registrations = self._registrations
            name = await self._subjects.name_of(schema_id)
            if name is not None:
                self._names.add(schema_id, name, 1)
            elif registrations == self._registrations:
                self._unknown.note((schema_id, ANY_VERSION), unknown_id(schema_id))
        return name

    async def load(self, schema_id: int, version: int) -> ParsedSchema | None:
        """A schema; None if there is none such, or no longer, or was none a moment ago."""
        if self.why_unknown(schema_id, version) is not None:
            return None
        return await self.load_registered(schema_id, version)

    async def load_registered(self, schema_id: int, version: int) -> ParsedSchema | None:
        """A schema that is known to be registered; None if it was deleted meanwhile."""
        key = (schema_id, version)
        schema = self._schemas.get(key)
        if schema is not None:
            return schema
        task = self._loading.get(key)
        if task is None:
            task = asyncio.create_task(self._load(schema_id, version))
            self._loading[key] = task
            task.add_done_callback(lambda _: self._loading.pop(key, None))
        # One who gives up waiting must not take the answer from the others.
        return await asyncio.shield(task)

    async def check_payload(self, schema: ParsedSchema, payload: bytes) -> str | None:
        """As the schema does, but in a thread."""
        return await self._parser.aside(schema.check_payload, payload)

    def expect_new(self) -> None:
        """Something was registered: what was unknown may be known now, also to who is just asking."""
        self._registrations += 1
        self._unknown.clear()

    def forget(self, schema_id: int, version: int) -> None:
        """Drop a deleted version, also one that is just being loaded."""
        self.deletions += 1
        self._schemas.drop((schema_id, version))

    async def follow(self) -> None:
        """Forget what other brokers delete; runs until cancelled or the store is closed."""
        while True:
            since = await self._metadata.revision()
            self.deletions += 1
            self._schemas.drop_where(lambda key: True)
            self.expect_new()
            self.is_following = True
            try:
                async for change in self._metadata.watch(SUBJECTS, since_version=since):
                    gone = deleted_version(change)
                    if gone is not None:
                        self._forget_named(*gone)
                    elif is_new_version(change):
                        self.expect_new()
            except HistoryLost:
                continue  # too much has changed to be told: begin again with nothing in memory

    def _forget_named(self, subject: str, version: int) -> None:
        self.deletions += 1
        self._schemas.drop_where(lambda key: key[1] == version and self._names.get(key[0]) in (subject, None))

    async def _load(self, schema_id: int, version: int) -> ParsedSchema | None:
        deletions, registrations = self.deletions, self._registrations
        subject = await self.load_subject(schema_id)
        if subject is None:
            return None
        record = await self._subjects.version(subject, version)
        definition = await self._subjects.definition(subject, version)
        if record is None or definition is None:
            if registrations == self._registrations:
                self._unknown.note((schema_id, version), unknown_version(subject, version))
            return None
        try:
            followed = await self._references.follow(record.schema_type, record.references)
            references = {each.reference.name: each.definition for each in followed}
            schema = await self._parser.parse(record.schema_type, definition, references)
        except Rejected as error:
            raise unusable(subject, version, error) from error
        if deletions == self.deletions:
            size = len(definition) + sum(map(len, references.values()))
            self._schemas.add((schema_id, version), schema, size)
        return schema


def unknown_id(schema_id: int) -> str:
    return f"no schema has id {schema_id}: register it first"


def unknown_version(subject: str, version: int) -> str:
    return f"subject {subject!r} has no version {version}"
