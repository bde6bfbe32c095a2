"""What every durable store promises.

Objects are written once under names nobody has used before, then only read or deleted: no store needs
to change one in place, so none has to offer more than create-if-absent. Names are paths of parts joined
by `/`, without a leading one. Failures of a store are raised as DanubeError, whatever library is behind:

    Unavailable (STORAGE_FAILED)   the store did not answer, refused or has no room: try again later
    Corrupt (SEGMENT_CORRUPT)      the object is missing (Missing) or shorter than asked for
    Conflict (VERSION_MISMATCH)    an object of that name exists already
    Rejected (ARGUMENT_INVALID)    the name is not one that every store can keep
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol

from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected, Unavailable

KEY_BYTES_MAX = 900
"""Clouds allow 1,024 bytes; the rest is for the prefix an operator puts before all names."""

# What no store encodes, folds or forbids: a name is the same string on every one of them.
_PART = re.compile(r"[A-Za-z0-9_=+-][A-Za-z0-9._=+-]{0,199}")


class Missing(Corrupt):
    """The object is not there, or not yet: some stores show a new object only after a while."""


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


def checked_key(key: str) -> str:
    """The name itself, or Rejected: what one store would keep under another name is refused by all."""
    if len(key) > KEY_BYTES_MAX or not all(_PART.fullmatch(part) for part in key.split("/")):
        raise Rejected(
            f"object name {key!r}: use parts of letters, digits and . _ = + - joined by /, none beginning with a dot, "
            f"at most {KEY_BYTES_MAX} characters"
        )
    return key


def checked_prefix(prefix: str) -> str:
    """A path to list below, without a closing `/`; empty for everything."""
    return checked_key(prefix.rstrip("/")) if prefix else ""


def unavailable(text: str) -> Unavailable:
    return Unavailable(text, ErrorCode.STORAGE_FAILED)


def exists_already(place: str) -> Conflict:
    return Conflict(f"{place} exists already: objects are never replaced, use a new name")


def missing(place: str) -> Missing:
    return Missing(
        f"{place} is missing: restore it from a backup of the store, or delete the topic's history up to its end",
        ErrorCode.SEGMENT_CORRUPT,
    )


def too_short(place: str, *, asked_end: int, size: int) -> Corrupt:
    return Corrupt(
        f"{place} ends at byte {size}, bytes up to {asked_end} were asked for: it was cut or replaced; "
        "restore it from a backup of the store",
        ErrorCode.SEGMENT_CORRUPT,
    )


def too_large(place: str, *, size: int, size_max: int) -> Corrupt:
    return Corrupt(
        f"{place} has {size} bytes, at most {size_max} can be one of ours: it was written by somebody else; "
        "move it out of the way",
        ErrorCode.SEGMENT_CORRUPT,
    )
