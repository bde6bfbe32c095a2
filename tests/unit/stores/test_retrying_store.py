"""Asking a store again: how often, how long between, and what is counted."""

from pathlib import Path

import pytest

from pydanube.kernel.errors import Conflict, Corrupt, Unavailable
from pydanube.stores.memory import MemoryObjects
from pydanube.stores.retrying import Retrying
from pydanube.stores.store import Missing


class LoadedDice:
    def __init__(self, *rolls: int) -> None:
        self._rolls = list(rolls)

    def new_id(self) -> int:
        return self._rolls.pop(0) if self._rolls else 1000


class Asked:
    """A store that fails on demand, the store in front of it, and the pauses that one made."""

    def __init__(self, *rolls: int, attempts: int = 4) -> None:
        self.objects = MemoryObjects()
        self.pauses: list[float] = []
        self.store = Retrying(
            self.objects,
            LoadedDice(*rolls),
            attempts=attempts,
            pause_seconds=1.0,
            pause_seconds_max=3.0,
            sleep=self.note,
        )

    async def note(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_a_failure_that_passes_is_not_seen() -> None:
    asked = Asked()
    asked.objects.faults.fail_next = 3
    await asked.store.put_bytes("a", b"data")
    asked.objects.faults.fail_next = 3
    assert await asked.store.read("a", 1, 2) == b"at"
    stats = asked.store.stats
    assert (stats.uploads, stats.uploaded_bytes, stats.upload_failures) == (1, 4, 0)
    assert (stats.reads, stats.read_bytes, stats.read_failures) == (1, 2, 0)
    assert stats.retries == 6


async def test_pauses_double_up_to_the_longest_and_half_of_each_is_chance() -> None:
    asked = Asked(0, 500, 999)
    asked.objects.faults.fail_next = 9
    with pytest.raises(Unavailable, match="does not answer"):
        await asked.store.put_bytes("a", b"")
    assert asked.pauses == [0.5, 1.5, 1.5 * 1.999]
    assert asked.objects.faults.fail_next == 5


async def test_a_failure_that_stays_is_counted_and_told() -> None:
    asked = Asked(attempts=2)
    asked.objects.faults.denied = True
    for attempt in (
        asked.store.put_bytes("a", b""),
        asked.store.read("a", 0, 1),
        asked.store.read_whole("a", size_max=1),
        asked.store.delete("a"),
    ):
        with pytest.raises(Unavailable, match="access denied"):
            await attempt
    with pytest.raises(Unavailable):
        assert [found async for found in asked.store.list("")]
    stats = asked.store.stats
    assert (stats.upload_failures, stats.read_failures, stats.other_failures) == (1, 2, 2)
    assert "access denied" in stats.last_error


async def test_an_object_that_is_not_visible_yet_is_waited_for() -> None:
    asked = Asked()
    await asked.store.put_bytes("a", b"data")
    asked.objects.faults.hide_next = 2
    assert await asked.store.read("a", 0, 4) == b"data"
    with pytest.raises(Missing):
        await asked.store.read("gone", 0, 1)
    assert len(asked.pauses) == 4


async def test_a_short_object_is_not_asked_for_again() -> None:
    asked = Asked()
    await asked.store.put_bytes("a", b"data")
    asked.objects.faults.truncate_next = 1
    with pytest.raises(Corrupt, match="ends at byte 2"):
        await asked.store.read("a", 0, 4)
    assert asked.pauses == []


async def test_a_put_whose_answer_was_lost_succeeds(tmp_path: Path) -> None:
    asked = Asked()
    file = tmp_path / "file"
    file.write_bytes(b"file")
    asked.objects.faults.lose_answer_next = 1
    await asked.store.put_bytes("bytes", b"data")
    asked.objects.faults.lose_answer_next = 1
    await asked.store.put_file("a/file", file)
    assert {key: data for key, (data, _) in asked.objects.objects.items()} == {
        "bytes": b"data",
        "a/file": b"file",
    }


async def test_an_object_of_somebody_else_is_a_conflict(tmp_path: Path) -> None:
    asked = Asked()
    file = tmp_path / "file"
    file.write_bytes(b"ours")
    await asked.objects.put_bytes("a/file", b"them")
    with pytest.raises(Conflict):
        await asked.store.put_file("a/file", file)
    asked.objects.faults.fail_next = 1
    with pytest.raises(Conflict):
        await asked.store.put_file("a/file", file)
    asked.objects.faults.fail_next = 1
    with pytest.raises(Conflict):
        await asked.store.put_bytes("a/file", b"us")
    assert asked.store.stats.upload_failures == 3


async def test_a_list_begins_again_but_never_repeats() -> None:
    asked = Asked()
    for key in ("a/1", "a/2", "b/3"):
        await asked.store.put_bytes(key, b"x")
    asked.objects.faults.fail_next = 2
    assert [found.key async for found in asked.store.list("a")] == ["a/1", "a/2"]
    assert [found async for found in asked.store.list("c")] == []
