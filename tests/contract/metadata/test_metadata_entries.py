"""Keys, versions, prefixes and transactions: what every back end promises."""

import asyncio

import pytest

from pydanube.kernel.errors import Rejected, Unavailable
from pydanube.metadata import ABSENT, ROOT, Compare, Delete, MetadataStore, Put, VersionMismatch, next_id
from pydanube.metadata.store import KEY_BYTES_MAX, TRANSACTION_OPERATIONS_MAX, VALUE_BYTES_MAX


async def test_what_was_put_is_read_back_with_its_version(store: MetadataStore) -> None:
    version = await store.put("/topics/a", b"one")
    entry = await store.get("/topics/a")
    assert entry is not None
    assert (entry.key, entry.value, entry.version) == ("/topics/a", b"one", version)
    assert await store.revision() == version


async def test_a_key_never_written_is_none(store: MetadataStore) -> None:
    assert await store.get("/nothing") is None
    assert await store.list("/nothing") == []
    assert await store.revision() == 0


async def test_versions_grow_across_keys_and_survive_deletion(store: MetadataStore) -> None:
    first = await store.put("/a", b"")
    second = await store.put("/b", b"")
    assert await store.delete("/a")
    third = await store.put("/a", b"again")
    assert first < second < third


async def test_a_stale_version_changes_nothing(store: MetadataStore) -> None:
    first = await store.put("/topics/a", b"1", expected_version=ABSENT)
    second = await store.put("/topics/a", b"2", expected_version=first)
    with pytest.raises(VersionMismatch) as caught:
        await store.put("/topics/a", b"3", expected_version=first)
    assert (caught.value.key, caught.value.expected, caught.value.current) == ("/topics/a", first, second)
    entry = await store.get("/topics/a")
    assert entry is not None
    assert (entry.value, entry.version) == (b"2", second)
    assert await store.revision() == second


async def test_create_only_refuses_an_existing_key(store: MetadataStore) -> None:
    await store.put("/a", b"1", expected_version=ABSENT)
    with pytest.raises(VersionMismatch, match="/a has version"):
        await store.put("/a", b"2", expected_version=ABSENT)


async def test_an_expected_version_of_an_absent_key_is_refused(store: MetadataStore) -> None:
    with pytest.raises(VersionMismatch, match="does not exist"):
        await store.put("/a", b"", expected_version=7)


async def test_delete_tells_whether_the_key_existed(store: MetadataStore) -> None:
    await store.put("/a", b"1")
    assert await store.delete("/a") is True
    assert await store.delete("/a") is False
    assert await store.get("/a") is None


async def test_delete_with_a_stale_version_keeps_the_key(store: MetadataStore) -> None:
    version = await store.put("/a", b"1")
    with pytest.raises(VersionMismatch):
        await store.delete("/a", expected_version=version + 1)
    assert await store.get("/a") is not None
    assert await store.delete("/a", expected_version=version) is True


async def test_deleting_nothing_takes_no_revision(store: MetadataStore) -> None:
    before = await store.put("/a", b"1")
    await store.delete("/b")
    assert await store.revision() == before


async def test_a_prefix_covers_whole_parts_only(store: MetadataStore) -> None:
    for key in ["/a/b", "/a/b/c", "/a/b/d/e", "/a/bc", "/a/b-c", "/a/b0", "/a", "/ab", "/a/é"]:
        await store.put(key, b"")
    assert [e.key for e in await store.list("/a/b")] == ["/a/b", "/a/b/c", "/a/b/d/e"]
    assert [e.key for e in await store.list("/ab")] == ["/ab"]
    everything = [e.key for e in await store.list(ROOT)]
    assert everything == sorted(everything)
    assert len(everything) == 9


async def test_a_prefix_that_is_no_key_itself_lists_what_is_below(store: MetadataStore) -> None:
    await store.put("/x/y/z", b"1")
    assert [e.key for e in await store.list("/x")] == ["/x/y/z"]


