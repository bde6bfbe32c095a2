"""Codecs by schema id and version: made once for all who ask, and not asked for again at once if there are none."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from pydanube.client.schema_codec import Codec
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected
from pydanube.schemas.recently_unknown import RecentlyUnknown

CODECS_MAX: Final = 1_000
"""Remembered at a time; a topic has a handful."""
UNKNOWN_MAX: Final = 1_000
UNKNOWN_MS: Final = 5_000
"""How long the registry is not asked again for what it does not have."""

Load = Callable[[int, int | None], Awaitable[Codec]]


class SchemaCodecs:
    """A version never changes, so that a codec holds for good. Without a version, the latest one is meant."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._codecs: dict[tuple[int, int | None], asyncio.Task[Codec]] = {}
        self._unknown: RecentlyUnknown[tuple[int, int | None]] = RecentlyUnknown(
            count_max=UNKNOWN_MAX, ms=UNKNOWN_MS, now_ms=lambda: time.monotonic_ns() // 1_000_000
        )

    async def get(self, schema_id: int, version: int | None) -> Codec:
        """The codec of a version.

        Raises:
            Rejected: the registry has no such version (SCHEMA_UNKNOWN), or this client cannot use it.
        """
        named = (schema_id, version)
        reason = self._unknown.reason(named)
        if reason is not None:
            raise Rejected(reason, ErrorCode.SCHEMA_UNKNOWN)
        task = self._codecs.get(named)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            if len(self._codecs) >= CODECS_MAX:
                self._codecs.pop(next(iter(self._codecs)))
            task = asyncio.create_task(self._loaded(schema_id, version))
            self._codecs[named] = task
        return await asyncio.shield(task)

    def expect_new(self) -> None:
        """Something was registered: what was unknown may be known now."""
        self._unknown.clear()

    async def close(self) -> None:
        for task in self._codecs.values():
            task.cancel()
        await asyncio.gather(*self._codecs.values(), return_exceptions=True)
        self._codecs.clear()

    async def _loaded(self, schema_id: int, version: int | None) -> Codec:
        try:
            return await self._load(schema_id, version)
        except DanubeError as error:
            if error.code is ErrorCode.SCHEMA_UNKNOWN:
                self._unknown.note((schema_id, version), error.text)
            raise
