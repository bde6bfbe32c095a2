"""Segments and runs of one topic as one history: what is read from where, what is found again, what goes."""

import asyncio

import msgspec
import pytest

from pydanube.history.segment import segment_key
from pydanube.history.tiering import TieringSettings
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.kernel.policies import Retention
from pydanube.log import OffsetGone, TopicLog
from tests.unit.history.storage_rig import OTHER, TOPIC, StorageRig, append, body, publish, read, waiting


async def three_parts(rig: StorageRig) -> TopicLog:
    """Ten messages in a segment, ten in a run, ten in the journal; one second apart."""
    (log,) = await rig.open()
    for part in range(3):
        for number in range(10 * part, 10 * part + 10):
            await append(log, body(number), append_ms=number * 1_000)
        if part == 0:
            await rig.seal(log)
        elif part == 1:
            await rig.journal.stage_now()
    return log


async def test_three_places_are_one_history(rig: StorageRig) -> None:
    log = await three_parts(rig)
    history = log.history
    assert (history.sealed_end, waiting(history)) == (10, [(10, 20)])
    for start in range(30):
        assert await read(log, start) == list(range(start, 30))
    for second in range(30):
        assert await log.find_time(second * 1_000) == second
        assert await log.find_time(second * 1_000 - 999) == second
    assert await log.find_time(30_000) == 30


async def test_it_is_found_again(rig: StorageRig) -> None:
    await three_parts(rig)
    await rig.close()
    (log,) = await rig.open()
    assert (log.history.sealed_end, waiting(log.history)) == (10, [(10, 20)])
    assert await read(log) == list(range(30))
    await rig.seal(log)
    assert await read(log) == list(range(30))


async def test_a_run_that_is_in_a_segment_too_is_a_copy(rig: StorageRig) -> None:
    rig.settings = TieringSettings(keeps_copies=True)
    log = await three_parts(rig)
    assert [run.next_offset for run in log.history.copies] == [10]
    assert waiting(log.history) == [(10, 20)]
    await rig.close()
    (log,) = await rig.open()
    assert [run.next_offset for run in log.history.copies] == [10]
    await rig.seal(log)
    assert [run.next_offset for run in log.history.copies] == [10, 20, 30]
    # As if the process had ended before the last of its copies was gone.
    await log.history.drop_copies(log.history.copies[:2])
    await rig.close()
    (log,) = await rig.open()
    assert (log.history.sealed_end, waiting(log.history)) == (30, [])
    assert await read(log) == list(range(30))


async def test_a_damaged_copy_is_read_from_the_segment(rig: StorageRig) -> None:
    rig.settings = TieringSettings(keeps_copies=True)
    (log,) = await rig.open()
    await publish(log, 20)
    await rig.seal(log)
    (file,) = (rig.folder / "runs" / "default" / TOPIC.topic).iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert await read(log) == list(range(20))
    file.unlink()
    assert await read(log) == list(range(20))


async def test_what_is_nowhere_is_told_at_the_start(rig: StorageRig) -> None:
    log = await three_parts(rig)
    await rig.journal.places.catalogue.segments.remove(TOPIC, log.history.segments[0])
    await rig.close()
    with pytest.raises(Corrupt, match=f"offsets 0 to 9 of topic {TOPIC} are in no segment"):
        await rig.open()
    assert len(rig.stored()) == 1, "what is not understood is kept"
    assert len(rig.run_files()) == 1


async def test_a_history_of_another_journal_is_not_taken(rig: StorageRig) -> None:
    log = await three_parts(rig)
    foreign = msgspec.structs.replace(log.history.segments[0], topic_id=2)
    await rig.journal.places.catalogue.segments.add(OTHER, foreign)
    with pytest.raises(Corrupt, match="this is not the journal it came from"):
        await rig.journal.open_topic(2, OTHER)
    assert await rig.descriptors(OTHER) == [foreign]


async def test_leftovers_on_this_disk_go_at_the_start(rig: StorageRig) -> None:
    log = await three_parts(rig)
    place = rig.folder / "runs" / "default" / TOPIC.topic
    names = rig.run_files()
    await rig.close()
    (place / "orphan").write_bytes(b"bytes")
    (log,) = await rig.open()
    assert rig.run_files() == names
    assert await read(log) == list(range(30))


async def test_retention_takes_segments_then_runs_and_is_remembered(rig: StorageRig) -> None:
    log = await three_parts(rig)
    assert await log.retain(Retention(time_minutes=1), unconsumed_from=None, now_ms=10_000 + 60_000) == 1
    assert (log.start_offset, rig.stored()) == (10, [])
    with pytest.raises(OffsetGone):
        await log.read_cold(9, messages_max=1, bytes_max=1)
    assert await read(log) == list(range(10, 30))
    await rig.close()
    (log,) = await rig.open()
    assert log.start_offset == 10
    assert await rig.seal(log) == [(10, 30)]
    assert await read(log) == list(range(10, 30))


