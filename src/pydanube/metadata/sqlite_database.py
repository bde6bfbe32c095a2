"""The SQL of the sqlite back end: synchronous, used by one thread, knows no event loop.

Durability is SQLite's write-ahead log with `synchronous=FULL` (a commit returns after its sync) plus
the watermark beside it. Every row carries a CRC-32C over all its columns, checked whenever it is read.
"""

import fcntl
import os
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import crc32c

from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, OutcomeUnknown, Rejected, Unavailable
from pydanube.metadata.commands import Command, Grant, Outcome, Revoke, Transact
from pydanube.metadata.store import (
    ABSENT,
    ROOT,
    Change,
    Compare,
    Delete,
    Entry,
    Lease,
    LeaseId,
    LeaseUnknown,
    Put,
    VersionMismatch,
    Write,
)
from pydanube.metadata.watermark import Watermark

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x44414E42

_SCHEMA: Final = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE entries (
        key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, lease INTEGER NOT NULL,
        crc INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX entries_by_lease ON entries (lease) WHERE lease != 0;
    CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL);
    CREATE TABLE state (only INTEGER PRIMARY KEY CHECK (only = 1), revision INTEGER NOT NULL);
    INSERT INTO state VALUES (1, 0);
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {SCHEMA_VERSION};
    COMMIT;
