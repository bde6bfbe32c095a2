"""What every durable store promises, asked of each of them."""

import asyncio
from pathlib import Path

import pytest

from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Rejected
from pydanube.stores.store import DurableStore, Missing

LARGE = bytes(range(256)) * (80 * 1024)
"""20 MiB: three parts of 8 MiB."""


def written(folder: Path, data: bytes, name: str = "spool") -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


async def keys_below(store: DurableStore, prefix: str) -> set[str]:
    return {found.key async for found in store.list(prefix)}


async def test_a_file_is_read_back_byte_by_byte(store: DurableStore, tmp_path: Path) -> None:
    await store.put_file("a/b/one", written(tmp_path, b"0123456789"))
    assert await store.read("a/b/one", 0, 10) == b"0123456789"
    assert await store.read("a/b/one", 3, 4) == b"3456"
    assert await store.read("a/b/one", 9, 1) == b"9"
    assert await store.read("a/b/one", 5, 0) == b""


async def test_an_object_of_several_parts_is_whole(store: DurableStore, tmp_path: Path) -> None:
    await store.put_file("large", written(tmp_path, LARGE))
    assert await store.read("large", 0, len(LARGE)) == LARGE
    across = (8 << 20) - 100
    assert await store.read("large", across, 200) == LARGE[across : across + 200]
    assert [found.size async for found in store.list("") if found.key == "large"] == [len(LARGE)]


@pytest.mark.parametrize("data", [b"first", LARGE], ids=["small", "large"])
async def test_a_name_is_given_once(store: DurableStore, tmp_path: Path, data: bytes) -> None:
    await store.put_file("a/name", written(tmp_path, data))
    with pytest.raises(Conflict, match="exists already"):
        await store.put_file("a/name", written(tmp_path, data, "again"))
    with pytest.raises(Conflict, match="exists already"):
        await store.put_bytes("a/name", b"other")
    assert await store.read("a/name", 0, 5) == data[:5]
    assert await keys_below(store, "") == {"a/name"}


async def test_of_many_writers_of_one_name_one_wins(store: DurableStore) -> None:
    contents = [b"writer %d" % number for number in range(8)]
    ends = await asyncio.gather(*(store.put_bytes("race", data) for data in contents), return_exceptions=True)
    won = [data for data, end in zip(contents, ends, strict=True) if isinstance(end, str)]
    lost = [end for end in ends if isinstance(end, Conflict)]
    assert (len(won), len(lost)) == (1, 7)
    assert await store.read_whole("race", size_max=100) == won[0]


async def test_many_puts_at_once(store: DurableStore, tmp_path: Path) -> None:
    files = {f"topic-{n % 3}/{n:04}": written(tmp_path, b"%d" % n * 50_000, f"s{n}") for n in range(24)}
    await asyncio.gather(*(store.put_file(key, file) for key, file in files.items()))
    assert await keys_below(store, "") == set(files)
    for n, key in enumerate(files):
        assert await store.read_whole(key, size_max=1 << 20) == b"%d" % n * 50_000


async def test_an_empty_object(store: DurableStore, tmp_path: Path) -> None:
    await store.put_file("empty-file", written(tmp_path, b""))
    await store.put_bytes("empty", b"")
    assert await store.read_whole("empty", size_max=0) == b""
    assert await store.read_whole("empty-file", size_max=0) == b""
    assert {(found.key, found.size) async for found in store.list("")} == {("empty", 0), ("empty-file", 0)}


async def test_what_is_not_there_is_missing(store: DurableStore) -> None:
    await store.put_bytes("a/there", b"x")
    with pytest.raises(Missing, match="a/gone is missing") as raised:
        await store.read("a/gone", 0, 1)
    assert raised.value.code is ErrorCode.SEGMENT_CORRUPT
    assert await store.read_whole("a/gone", size_max=10) is None


@pytest.mark.parametrize(("position", "size"), [(0, 11), (9, 2), (10, 1), (50, 5)])
async def test_bytes_beyond_the_end_are_never_made_up(store: DurableStore, position: int, size: int) -> None:
    await store.put_bytes("a/short", b"0123456789")
    with pytest.raises(Corrupt, match=rf"a/short ends at byte 10, bytes up to {position + size}"):
        await store.read("a/short", position, size)


async def test_a_whole_read_is_bounded(store: DurableStore) -> None:
    await store.put_bytes("grown", b"x" * 100)
    assert await store.read_whole("grown", size_max=100) == b"x" * 100
    with pytest.raises(Corrupt, match="grown has 100 bytes, at most 99"):
        await store.read_whole("grown", size_max=99)


async def test_a_list_goes_by_whole_parts_of_the_path(store: DurableStore) -> None:
    for key in ("ns/topic/1", "ns/topic/deep/2", "ns/topic-b/3", "ns/topi", "other/ns/topic/4"):
        await store.put_bytes(key, b"x")
    assert await keys_below(store, "ns/topic") == {"ns/topic/1", "ns/topic/deep/2"}
    assert await keys_below(store, "ns/topic/") == {"ns/topic/1", "ns/topic/deep/2"}
    assert await keys_below(store, "ns/top") == set()
    assert await keys_below(store, "ns/topi") == set()
    assert len(await keys_below(store, "")) == 5


async def test_a_list_of_more_than_one_page(store: DurableStore) -> None:
    names = {f"many/{number:05}" for number in range(1_050)}
    order = sorted(names)
    for start in range(0, len(order), 50):
        await asyncio.gather(*(store.put_bytes(name, b"") for name in order[start : start + 50]))
    assert await keys_below(store, "many") == names


async def test_deleting_twice_is_deleting_once(store: DurableStore) -> None:
    await store.put_bytes("a/b/one", b"1")
    await store.put_bytes("a/two", b"2")
    await store.delete("a/b/one")
    await store.delete("a/b/one")
    await store.delete("never/was")
    assert await keys_below(store, "") == {"a/two"}
    await store.put_bytes("a/b/one", b"anew")
    assert await store.read_whole("a/b/one", size_max=10) == b"anew"


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "a/../b", ".", "a/.hidden", "ü", "a b", "a%2Fb", "a\\b", "a" * 901, "a?b"]
)
async def test_names_some_store_would_change_are_refused_by_all(store: DurableStore, key: str) -> None:
    for attempt in (store.put_bytes(key, b""), store.read(key, 0, 1), store.delete(key)):
        with pytest.raises(Rejected, match="object name"):
            await attempt
    assert await keys_below(store, "") == set()


async def test_a_place_names_the_object(store: DurableStore) -> None:
    assert store.place("ns/topic/1").endswith("ns/topic/1")
