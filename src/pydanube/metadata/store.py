"""The contract of the metadata store: small, strongly consistent facts.

A store is a map from keys to bytes under one counter, the *revision*. Every write that changes
something takes the next revision, and the entry remembers it as its `version`. Versions therefore
never repeat, not even for a key that was deleted and created again: a compare on a version is safe
against that.

Keys are paths such as `/topics/default/orders/policy`: a leading slash, no empty part, no trailing
slash. A *prefix* is a key, or `/` for everything, and is compared by whole parts: `/a/b` covers
`/a/b` and `/a/b/c`, never `/a/bc`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol

from pydanube.kernel.errors import Conflict, ErrorCode, Rejected

ABSENT: Final = 0
"""The version of a key that does not exist; as `expected_version` it means "create only"."""

ROOT: Final = "/"
"""The prefix that covers every key."""

KEY_BYTES_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 1024 * 1024
TRANSACTION_OPERATIONS_MAX: Final = 256
"""Compares and writes of one transaction together."""

LEASE_TTL_MS_MAX: Final = 24 * 60 * 60 * 1000

LeaseId = NewType("LeaseId", int)


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact: `version` is the revision of the write that gave the key this value."""

    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """One key written (`value` set) or deleted (`value` None) at revision `version`."""

    key: str
    value: bytes | None
    version: int


@dataclass(frozen=True, slots=True)
class Compare:
    """Holds while `key` has exactly this version (`ABSENT`: while it does not exist)."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the key; nothing happens if it does not exist."""

    key: str


Write = Put | Delete


@dataclass(frozen=True, slots=True)
class Lease:
    """A promise to come back within `ttl_ms`; keys put under it vanish when the promise is broken."""

    id: LeaseId
    ttl_ms: int


class VersionMismatch(Conflict):
    """A compare failed: `key` has version `current`, not `expected`. Nothing was written."""

    default_code = ErrorCode.VERSION_MISMATCH

    def __init__(self, key: str, *, expected: int, current: int) -> None:
        now = "does not exist" if current == ABSENT else f"has version {current}"
        wanted = "to be absent" if expected == ABSENT else f"version {expected}"
        super().__init__(f"{key} {now}, expected {wanted}: nothing was written, read it again and decide")
        self.key = key
        self.expected = expected
        self.current = current


class HistoryLost(Conflict):
    """The changes after `since_version` cannot be told any more: list again, watch from there."""

    default_code = ErrorCode.HISTORY_LOST

    def __init__(self, prefix: str, *, since_version: int, oldest: int, newest: int) -> None:
        super().__init__(
            f"changes of {prefix} after version {since_version} are not available (remembered: after {oldest}, "
            f"up to {newest}): take revision(), list the prefix again and watch from that revision"
        )
        self.since_version = since_version
        self.oldest = oldest


class LeaseUnknown(Conflict):
    """The lease has expired or was revoked, and its keys are gone: grant a new one, put them again."""

    default_code = ErrorCode.LEASE_UNKNOWN

    def __init__(self, lease: LeaseId) -> None:
        super().__init__(f"lease {lease} has expired or was revoked: grant a new one and put its keys again")
        self.lease = lease


