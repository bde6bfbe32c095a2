"""Parsed schemas by id and version: answered from memory, or loaded once for all who wait."""

import asyncio
from typing import Final

from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected
from pydanube.metadata import HistoryLost, MetadataStore
from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.parsing import SchemaParser
from pydanube.schemas.recently_used import RecentlyUsed
from pydanube.schemas.subjects import SUBJECTS, SubjectStore, deleted_version

LOADED_MAX: Final = 4_096
LOADED_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of definitions."""

SUBJECTS_KNOWN_MAX: Final = 100_000


class LoadedSchemas:
    """`subject_of` and `get` never wait; `load_subject` and `load` ask the store and remember the answer."""

    def __init__(self, metadata: MetadataStore, subjects: SubjectStore, parser: SchemaParser) -> None:
        self._metadata = metadata
        self._subjects = subjects
        self._parser = parser
        # An id belongs to its subject for ever.
        self._names: RecentlyUsed[int, str] = RecentlyUsed(
            count_max=SUBJECTS_KNOWN_MAX, weight_max=SUBJECTS_KNOWN_MAX
        )
        self._schemas: RecentlyUsed[tuple[int, int], ParsedSchema] = RecentlyUsed(
            count_max=LOADED_MAX, weight_max=LOADED_BYTES_MAX
        )
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

    async def load_subject(self, schema_id: int) -> str | None:
        """The subject of an id; None if there is none such."""
        name = self._names.get(schema_id)
        if name is None:
            name = await self._subjects.name_of(schema_id)
            if name is not None:
                self._names.add(schema_id, name, 1)
        return name

    async def load(self, schema_id: int, version: int) -> ParsedSchema | None:
        """A schema; None if there is none such, or no longer."""
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
            self.is_following = True
            try:
                async for change in self._metadata.watch(SUBJECTS, since_version=since):
                    gone = deleted_version(change)
                    if gone is not None:
                        self._forget_named(*gone)
            except HistoryLost:
                continue  # too much has changed to be told: begin again with nothing in memory

    def _forget_named(self, subject: str, version: int) -> None:
        self.deletions += 1
        self._schemas.drop_where(lambda key: key[1] == version and self._names.get(key[0]) in (subject, None))

    async def _load(self, schema_id: int, version: int) -> ParsedSchema | None:
        deletions = self.deletions
        subject = await self.load_subject(schema_id)
        if subject is None:
            return None
        record = await self._subjects.version(subject, version)
        definition = await self._subjects.definition(subject, version)
        if record is None or definition is None:
            return None
        try:
            schema = await self._parser.parse(record.schema_type, definition)
        except Rejected as error:
            raise Corrupt(
                f"version {version} of schema subject {subject!r} was registered and cannot be parsed now: {error.text}",
                ErrorCode.METADATA_CORRUPT,
            ) from error
        if deletions == self.deletions:
            self._schemas.add((schema_id, version), schema, len(definition))
        return schema