async def test_prefixes_take_their_characters_literally(store: MetadataStore) -> None:
    for key in ["/p/100%", "/p/100%/x", "/p/1000", "/p/a_b", "/p/axb"]:
        await store.put(key, b"")
    assert [e.key for e in await store.list("/p/100%")] == ["/p/100%", "/p/100%/x"]
    assert [e.key for e in await store.list("/p/a_b")] == ["/p/a_b"]


async def test_a_transaction_writes_everything_at_one_revision(store: MetadataStore) -> None:
    old = await store.put("/old", b"")
    revision = await store.transact(
        [Compare("/old", old), Compare("/new", ABSENT)],
        [Delete("/old"), Put("/new", b"n"), Put("/more", b"m")],
    )
    assert revision == old + 1
    assert [(e.key, e.version) for e in await store.list(ROOT)] == [("/more", revision), ("/new", revision)]


async def test_a_transaction_with_one_failing_compare_writes_nothing(store: MetadataStore) -> None:
    version = await store.put("/a", b"1")
    with pytest.raises(VersionMismatch) as caught:
        await store.transact(
            [Compare("/a", version), Compare("/b", 3)], [Put("/a", b"2"), Put("/c", b""), Delete("/a")][:2]
        )
    assert caught.value.key == "/b"
    assert [(e.key, e.value) for e in await store.list(ROOT)] == [("/a", b"1")]
    assert await store.revision() == version


async def test_a_transaction_of_compares_only_is_a_check(store: MetadataStore) -> None:
    version = await store.put("/a", b"1")
    assert await store.transact([Compare("/a", version)], []) == version


async def test_a_transaction_may_not_write_a_key_twice(store: MetadataStore) -> None:
    with pytest.raises(Rejected, match="twice"):
        await store.transact([], [Put("/a", b"1"), Delete("/a")])


async def test_of_many_writers_with_one_version_exactly_one_wins(store: MetadataStore) -> None:
    version = await store.put("/leader", b"nobody")
    results = await asyncio.gather(
        *(store.put("/leader", b"%d" % n, expected_version=version) for n in range(20)),
        return_exceptions=True,
    )
    winners = [r for r in results if isinstance(r, int)]
    assert len(winners) == 1
    assert sum(isinstance(r, VersionMismatch) for r in results) == 19
    entry = await store.get("/leader")
    assert entry is not None
    assert entry.version == winners[0]


async def test_ids_of_a_counter_are_dense_and_unique(store: MetadataStore) -> None:
    assert await next_id(store, "/counters/schema") == 1
    taken = await asyncio.gather(*(next_id(store, "/counters/schema") for _ in range(10)))
    assert sorted(taken) == list(range(2, 12))


@pytest.mark.parametrize(
    "key", ["", "a", "/", "/a/", "//a", "/a//b", "/a\0b", "/" + "x" * KEY_BYTES_MAX, "/\ud800"]
)
async def test_a_malformed_key_is_rejected(store: MetadataStore, key: str) -> None:
    with pytest.raises(Rejected, match="metadata key"):
        await store.put(key, b"")
    with pytest.raises(Rejected, match="metadata key"):
        await store.get(key)


async def test_the_largest_key_and_value_are_taken_and_one_byte_more_is_not(store: MetadataStore) -> None:
    key = "/" + "x" * (KEY_BYTES_MAX - 1)
    await store.put(key, bytes(VALUE_BYTES_MAX))
    entry = await store.get(key)
    assert entry is not None
    assert len(entry.value) == VALUE_BYTES_MAX
    with pytest.raises(Rejected, match=f"{VALUE_BYTES_MAX + 1} bytes, {VALUE_BYTES_MAX} at most"):
        await store.put("/a", bytes(VALUE_BYTES_MAX + 1))


async def test_a_transaction_has_a_bound(store: MetadataStore) -> None:
    writes = [Put(f"/k/{n}", b"") for n in range(TRANSACTION_OPERATIONS_MAX + 1)]
    with pytest.raises(Rejected, match="split it"):
        await store.transact([], writes)
    assert await store.transact([], writes[:-1]) > 0


async def test_a_closed_store_says_so(store: MetadataStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(Unavailable, match="closed"):
        await store.put("/a", b"")
    with pytest.raises(Unavailable, match="closed"):
        await store.get("/a")
