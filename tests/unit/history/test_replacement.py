"""Neighbouring segments replaced by others that hold the same offsets, and what may happen meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from pydanube.broker.segment_replacement import SegmentReplacement
from pydanube.history.convert_job import CheckJob
from pydanube.history.replacement import REPLACED_KEPT_MS, check_replacement, remove_replaced
from pydanube.history.rewriting import Choose, rewrite_segments
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.segment_import import check_files
from pydanube.history.tiering import TieringSettings
from pydanube.kernel.errors import Conflict, Corrupt, Rejected
from pydanube.kernel.policies import Retention
from pydanube.log import TopicLog
from pydanube.protocol.native.removed import is_removed
from tests.unit.history.storage_rig import TOPIC, StorageRig, eventually, publish, read


class Checker:
    """Checks files without a process of its own."""

    async def check(self, job: CheckJob) -> tuple[SegmentDescriptor, ...]:
        return await asyncio.to_thread(check_files, job)


class Dice:
    def __init__(self) -> None:
        self.last = 0

    def new_id(self) -> int:
        self.last += 1
        return self.last


def replacement_of(rig: StorageRig) -> SegmentReplacement:
    return SegmentReplacement(
        rig.tiering,
        rig.journal.places,
        Checker(),  # type: ignore[arg-type]
        clock=rig.clock,
        dice=Dice(),
        spool=rig.folder / "spool",
        on_replaced=lambda history: rig.journal.forget_cached(history.topic_id),
        on_step=rig.on_step,
    )


async def four_segments(rig: StorageRig) -> TopicLog:
    """Five messages in each."""
    (log,) = await rig.open()
    for _ in range(4):
        await publish(log, 5)
        await rig.seal(log)
        rig.clock.ms += 1
    return log


def names(segments: Sequence[SegmentDescriptor]) -> list[str]:
    return [segment.segment_id for segment in segments]


def bounds(log: TopicLog) -> list[tuple[int, int]]:
    return [(segment.start_offset, segment.next_offset) for segment in log.history.segments]


async def merge(
    rig: StorageRig,
    log: TopicLog,
    old: list[SegmentDescriptor],
    *,
    choose: Choose | None = None,
    replacement: SegmentReplacement | None = None,
    damage: bool = False,
) -> list[SegmentDescriptor]:
    """What a client does: one file of all these segments, sent and put in their place."""
    replacement = replacement or replacement_of(rig)
    number = await replacement.begin(log.history, names(old), "test")
    await send(rig, replacement, number, old, choose=choose, damage=damage)
    return await replacement.finish(number, TOPIC)


async def send(
    rig: StorageRig,
    replacement: SegmentReplacement,
    number: int,
    old: list[SegmentDescriptor],
    *,
    choose: Choose | None = None,
    damage: bool = False,
) -> None:
    folder = rig.folder / f"made-{number}"
    folder.mkdir()
    sources = []
    for segment in old:
        path = folder / f"old-{segment.start_offset}"
        path.write_bytes(rig.objects.objects[segment_key(TOPIC, segment.segment_id)][0])
        sources.append((path, segment))
    made = rewrite_segments(
        sources, folder, created_ms=rig.clock.ms, segment_bytes=1 << 30, choose=choose, why="erased"
    )
    for file_number, file in enumerate(made.files):
        data = bytearray(Path(file.path).read_bytes())
        if damage:
            data[len(data) // 2] ^= 1
        half = len(data) // 2
        await replacement.take_part(number, TOPIC, file_number, 0, bytes(data[:half]))
        await replacement.take_part(number, TOPIC, file_number, half, bytes(data[half:]))


def only(offset: int) -> Choose:
    def choose(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return table.column("offset").to_numpy() == offset

    return choose


async def test_neighbours_become_one_and_are_read_as_before(rig: StorageRig) -> None:
    log = await four_segments(rig)
    old = log.history.segments[1:3]
    (new,) = await merge(rig, log, old)
    assert (new.start_offset, new.end_offset) == (5, 14)
    assert bounds(log) == [(0, 5), (5, 15), (15, 20)]
    assert await read(log) == list(range(20))
    await rig.close()
    (log,) = await rig.open()
    assert bounds(log) == [(0, 5), (5, 15), (15, 20)]
    assert await read(log) == list(range(20))


async def test_old_files_stay_for_their_readers_and_go_later(rig: StorageRig) -> None:
    log = await four_segments(rig)
    before = set(rig.stored())
    old = log.history.segments[:2]
    (new,) = await merge(rig, log, old)
    both = before | {segment_key(TOPIC, new.segment_id)}
    assert set(rig.stored()) == both
    assert await rig.tiering.sweep_now() == 0
    places = rig.journal.places
    assert await remove_replaced(places, now_ms=rig.clock.ms + REPLACED_KEPT_MS - 1) == 0
    assert set(rig.stored()) == both
    assert await remove_replaced(places, now_ms=rig.clock.ms + REPLACED_KEPT_MS) == 2
    assert set(rig.stored()) == both - {segment_key(TOPIC, name) for name in names(old)}
    assert await remove_replaced(places, now_ms=rig.clock.ms + REPLACED_KEPT_MS) == 0
    assert await read(log) == list(range(20))


async def test_a_removed_message_keeps_its_place_and_nothing_else(rig: StorageRig) -> None:
    log = await four_segments(rig)
    old = log.history.segments[1:2]
    await merge(rig, log, old, choose=only(7))
    rows = [row for start in range(20) for row in await log.read_cold(start, messages_max=1, bytes_max=1)]
    assert [row[0] for row in rows] == list(range(20))
    assert [is_removed(row[1]) for row in rows] == [row[0] == 7 for row in rows]
    assert rows[7][2:] == (7, True)
    assert b"7 " not in rows[7][1]


async def test_copies_on_the_disk_do_not_bring_a_message_back(rig: StorageRig) -> None:
    rig.settings = TieringSettings(keeps_copies=True)
    log = await four_segments(rig)
    assert len(log.history.copies) == 4
    await merge(rig, log, log.history.segments[1:2], choose=only(7))
    assert [run.start_offset for run in log.history.copies] == [0, 10, 15]
    ((_, body, *_),) = await log.read_cold(7, messages_max=1, bytes_max=1)
    assert is_removed(body)


async def test_memory_does_not_bring_a_message_back(rig: StorageRig) -> None:
    rig.cache_bytes_max = 1 << 20
    log = await four_segments(rig)
    assert log.read(7, messages_max=1, bytes_max=1) is not None
    await merge(rig, log, log.history.segments[1:2], choose=only(7))
    ((_, body, *_),) = await log.read_cold(7, messages_max=1, bytes_max=1)
    assert is_removed(body)


async def test_a_reader_in_the_old_segment_goes_on_in_the_new_one(rig: StorageRig) -> None:
    log = await four_segments(rig)
    old = log.history.segments[:2]
    assert len(await log.read_cold(0, messages_max=2, bytes_max=1 << 20)) == 2
    await merge(rig, log, old)
    await remove_replaced(rig.journal.places, now_ms=0, topic_id=log.history.topic_id)
    assert await read(log, 2) == list(range(2, 20))


async def test_files_of_other_offsets_are_refused_and_nothing_changes(rig: StorageRig) -> None:
    log = await four_segments(rig)
    replacement = replacement_of(rig)
    stored = rig.stored()
    number = await replacement.begin(log.history, names(log.history.segments[:2]), "test")
    await send(rig, replacement, number, log.history.segments[:1])
    with pytest.raises(Rejected, match="hold offsets 0 to 4, the segments they are to replace 0 to 9"):
        await replacement.finish(number, TOPIC)
    assert (bounds(log), rig.stored()) == ([(0, 5), (5, 10), (10, 15), (15, 20)], stored)
    with pytest.raises(Rejected, match=f"no replacement {number}"):
        await replacement.finish(number, TOPIC)
    assert list((rig.folder / "spool").iterdir()) == []


async def test_a_damaged_file_is_refused(rig: StorageRig) -> None:
    log = await four_segments(rig)
    with pytest.raises(Corrupt):
        await merge(rig, log, log.history.segments[:2], damage=True)
    assert await read(log) == list(range(20))


def test_messages_cannot_be_changed() -> None:
    old = SegmentDescriptor(
        segment_id="a", topic_id=1, epoch=1, start_offset=0, end_offset=9, size=10, checksum="", created_at=0,
        min_append_ms=1, max_append_ms=2, min_publish_ms=1, max_publish_ms=2, payload_bytes=100,
    )  # fmt: skip
    check_replacement([old], [msgspec.structs.replace(old, payload_bytes=99)])
    for change in ({"payload_bytes": 101}, {"max_append_ms": 3}, {"min_publish_ms": 0}, {"epoch": 2}):
        with pytest.raises(Rejected):
            check_replacement([old], [msgspec.structs.replace(old, **change)])


async def test_segments_must_be_neighbours_of_the_topic(rig: StorageRig) -> None:
    log = await four_segments(rig)
    replacement = replacement_of(rig)
    first, second, third, _ = names(log.history.segments)
    for wrong in ([first, third], [second, first], ["none"], [first, "none"]):
        with pytest.raises(Conflict, match="list its segments again"):
            await replacement.begin(log.history, wrong, "test")
    with pytest.raises(Rejected, match="1 to 48"):
        await replacement.begin(log.history, [], "test")


async def test_the_later_replacement_of_a_segment_ends_the_earlier(rig: StorageRig) -> None:
    log = await four_segments(rig)
    replacement = replacement_of(rig)
    old = log.history.segments[:2]
    first = await replacement.begin(log.history, names(old), "cut off")
    second = await replacement.begin(log.history, names(old[1:]), "again")
    with pytest.raises(Rejected, match=f"no replacement {first} is under way"):
        await replacement.take_part(first, TOPIC, 0, 0, b"late")
    await send(rig, replacement, second, old[1:])
    await replacement.finish(second, TOPIC)
    assert await read(log) == list(range(20))


async def test_retention_that_was_faster_wins(rig: StorageRig) -> None:
    log = await four_segments(rig)
    replacement = replacement_of(rig)
    old = log.history.segments[:2]
    number = await replacement.begin(log.history, names(old), "test")
    await send(rig, replacement, number, old)
    policy = Retention(until_consumed=True)
    assert await log.retain(policy, unconsumed_from=5, now_ms=0) == 1
    stored = rig.stored()
    with pytest.raises(Conflict, match="have changed, by retention"):
        await replacement.finish(number, TOPIC)
    assert (bounds(log), rig.stored()) == ([(5, 10), (10, 15), (15, 20)], stored)


async def test_a_topic_deleted_meanwhile_leaves_nothing(rig: StorageRig) -> None:
    log = await four_segments(rig)
    replacement = replacement_of(rig)
    old = log.history.segments[:2]
    number = await replacement.begin(log.history, names(old), "test")
    await send(rig, replacement, number, old)
    await log.delete()
    with pytest.raises(Conflict, match="is being deleted"):
        await replacement.finish(number, TOPIC)
    assert rig.stored() == []


async def test_a_topic_deleted_after_a_replacement_leaves_nothing(rig: StorageRig) -> None:
    log = await four_segments(rig)
    await merge(rig, log, log.history.segments[:2])
    await log.delete()
    assert rig.stored() == []
    assert await remove_replaced(rig.journal.places, now_ms=1 << 60) == 2


@pytest.mark.parametrize("step", ["replacement_checked", "replacement_uploaded", "replacement_described"])
async def test_a_broker_that_ends_at_any_step_has_the_old_or_the_new(rig: StorageRig, step: str) -> None:
    class Ended(BaseException):
        """Nothing after this happens in that broker."""

    log = await four_segments(rig)
    old = log.history.segments[:2]

    def end(reached: str) -> None:
        if reached == step:
            raise Ended

    rig.on_step = end
    with pytest.raises(Ended):
        await merge(rig, log, old)
    rig.on_step = lambda step: None
    await rig.close()
    (log,) = await rig.open()
    is_new = step == "replacement_described"
    assert bounds(log)[0] == ((0, 10) if is_new else (0, 5))
    assert await read(log) == list(range(20))
    await rig.tiering.sweep_now()
    known = {segment_key(TOPIC, name) for name in names(log.history.segments)}
    await remove_replaced(rig.journal.places, now_ms=rig.clock.ms + REPLACED_KEPT_MS)
    assert set(rig.stored()) == known
    assert await read(log) == list(range(20))


async def test_a_sweep_meanwhile_takes_nothing_away(rig: StorageRig) -> None:
    log = await four_segments(rig)
    swept: list[asyncio.Task[int]] = []
    rig.on_step = lambda step: swept.append(asyncio.get_running_loop().create_task(rig.tiering.sweep_now()))
    await merge(rig, log, log.history.segments[:2])
    await eventually(lambda: all(task.done() for task in swept))
    assert [await task for task in swept] == [0, 0, 0]
    assert await read(log) == list(range(20))


async def test_scrubbing_leaves_nothing_in_the_files_of_the_journal(rig: StorageRig) -> None:
    (log,) = await rig.open()
    for _ in range(3):
        await publish(log, 5, size=1000)
        await rig.journal.stage_now()
    await publish(log, 1, size=1000)

    def holding() -> list[str]:
        files = {path.name: path.read_bytes() for path in (rig.folder / "journal").iterdir()}
        return [name for name, data in files.items() if b"12 ....." in data or b"15 ....." in data]

    assert holding() != []
    await rig.journal.scrub()
    assert holding() == []
    assert await read(log) == list(range(16))
    await publish(log, 5)
    await rig.close()
    (log,) = await rig.open()
    assert await read(log) == list(range(21))
