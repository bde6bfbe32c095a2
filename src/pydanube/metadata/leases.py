"""Which leases are alive, by the clock that was passed in."""

from pydanube.kernel.clock import Clock
from pydanube.metadata.store import Lease, LeaseId, LeaseUnknown


class LeaseTable:
    """Deadlines on the monotonic clock.

    A lease dies here first and its keys are deleted after, in that order: a late `keep_alive` can
    only fail, it cannot revive a lease whose keys are going. Until that deletion has succeeded the
    lease stays in `dying`, so a store that fails meanwhile tries again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alive: dict[LeaseId, Lease] = {}
        self._deadlines: dict[LeaseId, int] = {}
        self._dying: set[LeaseId] = set()

    def __contains__(self, lease: LeaseId) -> bool:
        return lease in self._alive

    def add(self, lease: Lease) -> None:
        self._alive[lease.id] = lease
        self._deadlines[lease.id] = self._clock.monotonic_ms() + lease.ttl_ms

    def renew(self, lease: LeaseId) -> None:
        if lease not in self._alive:
            raise LeaseUnknown(lease)
        self.add(self._alive[lease])

    def end(self, lease: LeaseId) -> None:
        if self._alive.pop(lease, None) is not None:
            del self._deadlines[lease]
            self._dying.add(lease)

    def bury(self, lease: LeaseId) -> None:
        """The lease's keys are deleted: nothing is left to do."""
        self._dying.discard(lease)

    def is_dying(self, lease: LeaseId) -> bool:
        return lease in self._dying

    def end_expired(self) -> list[LeaseId]:
        """End what is over by now; return every lease whose keys are still to be deleted."""
        now = self._clock.monotonic_ms()
        for lease in [lease for lease, deadline in self._deadlines.items() if deadline <= now]:
            self.end(lease)
        return sorted(self._dying)
