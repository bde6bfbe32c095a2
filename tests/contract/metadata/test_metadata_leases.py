"""Leases: keys that live as long as somebody cares."""

from collections.abc import Awaitable, Callable

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.metadata import Change, LeaseId, LeaseUnknown, MetadataStore, Put

PassMs = Callable[[int], Awaitable[None]]


async def test_keys_of_an_expired_lease_vanish_together_and_are_told(
    store: MetadataStore, pass_ms: PassMs
) -> None:
    lease = await store.grant(1_000)
    await store.put("/cluster/register/2", b"b", lease=lease.id)
    await store.put("/cluster/register/1", b"a", lease=lease.id)
    await store.put("/stays", b"")
    since = await store.revision()
    await pass_ms(1_000)
    assert [entry.key for entry in await store.list("/")] == ["/stays"]
    watch = store.watch("/cluster", since_version=since)
    changes = [await anext(watch), await anext(watch)]
    version = changes[0].version
    assert changes == [
        Change("/cluster/register/1", None, version),
        Change("/cluster/register/2", None, version),
    ]


async def test_a_lease_kept_alive_keeps_its_keys(store: MetadataStore, pass_ms: PassMs) -> None:
    lease = await store.grant(1_000)
    await store.put("/a", b"", lease=lease.id)
    for _ in range(5):
        await pass_ms(900)
        await store.keep_alive(lease.id)
    assert await store.get("/a") is not None
    await pass_ms(1_000)
    assert await store.get("/a") is None


async def test_a_revoked_lease_takes_its_keys_along_at_once(store: MetadataStore) -> None:
    lease = await store.grant(60_000)
    await store.put("/a", b"", lease=lease.id)
    await store.revoke(lease.id)
    await store.revoke(lease.id)
    assert await store.get("/a") is None


async def test_a_lease_that_is_over_is_no_use(store: MetadataStore, pass_ms: PassMs) -> None:
    lease = await store.grant(1_000)
    await pass_ms(1_000)
    with pytest.raises(LeaseUnknown):
        await store.keep_alive(lease.id)
    with pytest.raises(LeaseUnknown, match="grant a new one"):
        await store.put("/a", b"", lease=lease.id)
    with pytest.raises(LeaseUnknown):
        await store.transact([], [Put("/a", b"", LeaseId(999_999))])
    assert await store.get("/a") is None


async def test_a_put_without_lease_makes_the_key_permanent(store: MetadataStore, pass_ms: PassMs) -> None:
    lease = await store.grant(1_000)
    await store.put("/a", b"leased", lease=lease.id)
    await store.put("/a", b"permanent")
    await pass_ms(2_000)
    entry = await store.get("/a")
    assert entry is not None
    assert entry.value == b"permanent"


async def test_a_key_moves_from_lease_to_lease(store: MetadataStore, pass_ms: PassMs) -> None:
    short = await store.grant(1_000)
    long = await store.grant(5_000)
    await store.put("/a", b"", lease=short.id)
    await store.put("/a", b"", lease=long.id)
    await pass_ms(1_000)
    assert await store.get("/a") is not None
    await pass_ms(4_000)
    assert await store.get("/a") is None


async def test_a_deleted_and_recreated_key_is_no_longer_leased(store: MetadataStore, pass_ms: PassMs) -> None:
    lease = await store.grant(1_000)
    await store.put("/a", b"", lease=lease.id)
    await store.delete("/a")
    await store.put("/a", b"new")
    await pass_ms(1_000)
    assert await store.get("/a") is not None


async def test_lease_ids_are_never_given_twice(store: MetadataStore) -> None:
    ids = [(await store.grant(1_000)).id for _ in range(3)]
    await store.put("/a", b"")
    ids.append((await store.grant(1_000)).id)
    assert len(set(ids)) == 4


@pytest.mark.parametrize("ttl_ms", [0, -1, 2**62])
async def test_a_senseless_time_is_rejected(store: MetadataStore, ttl_ms: int) -> None:
    with pytest.raises(Rejected, match="lease time"):
        await store.grant(ttl_ms)
