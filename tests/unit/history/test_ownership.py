"""One durable store belongs to one cluster."""

from collections.abc import AsyncIterator

import pytest

from pydanube.history.ownership import OWNER_KEY, Owner, claim_store, cluster_id
from pydanube.kernel.errors import Conflict, Corrupt, Unavailable
from pydanube.metadata import MemoryStore
from pydanube.stores.memory import MemoryObjects
from tests.unit.history.storage_rig import SetClock

OURS = Owner("00000000000000aa", "east")
THEIRS = Owner("00000000000000bb", "west")


class Dice:
    def __init__(self) -> None:
        self.thrown = 0

    def new_id(self) -> int:
        self.thrown += 1
        return self.thrown


@pytest.fixture
async def metadata() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(SetClock())
    yield store
    await store.close()


async def test_the_first_one_takes_it_and_finds_it_again() -> None:
    store = MemoryObjects()
    await claim_store(store, OURS)
    await claim_store(store, OURS)
    # What it is called may change.
    await claim_store(store, Owner(OURS.cluster_id, "renamed"))


async def test_the_second_one_is_told_whose_it_is_and_what_to_do() -> None:
    store = MemoryObjects()
    await claim_store(store, OURS)
    with pytest.raises(Conflict) as refused:
        await claim_store(store, THEIRS)
    assert "memory:storage/owner.json" in refused.value.text
    assert "belongs to cluster 'east' (00000000000000aa), not to 'west'" in refused.value.text
    assert "storage.durable.root" in refused.value.text
    await claim_store(store, OURS)


async def test_of_two_at_once_one_gets_it() -> None:
    class Slow(MemoryObjects):
        async def read_whole(self, key: str, *, size_max: int) -> bytes | None:
            found = await super().read_whole(key, size_max=size_max)
            if found is None:
                # The other one comes between our look and our claim.
                await super().put_bytes(key, b'{"cluster_id":"00000000000000bb","cluster_name":"west"}')
            return found

    with pytest.raises(Conflict, match="'west'"):
        await claim_store(Slow(), OURS)


async def test_a_claim_whose_answer_was_lost_is_ours() -> None:
    store = MemoryObjects()
    store.faults.lose_answer_next = 1
    with pytest.raises(Unavailable):
        await claim_store(store, OURS)
    await claim_store(store, OURS)
    with pytest.raises(Conflict):
        await claim_store(store, THEIRS)


@pytest.mark.parametrize(
    "data", [b"", b"not json", b"{}", b'{"cluster_id": 7, "cluster_name": "x"}', bytes(5_000)]
)
async def test_what_names_no_owner_is_damage_and_stays(data: bytes) -> None:
    store = MemoryObjects()
    await store.put_bytes(OWNER_KEY, data)
    with pytest.raises(Corrupt, match=OWNER_KEY):
        await claim_store(store, OURS)
    assert store.objects[OWNER_KEY][0] == data


async def test_a_cluster_numbers_itself_once(metadata: MemoryStore) -> None:
    dice = Dice()
    first = await cluster_id(metadata, dice)
    assert first == "0000000000000001"
    assert await cluster_id(metadata, dice) == first


async def test_a_store_in_use_that_is_empty_was_not_mounted() -> None:
    store = MemoryObjects()
    with pytest.raises(Unavailable, match="mount the file system"):
        await claim_store(store, OURS, is_in_use=True)
    assert await store.read_whole(OWNER_KEY, size_max=1000) is None
    await claim_store(store, OURS)
    await claim_store(store, OURS, is_in_use=True)
