"""The half of a store that is the same for every back end which executes commands in order."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, Unavailable
from pydanube.metadata.commands import Command, Grant, Outcome, Revoke, Transact
from pydanube.metadata.history import History, Watch
from pydanube.metadata.leases import LeaseTable
from pydanube.metadata.store import (
    Change,
    Compare,
    Delete,
    Entry,
    Lease,
    LeaseId,
    LeaseUnknown,
    Put,
    Write,
    check_key,
    check_prefix,
    check_ttl,
    check_writes,
)

LEASE_SWEEP_MS: Final = 500


class CommandStore(ABC):
    """Checks arguments, keeps leases and watches; a back end reads entries and executes commands."""

    def __init__(self, clock: Clock, history: History) -> None:
        self._history = history
        self._leases = LeaseTable(clock)
        self._sweeper: asyncio.Task[None] | None = None

    @abstractmethod
    async def _execute(self, command: Command) -> Outcome:
        """Perform the command durably, record its changes in the history, then return."""

    @abstractmethod
    async def _read_entry(self, key: str) -> Entry | None: ...

    @abstractmethod
    async def _read_entries(self, prefix: str) -> list[Entry]: ...

    @abstractmethod
    async def _release(self) -> None:
        """Finish what was accepted and free the back end's resources."""

    async def revision(self) -> int:
        self._check_open()
        return self._history.newest

    async def get(self, key: str) -> Entry | None:
        self._check_open()
        return await self._read_entry(check_key(key))

    async def list(self, prefix: str) -> list[Entry]:
        self._check_open()
        return await self._read_entries(check_prefix(prefix))

    async def put(
        self, key: str, value: bytes, *, expected_version: int | None = None, lease: LeaseId | None = None
    ) -> int:
        compares = () if expected_version is None else (Compare(key, expected_version),)
        return await self.transact(compares, (Put(key, value, lease),))

    async def delete(self, key: str, *, expected_version: int | None = None) -> bool:
        compares = () if expected_version is None else (Compare(key, expected_version),)
        return bool((await self._transact(compares, (Delete(key),))).changes)

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Write]) -> int:
        return (await self._transact(compares, writes)).revision

    def watch(self, prefix: str, *, since_version: int) -> AsyncIterator[Change]:
        return Watch(self._history, check_prefix(prefix), since_version)

    async def grant(self, ttl_ms: int) -> Lease:
        self._check_open()
        outcome = await self._execute(Grant(check_ttl(ttl_ms)))
        lease = Lease(LeaseId(outcome.revision), ttl_ms)
        self._hold(lease)
        return lease

    async def keep_alive(self, lease: LeaseId) -> None:
        self._check_open()
        self._leases.renew(lease)

    async def revoke(self, lease: LeaseId) -> None:
        self._check_open()
        self._leases.end(lease)
        if self._leases.is_dying(lease):
            await self._execute(Revoke(lease))
            self._leases.bury(lease)

    async def expire_leases(self) -> None:
        """Revoke the leases whose time is over; runs by itself every `LEASE_SWEEP_MS`."""
        for lease in self._leases.end_expired():
            await self.revoke(lease)

    async def close(self) -> None:
        if self._history.closed:
            return
        self._history.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        await self._release()

    def _hold(self, lease: Lease) -> None:
        """Start a lease's time."""
        self._leases.add(lease)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="metadata lease sweeper")

    async def _transact(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Outcome:
        self._check_open()
        check_writes(compares, writes)
        for write in writes:
            if isinstance(write, Put) and write.lease is not None and write.lease not in self._leases:
                raise LeaseUnknown(write.lease)
        return await self._execute(Transact(tuple(compares), tuple(writes)))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SWEEP_MS / 1000)
            # A failing back end fails every caller too; the sweep itself must survive to try again.
            with suppress(DanubeError):
                await self.expire_leases()

    def _check_open(self) -> None:
        if self._history.closed:
            raise Unavailable("the metadata store is closed")
