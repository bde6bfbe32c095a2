"""Any sequence of operations: the sqlite back end answers as the plain dictionary does."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.kernel.errors import DanubeError
from pydanube.metadata import (
    ROOT,
    Change,
    Compare,
    Delete,
    LeaseId,
    MemoryStore,
    MetadataStore,
    Put,
    SqliteStore,
)


class StillClock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


keys = st.sampled_from(["/a", "/a/b", "/a/b/c", "/a/bc", "/a-b", "/é/ü"])
versions = st.integers(0, 12)
# Lease ids are revisions: small numbers hit a granted lease now and then.
leases = st.none() | versions.map(LeaseId)
writes = st.builds(Put, keys, st.binary(max_size=3), leases) | st.builds(Delete, keys)
operations = st.one_of(
    st.tuples(st.just("put"), keys, st.binary(max_size=3), st.none() | versions, leases),
    st.tuples(st.just("delete"), keys, st.none() | versions),
    st.tuples(
        st.just("transact"),
        st.lists(st.builds(Compare, keys, versions), max_size=2),
        st.lists(writes, max_size=3),
    ),
    st.tuples(st.just("list"), keys | st.just(ROOT)),
    st.tuples(st.just("get"), keys),
    st.tuples(st.just("grant")),
    st.tuples(st.just("revoke"), versions.map(LeaseId)),
)


async def answer(store: MetadataStore, operation: tuple[Any, ...]) -> object:
    try:
        match operation:
            case ("put", key, value, expected, lease):
                return await store.put(key, value, expected_version=expected, lease=lease)
            case ("delete", key, expected):
                return await store.delete(key, expected_version=expected)
            case ("transact", compares, writes):
                return await store.transact(compares, writes)
            case ("list", prefix):
                return await store.list(prefix)
            case ("get", key):
                return await store.get(key)
            case ("grant",):
                return await store.grant(1_000)
            case ("revoke", lease):
                return await store.revoke(lease)
    except DanubeError as error:
        return type(error), error.text
    raise AssertionError(operation)


async def history(store: MetadataStore, count: int) -> list[Change]:
    watch = store.watch(ROOT, since_version=0)
    return [await anext(watch) for _ in range(count)]


@settings(max_examples=25, deadline=None)
@given(st.lists(operations, max_size=20))
async def test_the_back_ends_agree(sequence: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = MemoryStore(StillClock())
        sqlite = await SqliteStore.open(Path(folder) / "metadata.sqlite3", clock=StillClock())
        try:
            for operation in sequence:
                assert await answer(sqlite, operation) == await answer(memory, operation)
            assert await sqlite.revision() == await memory.revision()
            assert await sqlite.list(ROOT) == await memory.list(ROOT)
            # Each put of the final state was told, so at least that many changes are there to compare.
            count = len(await memory.list(ROOT))
            assert await history(sqlite, count) == await history(memory, count)
        finally:
            await memory.close()
            await sqlite.close()
