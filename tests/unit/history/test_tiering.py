"""When runs become segments, in which order, and what happens while the durable store does not play along."""

import asyncio
from pathlib import Path

import pytest

from pydanube.history import tiering as tiering_module
from pydanube.history.convert_job import Converted, ConvertJob
from pydanube.history.tiering import RETRY_MS_MAX, TieringSettings
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Unavailable
from pydanube.log import TopicLog
from tests.unit.history.storage_rig import (
    OTHER,
    PATIENCE_SECONDS,
    TOPIC,
    SameProcess,
    StorageRig,
    append,
    body,
    eventually,
    publish,
    read,
    waiting,
)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiering_module, "LOOK_SECONDS", 0.005)


def has_segments(log: TopicLog, count: int) -> bool:
    return len(log.history.segments) >= count


# When.


async def test_sealing_makes_segments_of_everything_and_frees_the_runs(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await publish(log, 10)
    steps: list[str] = []
    rig.on_step = steps.append
    assert await rig.seal(log) == [(0, 10)]
    assert steps == ["converted", "uploaded", "described", "released"]
    assert rig.run_files() == []
    assert list((rig.folder / "spool").iterdir()) == []
    assert await rig.seal(log) == []
    await publish(log, 1)
    assert await rig.seal(log) == [(10, 11)]
    assert await read(log) == list(range(11))


async def test_runs_are_merged_up_to_the_size_of_a_segment(rig: StorageRig) -> None:
    (log,) = await rig.open_tiering()
    for _ in range(4):
        await publish(log, 10, size=2_500)
        await rig.journal.stage_now()
    # Two of about 27 KB fit into 64 KiB, a third does not.
    await eventually(lambda: has_segments(log, 1))
    segment = log.history.segments[0]
    assert (segment.start_offset, segment.next_offset) == (0, 20)
    assert await read(log) == list(range(40))


async def test_few_messages_wait_until_they_are_old(rig: StorageRig) -> None:
    (log,) = await rig.open_tiering()
    await publish(log, 3)
    await rig.journal.stage_now()
    rig.clock.ms += rig.settings.age_ms_max - 1_000
    assert rig.tiering.lag_ms(log.history) > 0
    await publish(log, 1)
    assert log.history.segments == []
    rig.clock.ms += 1_000
    await eventually(lambda: has_segments(log, 1))
    assert log.history.segments[0].next_offset == 3


async def test_a_quiet_journal_is_emptied_too(rig: StorageRig) -> None:
    (log,) = await rig.open_tiering()
    await publish(log, 3)
    await eventually(lambda: rig.tiering._file_seen[0] is not None)
    rig.clock.ms += rig.settings.age_ms_max
    await eventually(lambda: bool(log.history.runs))
    rig.clock.ms += rig.settings.age_ms_max
    await eventually(lambda: has_segments(log, 1))
    assert waiting(log.history) == []
    assert rig.tiering.lag_ms(log.history) == 0


async def test_copies_stay_where_they_are_wanted(rig: StorageRig) -> None:
    rig.settings = TieringSettings(keeps_copies=True)
    (log,) = await rig.open()
    await publish(log, 5)
    await rig.seal(log)
    assert len(rig.run_files()) == 1
    rig.objects.faults.denied = True
    assert await read(log) == list(range(5)), "copies are read, not the store"
    rig.objects.faults.denied = False
    await log.drop_copies(None, now_ms=0)
    assert rig.run_files() == []
    assert await read(log) == list(range(5))


async def test_as_many_topics_at_once_as_are_allowed(rig: StorageRig) -> None:
    rig.settings = TieringSettings(segment_bytes=1, uploads_max=1)
    at_once = most = 0

    class Counting(SameProcess):
        async def convert(self, job: ConvertJob) -> Converted:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            converted = await super().convert(job)
            at_once -= 1
            return converted

    rig.converter = Counting()
    logs = await rig.open_tiering(TOPIC, OTHER)
    for log in logs:
        await publish(log, 5)
    await rig.journal.stage_now()
    await eventually(lambda: all(has_segments(log, 1) for log in logs))
    assert most == 1


async def test_it_hurries_when_publishers_would_be_refused_soon(rig: StorageRig) -> None:
    rig.settings = TieringSettings(waiting_bytes_max=100_000)
    (log,) = await rig.open()
    await publish(log, 10, size=4_000)
    await rig.seal(log)
    await publish(log, 10, size=6_000)
    await rig.seal(log)
    assert [job.is_hurried for job in rig.converter.jobs] == [False, True]


@pytest.mark.parametrize("turns", range(5))
async def test_it_stops_although_it_was_just_woken(rig: StorageRig, turns: int) -> None:
    await rig.open_tiering()
    await asyncio.sleep(0)
    rig.tiering._wake.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await rig.tiering.stop()


# Trouble.


async def test_failures_are_told_and_tried_again_ever_more_slowly(rig: StorageRig) -> None:
    rig.settings = TieringSettings(segment_bytes=1)
    (log,) = await rig.open_tiering()
    rig.objects.faults.denied = True
    await publish(log, 5)
    await rig.journal.stage_now()
    pauses = []
    for attempt in range(1, 9):
        await eventually(lambda attempt=attempt: rig.tiering.stats.failures == attempt)  # type: ignore[misc]
        trouble = rig.tiering.troubles[log.history]
        assert trouble.failures == attempt
        assert "access denied" in trouble.error.text
        pauses.append(trouble.retry_at_ms - rig.clock.ms)
        rig.clock.ms = trouble.retry_at_ms
        await publish(log, 1)
    assert pauses == [min(1_000 << n, RETRY_MS_MAX) for n in range(8)]
    rig.objects.faults.denied = False
    rig.clock.ms += RETRY_MS_MAX
    await eventually(lambda: has_segments(log, 1) and not rig.tiering.troubles)
    assert await read(log) == list(range(13))


async def test_who_asks_for_a_seal_is_told_why_there_is_none(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    rig.objects.faults.fail_next = 1
    with pytest.raises(Unavailable, match="does not answer") as told:
        await rig.seal(log)
    assert told.value.code is ErrorCode.STORAGE_FAILED
    # Asked again there is no pause: somebody waits.
    assert await rig.seal(log) == [(0, 5)]


async def test_an_upload_whose_answer_is_lost_leaves_an_orphan_and_no_double(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await rig.tiering.claim()
    await publish(log, 5)
    rig.objects.faults.lose_answer_next = 1
    with pytest.raises(Unavailable, match="answer was lost"):
        await rig.seal(log)
    rig.clock.ms += 1
    assert await rig.seal(log) == [(0, 5)]
    assert len(rig.stored()) == 2
    assert await rig.tiering.sweep_now() == 1
    assert len(rig.stored()) == 1
    assert await read(log) == list(range(5))


async def test_a_damaged_run_becomes_no_segment_and_stays(rig: StorageRig) -> None:
    log, other = await rig.open(TOPIC, OTHER)
    for each in (log, other):
        await publish(each, 5)
    await rig.journal.stage_now()
    (file,) = (rig.folder / "runs" / "default" / TOPIC.topic).iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corrupt, match=file.name):
        await rig.seal(log)
    assert file.exists()
    assert rig.stored() == []
    assert await rig.seal(other) == [(0, 5)]


async def test_a_full_spool_is_told_by_its_name(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    (rig.folder / "spool").rmdir()
    with pytest.raises(Unavailable, match=str(rig.folder / "spool")):
        await rig.seal(log)
    (rig.folder / "spool").mkdir()
    assert await rig.seal(log) == [(0, 5)]


async def test_a_converter_that_failed_is_asked_again(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    rig.converter.failure = Unavailable("the converter ended", ErrorCode.STORAGE_FAILED)
    with pytest.raises(Unavailable, match="the converter ended"):
        await rig.seal(log)
    rig.converter.failure = None
    assert await rig.seal(log) == [(0, 5)]


# The local limit.


async def test_beyond_the_local_limit_appends_are_refused_until_there_is_room(rig: StorageRig) -> None:
    rig.settings = TieringSettings(segment_bytes=1, waiting_bytes_max=50_000)
    log, other = await rig.open_tiering(TOPIC, OTHER)
    rig.objects.faults.denied = True
    await publish(log, 20, size=1_000)
    await rig.journal.stage_now()
    await eventually(lambda: rig.tiering.stats.failures > 0)
    await publish(log, 40, size=1_000)
    await rig.journal.stage_now()

    def is_refused() -> bool:
        return rig.journal._queue._held is not None

    await eventually(is_refused)
    for each in (log, other):
        with pytest.raises(Unavailable) as refused:
            await append(each, body(0))
        assert refused.value.code is ErrorCode.OVERLOADED
        assert "storage.segments.waiting_mb_max" in refused.value.text
        assert "access denied" in refused.value.text
        assert "goes on by itself" in refused.value.text
    assert await read(log) == list(range(60)), "what is there can be read"
    rig.objects.faults.denied = False
    rig.clock.ms += RETRY_MS_MAX
    await eventually(lambda: not is_refused())
    await publish(log, 5)
    await publish(other, 5)
    assert await read(log) == list(range(65))


# Deleted or stopped meanwhile.


@pytest.mark.parametrize("step", ["converted", "uploaded", "described"])
async def test_a_topic_deleted_while_its_segment_is_made_leaves_nothing(rig: StorageRig, step: str) -> None:
    (log,) = await rig.open()
    await publish(log, 5)
    deleting: list[asyncio.Task[None]] = []

    def delete(reached: str) -> None:
        if reached == step:
            deleting.append(asyncio.get_running_loop().create_task(log.delete()))

    rig.on_step = delete
    await rig.tiering.seal(log.history)
    await deleting[0]
    assert rig.stored() == []
    assert rig.run_files() == []
    assert await rig.descriptors() == []
    assert rig.tiering.troubles == {}


async def test_a_deleted_topic_is_no_trouble_any_more(rig: StorageRig) -> None:
    rig.settings = TieringSettings(segment_bytes=1)
    (log,) = await rig.open_tiering()
    rig.objects.faults.denied = True
    await publish(log, 5)
    await rig.journal.stage_now()
    await eventually(lambda: bool(rig.tiering.troubles))
    rig.objects.faults.denied = False
    await log.delete()
    await eventually(lambda: not rig.tiering.troubles)


async def test_whoever_stops_in_between_does_it_again_after_the_next_start(rig: StorageRig) -> None:
    (log,) = await rig.open()
    await rig.tiering.claim()
    await publish(log, 5)
    held = asyncio.Event()

    async def never(seconds: float) -> None:
        held.set()
        await asyncio.Event().wait()

    rig.objects.pause, rig.objects.faults.delay_seconds = never, 1.0
    sealing = asyncio.create_task(rig.seal(log))
    await held.wait()
    await rig.tiering.stop()
    await asyncio.gather(sealing, return_exceptions=True)
    rig.objects.faults.delay_seconds = 0.0
    await rig.close()
    (rig.folder / "spool" / "left.unfinished").write_bytes(b"half")
    (rig.folder / "spool" / "import-9").mkdir()
    (log,) = await rig.open_tiering()
    assert list(Path(rig.folder / "spool").iterdir()) == []
    assert await rig.seal(log) == [(0, 5)]
    assert await read(log) == list(range(5))


async def test_a_store_that_is_down_at_the_start_is_claimed_later(rig: StorageRig) -> None:
    rig.objects.faults.denied = True
    (log,) = await rig.open_tiering()
    await publish(log, 5)
    rig.objects.faults.denied = False
    assert await rig.seal(log) == [(0, 5)]
    assert "storage/owner.json" in rig.objects.objects


async def test_nothing_is_written_to_a_store_that_turns_out_to_be_anothers(rig: StorageRig) -> None:
    rig.objects.faults.denied = True
    (log,) = await rig.open_tiering()
    await publish(log, 5)
    rig.objects.faults.denied = False
    rig.objects.objects["storage/owner.json"] = (b'{"cluster_id":"2","cluster_name":"theirs"}', 0)
    with pytest.raises(Conflict, match="'theirs'"):
        await rig.seal(log)
    with pytest.raises(Conflict, match="'theirs'"):
        await rig.tiering.sweep_now()
    assert rig.stored() == []
    assert await read(log) == list(range(5))