async def test_what_retention_could_not_remove_from_the_store_is_swept(rig: StorageRig) -> None:
    log = await three_parts(rig)
    rig.objects.faults.fail_next = 1
    assert await log.retain(Retention(time_minutes=1), unconsumed_from=None, now_ms=70_000) == 1
    assert (log.start_offset, len(rig.stored())) == (10, 1)
    assert await read(log) == list(range(10, 30))
    assert await rig.tiering.sweep_now() == 1


async def test_an_end_between_the_journals_word_and_the_removal_is_made_good(rig: StorageRig) -> None:
    log = await three_parts(rig)
    give_up = type(log.history).give_up

    async def die(self: object, units: object) -> None:
        raise Unavailable("the process ended here")

    type(log.history).give_up = die  # type: ignore[method-assign, assignment]
    try:
        with pytest.raises(Unavailable, match="ended here"):
            await log.retain(Retention(time_minutes=1), unconsumed_from=None, now_ms=70_000)
    finally:
        type(log.history).give_up = give_up  # type: ignore[method-assign]
    assert len(rig.stored()) == 1
    await rig.close()
    (log,) = await rig.open()
    assert (log.start_offset, rig.stored()) == (10, [])
    assert await rig.descriptors() == []
    assert await read(log) == list(range(10, 30))


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
async def test_damage_is_named_and_stays_where_it_is(rig: StorageRig, damage: str) -> None:
    log, other = await rig.open(TOPIC, OTHER)
    for each in (log, other):
        await publish(each, 50)
        await rig.seal(each)
        await publish(each, 5)
    key = segment_key(TOPIC, log.history.segments[0].segment_id)
    data, written_ms = rig.objects.objects.pop(key)
    if damage == "changed":
        middle = len(data) // 2
        # A whole stretch: some single bytes, as those of offsets, may change without changing what is read.
        rig.objects.objects[key] = (data[:4] + bytes(middle - 4) + data[middle:], written_ms)
    elif damage == "cut":
        rig.objects.objects[key] = (data[:-20], written_ms)
    for _ in range(2):
        with pytest.raises(Corrupt) as told:
            await read(log)
        assert told.value.code is ErrorCode.SEGMENT_CORRUPT
        assert key in told.value.text
    assert await read(log, 50) == list(range(50, 55))
    assert await read(other) == list(range(55))
    rig.objects.objects[key] = (data, written_ms)
    assert await read(log) == list(range(55)), "restored from a copy it is read again"


@pytest.mark.parametrize("switch", ["fail_next", "truncate_next", "hide_next"])
async def test_a_read_that_failed_once_is_right_the_next_time(rig: StorageRig, switch: str) -> None:
    (log,) = await rig.open()
    await publish(log, 50)
    await rig.seal(log)
    setattr(rig.objects.faults, switch, 1)
    with pytest.raises((Unavailable, Corrupt)):
        await read(log)
    assert await read(log) == list(range(50))


async def test_a_deletion_the_store_refuses_is_finished_later(rig: StorageRig) -> None:
    log, other = await rig.open(TOPIC, OTHER)
    for each in (log, other):
        await publish(each, 5)
        await rig.seal(each)
        await publish(each, 5)
    rig.objects.faults.denied = True
    await log.delete()
    assert len(rig.stored()) == 2
    assert await rig.journal.places.catalogue.deletions() == {1: TOPIC}
    await rig.journal.finish_deletions()
    await rig.close()
    # A broker that does not know the topic any more starts while the store is still away.
    await rig.open_only({2: OTHER})
    assert await rig.journal.places.catalogue.deletions() == {1: TOPIC}
    rig.objects.faults.denied = False
    await rig.journal.finish_deletions()
    assert await rig.journal.places.catalogue.deletions() == {}
    assert [OTHER.topic in key for key in rig.stored()] == [True]


async def test_a_deletion_may_be_finished_by_two_at_once(rig: StorageRig) -> None:
    (log,) = await rig.open()
    for _ in range(10):
        await publish(log, 5)
        await rig.journal.stage_now()
    await rig.seal(log)
    await publish(log, 5)
    await rig.journal.stage_now()
    await asyncio.gather(log.delete(), rig.journal.finish_deletions(), rig.journal.finish_deletions())
    assert (rig.stored(), rig.run_files()) == ([], [])
    assert await rig.journal.places.catalogue.deletions() == {}
