"""What every durable store promises.

Objects are written once under names nobody has used before, then only read or deleted: no store needs
to change one in place, so none has to offer more than create-if-absent. Names are paths of parts joined
by `/`, without a leading one. Failures of a store are raised as DanubeError, whatever library is behind:

    Unavailable (STORAGE_FAILED)   the store did not answer, refused or has no room: try again later
    Corrupt (SEGMENT_CORRUPT)      the object is missing or shorter than asked for
    Conflict (VERSION_MISMATCH)    an object of that name exists already
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol


class StoredObject(NamedTuple):
    key: str
    size: int
    modified_ms: int
    """When it was written, by the store's own clock."""


class DurableStore(Protocol):
    async def put_file(self, key: str, file: Path) -> str:
        """Store a local file; durable and whole when this returns, invisible or whole if it does not.

        The file may be moved there, so it may be gone afterwards: whoever made it removes what is left. Returns the
        store's tag of the object, empty if it has none. An object of that name is Conflict.
        """
        ...

    async def put_bytes(self, key: str, data: bytes) -> str:
        """Store a small object in the same way."""
        ...

    async def read(self, key: str, position: int, size: int) -> memoryview:
        """Exactly these bytes of an object."""
        ...

    async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
        """A small object, None if there is none; Corrupt if it is larger than it may be."""
        ...

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """Everything below a path, in no particular order; what an interrupted write left included."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; nothing happens if it is gone already."""
        ...

    def place(self, key: str) -> str:
        """Where an operator finds the object: for messages only, never with a secret in it."""
        ...

    async def close(self) -> None: ...
