"""Parsing and comparing schemas beside the event loop: in few threads, with a bounded queue, remembered."""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final, ParamSpec, TypeVar

from pydanube.kernel.errors import ErrorCode, Unavailable
from pydanube.schemas.format import NO_REFERENCES, ParsedSchema, SchemaKind, parse_schema
from pydanube.schemas.recently_used import RecentlyUsed

THREADS_MAX: Final = 2
WAITING_MAX: Final = 256
"""Parses and comparisons under way or waiting for a thread."""

PARSED_MAX: Final = 1_024
PARSED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of definitions; what is made of one takes some ten times its size."""

P = ParamSpec("P")
T = TypeVar("T")


class SchemaParser:
    """A definition may take milliseconds of Python or a process of its own: the loop never waits for it."""

    def __init__(self) -> None:
        self._threads = asyncio.Semaphore(THREADS_MAX)
        self._waiting = 0
        self._parsed: RecentlyUsed[tuple[SchemaKind, bytes], ParsedSchema] = RecentlyUsed(
            count_max=PARSED_MAX, weight_max=PARSED_BYTES_MAX
        )

    async def parse(
        self, kind: SchemaKind, definition: bytes, references: Mapping[str, bytes] = NO_REFERENCES
    ) -> ParsedSchema:
        """As `parse_schema`; a definition seen lately costs its hash."""
        key = (kind, _digest(definition, references))
        parsed = self._parsed.get(key)
        if parsed is None:
            parsed = await self.aside(parse_schema, kind, definition, references=references)
            self._parsed.add(key, parsed, len(definition) + sum(map(len, references.values())))
        return parsed

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work in a thread, when one is free."""
        if self._waiting >= WAITING_MAX:
            raise Unavailable(
                f"{self._waiting} schemas are being parsed or compared already: try again shortly",
                ErrorCode.OVERLOADED,
            )
        self._waiting += 1
        try:
            async with self._threads:
                return await asyncio.to_thread(work, *args, **kwargs)
        finally:
            self._waiting -= 1


def _digest(definition: bytes, references: Mapping[str, bytes]) -> bytes:
    digest = sha256(definition)
    for name in sorted(references):
        digest = sha256(digest.digest() + sha256(name.encode()).digest() + sha256(references[name]).digest())
    return digest.digest()
