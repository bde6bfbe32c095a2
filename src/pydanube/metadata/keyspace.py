"""Keys, versions and leases in memory: a state machine without I/O, clock or lock."""

from bisect import bisect_left, insort
from collections.abc import Sequence

from pydanube.metadata.commands import Command, Grant, Outcome, Revoke, Transact
from pydanube.metadata.store import (
    ABSENT,
    ROOT,
    Change,
    Compare,
    Delete,
    Entry,
    LeaseId,
    LeaseUnknown,
    Put,
    VersionMismatch,
    Write,
)


class Keyspace:
    """Applies commands in order; the same commands give the same state everywhere."""

    def __init__(self) -> None:
        self.revision = 0
        self._entries: dict[str, Entry] = {}
        self._sorted_keys: list[str] = []
        self._lease_of: dict[str, LeaseId] = {}
        self._keys_of: dict[LeaseId, set[str]] = {}

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def list(self, prefix: str) -> list[Entry]:
        if prefix == ROOT:
            return [self._entries[key] for key in self._sorted_keys]
        # "0" follows "/" in every order used here, so [prefix/, prefix0) is exactly what lies below.
        start = bisect_left(self._sorted_keys, prefix + "/")
        end = bisect_left(self._sorted_keys, prefix + "0")
        found = [self._entries[key] for key in self._sorted_keys[start:end]]
        own = self._entries.get(prefix)
        return found if own is None else [own, *found]

    def apply(self, command: Command) -> Outcome:
        """Perform one command whole, or raise VersionMismatch or LeaseUnknown and change nothing."""
        match command:
            case Transact(compares, writes):
                self._check(compares, writes)
                return self._write(writes)
            case Grant():
                self.revision += 1
                self._keys_of[LeaseId(self.revision)] = set()
                return Outcome(self.revision, ())
            case Revoke(lease):
                outcome = self._write([Delete(key) for key in sorted(self._keys_of.get(lease, ()))])
                self._keys_of.pop(lease, None)
                return outcome

    def _check(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        for compare in compares:
            entry = self._entries.get(compare.key)
            current = ABSENT if entry is None else entry.version
            if current != compare.version:
                raise VersionMismatch(compare.key, expected=compare.version, current=current)
        for write in writes:
            if isinstance(write, Put) and write.lease is not None and write.lease not in self._keys_of:
                raise LeaseUnknown(write.lease)

    def _write(self, writes: Sequence[Write]) -> Outcome:
        version = self.revision + 1
        changes: list[Change] = []
        for write in writes:
            if isinstance(write, Put):
                self._put(write, version)
                changes.append(Change(write.key, write.value, version))
            elif self._entries.pop(write.key, None) is not None:
                del self._sorted_keys[bisect_left(self._sorted_keys, write.key)]
                self._detach(write.key)
                changes.append(Change(write.key, None, version))
        if changes:
            self.revision = version
        return Outcome(self.revision, tuple(changes))

    def _put(self, put: Put, version: int) -> None:
        if put.key not in self._entries:
            insort(self._sorted_keys, put.key)
        self._entries[put.key] = Entry(put.key, put.value, version)
        self._detach(put.key)
        if put.lease is not None:
            self._lease_of[put.key] = put.lease
            self._keys_of[put.lease].add(put.key)

    def _detach(self, key: str) -> None:
        lease = self._lease_of.pop(key, None)
        if lease is not None:
            self._keys_of[lease].discard(key)