"""

_COLUMNS: Final = "key, value, version, lease, crc"
_ROW_NUMBERS = struct.Struct("<QQI")
_NO_LEASE: Final = 0


@dataclass(frozen=True, slots=True)
class ReadEntry:
    key: str


@dataclass(frozen=True, slots=True)
class ReadEntries:
    prefix: str


Operation = Command | ReadEntry | ReadEntries
Result = Outcome | list[Entry] | DanubeError
"""What became of one operation; a read gives the entries it found."""


class Database:
    """One open database file; use it from the thread that made it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, cached_statements=64)
            try:
                self.revision = self._prepare()
                self._watermark = self._check_watermark()
            except BaseException:
                self._connection.close()
                raise
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, sqlite3.DatabaseError):
                raise _translated(path, error) from error
            raise

    def leases(self) -> list[Lease]:
        rows = self._connection.execute("SELECT id, ttl_ms FROM leases ORDER BY id")
        return [Lease(LeaseId(id_), ttl_ms) for id_, ttl_ms in rows]

    def perform(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform operations in order as one durable commit; an error of one does not touch the others.

        Raises:
            Unavailable: SQLite refused; everything was rolled back.
            OutcomeUnknown: the commit itself failed; the database must not be used any more.
        """
        before = self.revision
        try:
            self._connection.execute("BEGIN")
            results = [self._perform(operation) for operation in operations]
            if self.revision != before:
                self._connection.execute("UPDATE state SET revision = ?", (self.revision,))
        except sqlite3.DatabaseError as error:
            self.revision = before
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise _translated(self._path, error) from error
        try:
            self._connection.execute("COMMIT")
            self._watermark.raise_to(self.revision)
        except (sqlite3.Error, OSError) as error:
            raise OutcomeUnknown(
                f"committing to the metadata store {self._path} failed ({error}): what was being written may or "
                "may not be kept; make room or repair the disk, then restart the broker"
            ) from error
        return results

    def close(self) -> None:
        """Close, which also folds the write-ahead log back into the file."""
        self._connection.close()
        self._watermark.close()
        os.close(self._lock)

    def _prepare(self) -> int:
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
        )
        application_id = self._number("PRAGMA application_id")
        schema_version = self._number("PRAGMA user_version")
        if (application_id, schema_version) == (0, 0) and self._number(
            "SELECT count(*) FROM sqlite_master"
        ) == 0:
            self._connection.executescript(_SCHEMA)
            _sync_folder(self._path.parent)
        elif application_id != _APPLICATION_ID:
            raise Rejected(f"{self._path} is not a metadata store of this broker: point data_dir elsewhere")
        elif schema_version != SCHEMA_VERSION:
            raise Rejected(
                f"{self._path} has schema version {schema_version}, this release knows {SCHEMA_VERSION}: start the "
                "release that wrote it, or a newer one"
            )
        found = self._connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Corrupt(
                f"{self._path} is damaged ({found}): restore it from a backup", ErrorCode.METADATA_CORRUPT
            )
        return self._number("SELECT revision FROM state")

    def _check_watermark(self) -> Watermark:
        path = self._path.with_name(self._path.name + ".mark")
        watermark = Watermark(path)
        if self.revision < watermark.revision:
            marked = watermark.revision
            watermark.close()
            raise Corrupt(
                f"{self._path} ends at revision {self.revision}, but revision {marked} was acknowledged: writes are "
                f"missing. Restore the database and its -wal file; if the older state is wanted, delete {path}",
                ErrorCode.METADATA_CORRUPT,
            )
        return watermark

    def _perform(self, operation: Operation) -> Result:
        try:
            match operation:
                case ReadEntry(key):
                    return self._read("WHERE key = ?", key)
                case ReadEntries(prefix) if prefix == ROOT:
                    return self._read("ORDER BY key")
                case ReadEntries(prefix):
                    # "0" follows "/": the range is exactly what lies below the prefix.
                    return self._read(
                        "WHERE key = ? OR (key > ? AND key < ?) ORDER BY key",
                        prefix,
                        prefix + "/",
                        prefix + "0",
                    )
                case Transact(compares, writes):
                    self._check(compares, writes)
                    return self._write(writes)
                case Grant(ttl_ms):
                    self.revision += 1
                    self._connection.execute("INSERT INTO leases VALUES (?, ?)", (self.revision, ttl_ms))
                    return Outcome(self.revision, ())
                case Revoke(lease):
                    rows = self._connection.execute(
                        "SELECT key FROM entries WHERE lease = ? AND lease != 0 ORDER BY key", (lease,)
                    )
                    outcome = self._write([Delete(key) for (key,) in rows.fetchall()])
                    self._connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
                    return outcome
        except DanubeError as error:
            return error

    def _read(self, where: str, *parameters: str) -> list[Entry]:
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM entries {where}", parameters)
        return [self._checked(*row) for row in rows]

    def _checked(self, key: str, value: bytes, version: int, lease: int, crc: int) -> Entry:
        if crc != _row_crc(key, value, version, lease):
            raise Corrupt(
                f"the row of {key} in {self._path} does not match its checksum: restore the file from a backup, or "
                "delete the key and write it again",
                ErrorCode.METADATA_CORRUPT,
            )
        return Entry(key, value, version)

    def _check(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        for compare in compares:
            found = self._read("WHERE key = ?", compare.key)
            current = found[0].version if found else ABSENT
            if current != compare.version:
                raise VersionMismatch(compare.key, expected=compare.version, current=current)
        for lease in {write.lease for write in writes if isinstance(write, Put) and write.lease is not None}:
            if not self._number("SELECT count(*) FROM leases WHERE id = ?", lease):
                raise LeaseUnknown(lease)

    def _write(self, writes: Sequence[Write]) -> Outcome:
        version = self.revision + 1
        changes: list[Change] = []
        for write in writes:
            if isinstance(write, Put):
                lease = write.lease or _NO_LEASE
                row = (
                    write.key,
                    write.value,
                    version,
                    lease,
                    _row_crc(write.key, write.value, version, lease),
                )
                self._connection.execute(
                    f"INSERT OR REPLACE INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", row
                )
                changes.append(Change(write.key, write.value, version))
            elif self._connection.execute("DELETE FROM entries WHERE key = ?", (write.key,)).rowcount:
                changes.append(Change(write.key, None, version))
        if changes:
            self.revision = version
        return Outcome(self.revision, tuple(changes))

    def _number(self, sql: str, *parameters: int) -> int:
        return int(self._connection.execute(sql, parameters).fetchone()[0])


def _row_crc(key: str, value: bytes, version: int, lease: int) -> int:
    name = key.encode()
    # The length of the key keeps key and value apart: moving a byte from one to the other must show.
    crc = crc32c.crc32c(_ROW_NUMBERS.pack(version, lease, len(name)))
    return crc32c.crc32c(value, crc32c.crc32c(name, crc))


def _lock(path: Path) -> int:
    """Hold the database for this process: two brokers on one folder would destroy each other's work."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise Unavailable(
            f"the metadata store {path} is in use by another process: stop it, or choose another data_dir",
            ErrorCode.STORE_FAILED,
        ) from error
    return lock


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _translated(path: Path, error: sqlite3.DatabaseError) -> DanubeError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return Corrupt(f"{path} is damaged ({error}): restore it from a backup", ErrorCode.METADATA_CORRUPT)
    return Unavailable(
        f"the metadata store {path} failed ({error}): nothing was written; check space and permissions",
        ErrorCode.STORE_FAILED,
    )