class MetadataStore(Protocol):
    """What every back end promises; `tests/contract/metadata` holds them to it.

    All calls are linearizable: a read that starts after a write returned sees it, and a write that
    returned is durable as far as the back end keeps anything at all. A call that raises `Rejected`
    or `Conflict` changed nothing; after `OutcomeUnknown`, read before repeating. One event loop
    uses a store; it is never blocked by it.
    """

    async def revision(self) -> int:
        """The revision of the last change, 0 in an empty store.

        To mirror a prefix without a gap: take `revision()`, `list` the prefix, then `watch` it since
        that revision, and ignore changes not newer than the listed entry.
        """
        ...

    async def get(self, key: str) -> Entry | None:
        """The entry, or None while the key does not exist."""
        ...

    async def put(
        self, key: str, value: bytes, *, expected_version: int | None = None, lease: LeaseId | None = None
    ) -> int:
        """Write a value and return its version.

        The key ends up under `lease`, or under none, whatever it was under before.

        Raises:
            VersionMismatch: `expected_version` is given and the key has another one.
            LeaseUnknown: the lease has expired or was revoked.
            Rejected: the key or value is malformed or too large.
        """
        ...

    async def delete(self, key: str, *, expected_version: int | None = None) -> bool:
        """Remove a key; False if it did not exist. Raises VersionMismatch as `put` does."""
        ...

    async def list(self, prefix: str) -> list[Entry]:
        """All entries the prefix covers, in ascending order of their keys, as of one revision."""
        ...

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Write]) -> int:
        """Do all writes at one revision if all compares hold, else nothing; return the revision.

        A key may be written once per transaction. If nothing changes (no writes, or only deletes of
        absent keys) the present revision is returned.

        Raises:
            VersionMismatch: of the first compare that failed.
        """
        ...

    def watch(self, prefix: str, *, since_version: int) -> AsyncIterator[Change]:
        """Every change under the prefix with a version above `since_version`, in order, without a gap.

        Never ends by itself. The history kept is bounded: a version too old, or a reader too slow,
        gets `HistoryLost`; a closed store gives `Unavailable`.
        """
        ...

    async def grant(self, ttl_ms: int) -> Lease:
        """A new lease, alive for at least `ttl_ms` after this call or the last `keep_alive`."""
        ...

    async def keep_alive(self, lease: LeaseId) -> None:
        """Start the lease's time again; LeaseUnknown if it is over."""
        ...

    async def revoke(self, lease: LeaseId) -> None:
        """End the lease and delete its keys at one revision; nothing happens if it is over already."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, end the watches, release everything. Later calls raise Unavailable."""
        ...


def check_key(key: str) -> str:
    """Accept a well-formed key, or say what is wrong with it."""
    if not key.startswith("/") or key.endswith("/") or "//" in key or "\0" in key:
        raise Rejected(
            f"invalid metadata key {key[:KEY_BYTES_MAX]!r}: expected a path such as /topics/default/orders "
            "without empty parts, trailing slash or NUL"
        )
    _check_size("key", key[:80], len(_utf8(key)), KEY_BYTES_MAX)
    return key


def check_prefix(prefix: str) -> str:
    return prefix if prefix == ROOT else check_key(prefix)


def check_writes(compares: Sequence[Compare], writes: Sequence[Write]) -> None:
    """Refuse a transaction no back end would take."""
    if len(compares) + len(writes) > TRANSACTION_OPERATIONS_MAX:
        raise Rejected(
            f"a transaction of {len(compares)} compares and {len(writes)} writes is too large: "
            f"{TRANSACTION_OPERATIONS_MAX} operations at most, split it"
        )
    for compare in compares:
        check_key(compare.key)
        if compare.version < ABSENT:
            raise Rejected(f"invalid expected version {compare.version} of {compare.key}: expected 0 or more")
    seen: set[str] = set()
    for write in writes:
        check_key(write.key)
        if write.key in seen:
            raise Rejected(f"a transaction writes {write.key} twice: once is enough")
        seen.add(write.key)
        if isinstance(write, Put):
            _check_size("value of", write.key, len(write.value), VALUE_BYTES_MAX)


def check_ttl(ttl_ms: int) -> int:
    if not 0 < ttl_ms <= LEASE_TTL_MS_MAX:
        raise Rejected(f"invalid lease time of {ttl_ms} ms: expected 1 to {LEASE_TTL_MS_MAX}")
    return ttl_ms


def covers(prefix: str, key: str) -> bool:
    """Whether the key is the prefix or lies below it."""
    return prefix in (ROOT, key) or key.startswith(prefix + "/")


def _utf8(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise Rejected(f"invalid metadata key {key[:KEY_BYTES_MAX]!r}: not encodable as UTF-8") from error


def _check_size(what: str, which: str, size: int, size_max: int) -> None:
    if size > size_max:
        raise Rejected(f"metadata {what} {which} is too large: {size} bytes, {size_max} at most")
