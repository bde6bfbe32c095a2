"""Which leases are alive, by the clock that was passed in."""

from pydanube.kernel.clock import Clock
from pydanube.metadata.store import Lease, LeaseId, LeaseUnknown


class LeaseTable:
    """Deadlines on the monotonic clock; what is over is forgotten first and deleted after.

    In that order a late `keep_alive` can only fail: it cannot revive a lease whose keys are being
    deleted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[LeaseId, Lease] = {}
        self._deadlines: dict[LeaseId, int] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease: LeaseId) -> bool:
        return lease in self._leases

    def add(self, lease: Lease) -> None:
        self._leases[lease.id] = lease
        self._deadlines[lease.id] = self._clock.monotonic_ms() + lease.ttl_ms

    def renew(self, lease: LeaseId) -> None:
        if lease not in self._leases:
            raise LeaseUnknown(lease)
        self.add(self._leases[lease])

    def forget(self, lease: LeaseId) -> bool:
        self._deadlines.pop(lease, None)
        return self._leases.pop(lease, None) is not None

    def expired(self) -> list[LeaseId]:
        now = self._clock.monotonic_ms()
        return [lease for lease, deadline in self._deadlines.items() if deadline <= now]
