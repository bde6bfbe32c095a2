"""Reading with one version of a subject whatever version messages were written with."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pydanube.client.message import Message
from pydanube.client.schema_codec import Codec
from pydanube.client.schema_codecs import SchemaCodecs
from pydanube.kernel.errors import ErrorCode, Rejected

WRITERS_MAX: Final = 1_000
"""Versions of one subject met at a time; more are compared anew."""
FIRST_VERSION: Final = 1
"""What a message means that names no version."""


class PinnedSchema:
    """Decodes as the writer's version says and hands out what the pinned version makes of it.

    A message that cannot be read so is an error of its own: those before and after it are not concerned, and it may be
    acked or nacked like any other.
    """

    def __init__(self, codecs: SchemaCodecs, pinned: Codec, subject: str) -> None:
        self.subject: Final = subject
        self._codecs = codecs
        self._pinned = pinned
        self._readings: dict[int, Callable[[bytes], Any]] = {}

    @property
    def schema_id(self) -> int:
        return self._pinned.schema_id

    @property
    def version(self) -> int:
        return self._pinned.version

    async def decode(self, message: Message) -> Any:
        """The value of a delivered message.

        Raises:
            Rejected: it is of another subject or of none (SCHEMA_MISMATCH), of a version that this one cannot read
                (SCHEMA_INCOMPATIBLE) or that is gone (SCHEMA_UNKNOWN), or does not fit (PAYLOAD_INVALID).
        """
        return await self.read(message.schema_id, message.schema_version, message.payload)

    async def read(self, schema_id: int | None, schema_version: int | None, payload: bytes) -> Any:
        """The value of a payload that names this schema."""
        if schema_id != self.schema_id:
            what = f"names schema {schema_id}" if schema_id else "names no schema"
            raise Rejected(
                f"the message {what}: this reads subject {self.subject!r}, which is schema {self.schema_id}",
                ErrorCode.SCHEMA_MISMATCH,
            )
        version = schema_version or FIRST_VERSION
        reading = self._readings.get(version)
        if reading is None:
            writer = await self._codecs.get(schema_id, version)
            # Comparing two schemas may take a while: not while everything else waits.
            reading = await asyncio.to_thread(self._pinned.reading, writer)
            if len(self._readings) >= WRITERS_MAX:
                self._readings.pop(next(iter(self._readings)))
            self._readings[version] = reading
        return reading(payload)
