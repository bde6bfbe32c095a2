"""Watches: every change, in order, without a gap, or a clear word that it cannot be had."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pydanube.kernel.errors import Unavailable
from pydanube.metadata import ROOT, Change, Delete, HistoryLost, MetadataStore, Put


async def take(watch: AsyncIterator[Change], count: int) -> list[Change]:
    return [await asyncio.wait_for(anext(watch), 10) for _ in range(count)]


async def test_a_watch_tells_later_changes_under_its_prefix(store: MetadataStore) -> None:
    since = await store.revision()
    watch = store.watch("/t", since_version=since)
    first = await store.put("/t/a", b"1")
    await store.put("/tt", b"elsewhere")
    second = await store.put("/t", b"2")
    assert await take(watch, 2) == [Change("/t/a", b"1", first), Change("/t", b"2", second)]


async def test_a_watch_waits_for_what_is_not_written_yet(store: MetadataStore) -> None:
    waiting = asyncio.create_task(take(store.watch("/t", since_version=0), 1))
    await asyncio.sleep(0)
    version = await store.put("/t/a", b"1")
    assert await waiting == [Change("/t/a", b"1", version)]


async def test_a_watch_repeats_history_after_its_version(store: MetadataStore) -> None:
    first = await store.put("/a", b"1")
    second = await store.put("/a", b"2")
    await store.delete("/a")
    changes = await take(store.watch("/a", since_version=first), 2)
    assert changes == [Change("/a", b"2", second), Change("/a", None, second + 1)]


async def test_a_transaction_arrives_whole_at_one_version(store: MetadataStore) -> None:
    await store.put("/a", b"")
    revision = await store.transact([], [Put("/b", b"b"), Delete("/a"), Delete("/never")])
    changes = await take(store.watch(ROOT, since_version=revision - 1), 2)
    assert changes == [Change("/b", b"b", revision), Change("/a", None, revision)]


async def test_two_watchers_each_see_everything(store: MetadataStore) -> None:
    watches = [store.watch("/a", since_version=0) for _ in range(2)]
    for n in range(5):
        await store.put(f"/a/{n}", b"")
    for watch in watches:
        assert [c.key for c in await take(watch, 5)] == [f"/a/{n}" for n in range(5)]


async def test_mirroring_list_then_watch_misses_nothing(store: MetadataStore) -> None:
    await store.put("/m/old", b"0")
    since = await store.revision()
    writer = asyncio.gather(*(store.put(f"/m/{n}", b"%d" % n) for n in range(30)))
    mirror = {entry.key: entry.value for entry in await store.list("/m")}
    await writer
    async for change in store.watch("/m", since_version=since):
        assert change.value is not None
        mirror[change.key] = change.value
        if len(mirror) == 31:
            break
    assert mirror == {entry.key: entry.value for entry in await store.list("/m")}


async def test_a_version_too_old_is_told_to_list_again(store: MetadataStore, history_changes: int) -> None:
    first = await store.put("/a", b"")
    for n in range(history_changes + 1):
        await store.put("/a", b"%d" % n)
    with pytest.raises(HistoryLost, match="list the prefix again"):
        await anext(store.watch("/a", since_version=first))
    newest = await store.revision()
    assert [c.version for c in await take(store.watch("/a", since_version=newest - 2), 2)] == [
        newest - 1,
        newest,
    ]


async def test_a_version_from_the_future_is_refused(store: MetadataStore) -> None:
    with pytest.raises(HistoryLost):
        await anext(store.watch("/a", since_version=await store.revision() + 1))


async def test_a_slow_watcher_is_told_and_the_store_does_not_hoard(
    store: MetadataStore, history_changes: int
) -> None:
    watch = store.watch("/a", since_version=0)
    await store.put("/a", b"first")
    assert (await take(watch, 1))[0].value == b"first"
    for n in range(history_changes * 4):
        await store.put("/a", b"%d" % n)
    with pytest.raises(HistoryLost) as caught:
        await anext(watch)
    assert caught.value.since_version == 1


async def test_closing_the_store_ends_its_watches(store: MetadataStore) -> None:
    waiting = asyncio.create_task(take(store.watch("/a", since_version=0), 1))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await waiting


async def test_a_cancelled_watcher_leaves_the_others_alone(
    store: MetadataStore, pass_ms: Callable[[int], Awaitable[None]]
) -> None:
    cancelled = asyncio.create_task(take(store.watch("/a", since_version=0), 1))
    other = asyncio.create_task(take(store.watch("/a", since_version=0), 1))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    await store.put("/a", b"1")
    assert [c.value for c in await other] == [b"1"]
