"""A lease is alive, dying, or gone; and a deletion that failed is tried again."""

import pytest

from pydanube.kernel.errors import ErrorCode, Unavailable
from pydanube.metadata import Lease, LeaseId, LeaseUnknown, MemoryStore
from pydanube.metadata.commands import Command, Outcome, Revoke
from pydanube.metadata.leases import LeaseTable


class ManualClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


ONE = Lease(LeaseId(1), 100)


def test_an_ended_lease_stays_to_be_deleted_until_it_was() -> None:
    clock = ManualClock()
    table = LeaseTable(clock)
    table.add(ONE)
    assert table.end_expired() == []
    clock.ms = 100
    assert table.end_expired() == [ONE.id]
    assert ONE.id not in table
    assert table.end_expired() == [ONE.id]
    table.bury(ONE.id)
    assert table.end_expired() == []


def test_a_dying_lease_cannot_be_revived() -> None:
    table = LeaseTable(ManualClock())
    table.add(ONE)
    table.end(ONE.id)
    with pytest.raises(LeaseUnknown):
        table.renew(ONE.id)


class OnceFailingStore(MemoryStore):
    """Refuses the first revocation, as a full disk would."""

    refused = 0
    revoked = 0

    async def _execute(self, command: Command) -> Outcome:
        if isinstance(command, Revoke):
            if not self.refused:
                self.refused += 1
                raise Unavailable("no space", ErrorCode.STORE_FAILED)
            self.revoked += 1
        return await super()._execute(command)


async def test_keys_of_a_dead_lease_go_at_the_next_sweep_if_the_first_failed() -> None:
    clock = ManualClock()
    store = OnceFailingStore(clock)
    lease = await store.grant(100)
    await store.put("/a", b"", lease=lease.id)
    clock.ms = 100
    with pytest.raises(Unavailable):
        await store.expire_leases()
    with pytest.raises(LeaseUnknown):
        await store.keep_alive(lease.id)
    await store.expire_leases()
    assert await store.get("/a") is None
    await store.expire_leases()
    assert (store.refused, store.revoked) == (1, 1)
    await store.close()
