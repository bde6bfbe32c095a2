"""What nobody names is removed from the durable store, and nothing else."""

import asyncio

import pytest

from pydanube.history import sweep as sweeping
from pydanube.history.segment import segment_key, topic_path
from pydanube.history.tiering import TieringSettings
from pydanube.kernel.errors import Unavailable
from tests.unit.history.storage_rig import OTHER, TOPIC, StorageRig, eventually, publish, read

ORPHAN = segment_key(TOPIC, f"data-{0:020}-{9:020}-{1:016x}-1.parquet")


async def test_only_what_no_descriptor_names_is_removed(rig: StorageRig) -> None:
    log, other = await rig.open(TOPIC, OTHER)
    for each in (log, other):
        await publish(each, 5)
        await rig.seal(each)
    known = rig.stored()
    partly = f"{known[0]}.3fa9.part"
    foreign = ("storage/owner.json", "storage/topics/readme", "elsewhere/data.parquet")
    for key in (ORPHAN, partly, *foreign):
        rig.objects.objects.setdefault(key, (b"bytes", rig.clock.now_ms()))
    assert await rig.tiering.sweep_now() == 2
    assert rig.tiering.stats.orphans == 2
    assert rig.stored() == sorted([*known, "elsewhere/data.parquet"])
    assert set(foreign) <= set(rig.objects.objects)
    assert await read(log) == await read(other) == list(range(5))


async def test_what_another_broker_may_be_uploading_is_left_alone(rig: StorageRig) -> None:
    rig.settings = TieringSettings(orphan_ms_min=60_000)
    await rig.open()
    rig.objects.objects[ORPHAN] = (b"bytes", rig.clock.now_ms())
    rig.clock.ms += 59_999
    assert await rig.tiering.sweep_now() == 0
    rig.clock.ms += 1
    assert await rig.tiering.sweep_now() == 1


@pytest.mark.parametrize("step", ["uploaded", "described", "released"])
async def test_a_sweep_at_any_moment_of_an_upload_takes_nothing_away(rig: StorageRig, step: str) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    swept: list[asyncio.Task[int]] = []

    def sweep_meanwhile(reached: str) -> None:
        if reached == step:
            swept.append(asyncio.get_running_loop().create_task(rig.tiering.sweep_now()))

    rig.on_step = sweep_meanwhile
    await rig.journal.stage_now()
    # Whoever holds the history up, retention for one, makes the moment between the two steps a long one.
    async with log.history.change:
        sealing = asyncio.create_task(rig.seal(log))
        if step == "uploaded":
            await eventually(lambda: bool(swept))
            assert await swept[0] == 0
    assert await sealing == [(0, 5)]
    assert await swept[0] == 0
    assert [topic_path(TOPIC) in key for key in rig.stored()] == [True]
    assert await read(log) == list(range(5))


async def test_a_sweep_that_the_store_refuses_is_told_and_loses_nothing(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    await rig.seal(log)
    rig.objects.objects[ORPHAN] = (b"bytes", 0)
    rig.objects.faults.denied = True
    with pytest.raises(Unavailable, match="access denied"):
        await rig.tiering.sweep_now()
    rig.objects.faults.denied = False
    assert await rig.tiering.sweep_now() == 1
    assert await read(log) == list(range(5))


async def test_who_sweeps_is_told_of_each_orphan(rig: StorageRig) -> None:
    await rig.open()
    rig.objects.objects[ORPHAN] = (b"bytes", 0)
    told: list[str] = []
    removed = await sweeping.sweep(
        rig.journal.places, uploading=(), older_than_ms=0, on_removed=lambda found: told.append(found.key)
    )
    assert (removed, told) == (1, [ORPHAN])
