"""Rotation, staging into segments, cold reads, retention, deletion."""

import asyncio

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import Retention
from pydanube.log import JournalSettings, OffsetGone

TOPIC = TopicName("default", "orders")
OTHER = TopicName("default", "payments")


@pytest.fixture
def without_cache(rig):
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0, space_retry_ms=1)
    return rig


def run_files(rig, topic=TOPIC):
    return [path.name for path in sorted(rig.disk.files()) if path.parent.name == topic.topic]


async def descriptors(rig, topic=TOPIC):
    return [entry.key for entry in await rig.metadata.list(f"/storage/topics/default/{topic.topic}/runs")]


async def test_staged_messages_are_read_from_segments_and_continue_in_memory(without_cache, append, read):
    journal, log = await without_cache.open_topic()
    await append(log, [b"a", b"b"])
    await journal.stage_now()
    await append(log, [b"c"])
    assert log.read(0, messages_max=10, bytes_max=100) is None
    assert await read(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_recently_staged_messages_stay_in_memory(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a"])
    await journal.stage_now()
    assert [row[:2] for row in log.read(0, messages_max=10, bytes_max=100)] == [(0, b"a")]
    assert journal.unstaged_bytes == 0


async def test_full_files_are_staged_and_recycled(without_cache, append, read):
    rig = without_cache
    journal, log = await rig.open_topic()
    bodies = [b"%d" % number * 500 for number in range(1000)]
    for start in range(0, 1000, 50):
        await append(log, bodies[start : start + 50])
    await journal.stage_now()
    assert await read(log) == list(enumerate(bodies))
    numbered = [path for path in rig.disk.files() if path.parent.name == "journal" and path.stem.isdigit()]
    spares = [path for path in rig.disk.files() if path.name.startswith("spare")]
    assert len(numbered) == 2, "one in use, one prepared"
    assert 1 <= len(spares) <= 4
    _, log = await rig.restart()
    assert await read(log) == list(enumerate(bodies))


async def test_a_segment_is_named_by_its_range_under_twenty_digits(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a", b"b"])
    await journal.stage_now()
    await append(log, [b"c"])
    await journal.stage_now()
    assert await descriptors(rig) == [
        "/storage/topics/default/orders/runs/00000000000000000000",
        "/storage/topics/default/orders/runs/00000000000000000002",
    ]
    assert [(s.start_offset, s.end_offset, s.entry_count) for s in log.history.runs] == [
        (0, 1, 2),
        (2, 2, 1),
    ]
    assert all(s.min_append_ms == s.max_append_ms == 7 for s in log.history.runs)


async def test_next_offset_and_cursors_survive_when_all_messages_are_staged(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a", b"b"])
    log.save_cursor("billing", 2)
    await journal.stage_now()
    await journal.stage_now()
    _, log = await rig.restart()
    assert (log.next_offset, log.cursors) == (2, {"billing": 2})
    assert log.append(b"c", append_ms=1, done=lambda error: None) == 2


async def test_a_file_waits_for_topics_that_are_not_opened_yet(rig, append, read):
    journal, log = await rig.open_topic()
    other = await journal.open_topic(2, OTHER)
    await append(log, [b"a"])
    await append(other, [b"b"])
    rig.kill()
    journal = await rig.open()
    log = await journal.open_topic(1, TOPIC)
    waiting = asyncio.create_task(journal.stage_now())
    await append(log, [b"c"])
    assert not waiting.done()
    other = await journal.open_topic(2, OTHER)
    await journal.forget_unopened()
    await waiting
    assert await descriptors(rig, OTHER) != []
    assert await read(other) == [(0, b"b")]


async def test_a_failing_store_keeps_the_file_and_is_tried_again(rig, append, read):
    journal, log = await rig.open_topic()
    await append(log, [b"a"])

    def full(call, path):
        if call == "create" and path.parent.name == "orders":
            raise OSError(28, "No space left on device")

    rig.disk.before = full
    with pytest.raises(Unavailable, match="No space left"):
        await journal.stage_now()
    assert await descriptors(rig) == []
    rig.disk.before = lambda call, path: None
    await journal.stage_now()
    assert await descriptors(rig) != []
    _, log = await rig.restart()
    assert await read(log) == [(0, b"a")]


async def test_a_damaged_segment_is_named_and_never_served(without_cache, append):
    rig = without_cache
    journal, log = await rig.open_topic()
    await append(log, [b"payload"])
    await journal.stage_now()
    files = rig.disk.files()
    [path] = [path for path in files if path.suffix == ".run"]
    for position in range(len(files[path])):
        damaged = bytearray(files[path])
        damaged[position] ^= 1
        rig.kill()
        rig.disk = MemoryDisk({**files, path: bytes(damaged)})
        journal, log = await rig.open_topic()
        with pytest.raises(Corrupt, match=rf"{path}.* at byte \d+") as caught:
            await log.read_cold(0, messages_max=10, bytes_max=100)
        assert caught.value.code is ErrorCode.SEGMENT_CORRUPT
        await journal.close()


@pytest.mark.parametrize("kept", [0, 10, 100])
async def test_a_missing_or_short_segment_is_named(without_cache, append, kept):
    rig = without_cache
    journal, log = await rig.open_topic()
    await append(log, [b"payload"])
    await journal.stage_now()
    files = rig.disk.files()
    [path] = [path for path in files if path.suffix == ".run"]
    files[path] = files[path][:kept]
    if not kept:
        del files[path]
    rig.kill()
    rig.disk = MemoryDisk(files)
    _, log = await rig.open_topic()
    with pytest.raises(Corrupt, match=str(path)):
        await log.read_cold(0, messages_max=10, bytes_max=100)


async def test_a_lost_descriptor_is_a_gap_that_keeps_the_topic_closed(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a"])
    await journal.stage_now()
    rig.kill()
    [key] = await descriptors(rig)
    await rig.metadata.delete(key)
    journal = await rig.open()
    with pytest.raises(Corrupt, match="offsets 0 to 0 of topic /default/orders"):
        await journal.open_topic(1, TOPIC)
    assert run_files(rig) != []


async def test_segments_of_a_topic_the_journal_does_not_know_are_refused(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a"])
    await journal.stage_now()
    await journal.close()
    rig.kill()
    rig.disk = MemoryDisk(
        {path: data for path, data in rig.disk.files().items() if path.parent.name == "orders"}
    )
    await rig.metadata.delete("/storage/journals/standalone")
    journal = await rig.open()
    with pytest.raises(Corrupt, match="does not know the topic"):
        await journal.open_topic(1, TOPIC)


async def test_what_an_interrupted_stage_left_is_swept(rig, append, read):
    journal, log = await rig.open_topic()
    await append(log, [b"a"])
    await journal.stage_now()
    [name] = run_files(rig)
    rig.kill()
    files = rig.disk.files()
    [path] = [path for path in files if path.name == name]
    rig.disk = MemoryDisk({**files, path.with_name("x.run.tmp"): b"", path.with_name("y.run"): b""})
    _, log = await rig.open_topic()
    assert run_files(rig) == [name]
    assert await read(log) == [(0, b"a")]


async def stage_each(journal, log, append, count):
    for number in range(count):
        await append(log, [b"%d" % number])
        await journal.stage_now()


async def test_consumed_segments_go_and_the_start_is_remembered(rig, append, read):
    journal, log = await rig.open_topic()
    await stage_each(journal, log, append, 3)
    policy = Retention(until_consumed=True)
    assert await log.retain(policy, unconsumed_from=2, now_ms=0) == 2
    assert log.start_offset == 2
    assert len(run_files(rig)) == len(await descriptors(rig)) == 1
    with pytest.raises(OffsetGone):
        await log.read_cold(1, messages_max=1, bytes_max=1)
    _, log = await rig.restart()
    assert (log.start_offset, log.next_offset) == (2, 3)
    assert await read(log) == [(2, b"2")]


async def test_retention_cut_short_after_the_start_was_raised_is_finished_at_the_next_start(rig, append):
    journal, log = await rig.open_topic()
    await stage_each(journal, log, append, 2)

    def broken(call, path):
        if call == "unlink":
            raise OSError(5, "Input/output error")

    rig.disk.before = broken
    with pytest.raises(Unavailable):
        await log.retain(Retention(until_consumed=True), unconsumed_from=2, now_ms=0)
    _, log = await rig.restart()
    assert (log.start_offset, log.next_offset) == (2, 2)
    assert run_files(rig) == []
    assert await descriptors(rig) == []


async def test_a_deleted_topic_leaves_nothing_behind(rig, append):
    journal, log = await rig.open_topic()
    await stage_each(journal, log, append, 2)
    await append(log, [b"tail"])
    log.save_cursor("billing", 1)
    await log.delete()
    assert run_files(rig) == []
    assert await descriptors(rig) == []
    assert journal.unstaged_bytes == 0
    with pytest.raises(Rejected, match="was deleted"):
        log.append(b"x", append_ms=1, done=lambda error: None)
    rig.kill()
    journal = await rig.open()
    assert journal.recovered == {}


async def test_a_new_topic_of_the_same_name_begins_at_zero_without_the_old_messages(rig, append, read):
    journal, log = await rig.open_topic()
    await stage_each(journal, log, append, 2)
    await log.delete()
    new = await journal.open_topic(2, TOPIC)
    await append(new, [b"new"])
    await journal.stage_now()
    rig.kill()
    _, new = await rig.open_topic(2)
    assert await read(new) == [(0, b"new")]


@pytest.mark.parametrize("topic_id", [1, 2])
async def test_a_deletion_cut_short_is_finished_at_the_next_start(rig, append, topic_id):
    journal, log = await rig.open_topic()
    await stage_each(journal, log, append, 2)

    def broken(call, path):
        if call == "unlink":
            raise OSError(5, "Input/output error")

    rig.disk.before = broken
    await log.delete()
    assert len(run_files(rig)) == 2
    assert len(await rig.metadata.list("/storage/deletions")) == 1
    rig.kill()
    _, log = await rig.open_topic(topic_id)
    assert (log.start_offset, log.next_offset) == (0, 0)
    assert run_files(rig) == []
    assert await descriptors(rig) == []
    assert await rig.metadata.list("/storage/deletions") == []


async def test_who_appends_faster_than_segments_are_written_waits_instead_of_being_refused(rig, append):
    """Nothing is handed to the writer while staging lags; once it has caught up, everything is."""
    rig.settings = JournalSettings(
        file_bytes=256 * 1024, unstaged_bytes_max=100_000, cache_bytes_max=0, slowed_ms_max=3_600_000
    )
    journal, log = await rig.open_topic()
    staging = asyncio.Event()
    loop = asyncio.get_running_loop()

    def before(call, path):
        if call == "create" and path.suffix == ".tmp" and path.parent.name == "orders":
            asyncio.run_coroutine_threadsafe(staging.wait(), loop).result()

    rig.disk.before = before
    await append(log, [bytes(40_000)])
    await journal.rotate()
    await append(log, [bytes(30_000)])
    late = asyncio.create_task(append(log, [bytes(10_000)]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not log._queue._outstanding
    assert not late.done()
    staging.set()
    assert await late == [None]


async def test_waiting_for_segments_has_an_end(rig, append):
    rig.settings = JournalSettings(
        file_bytes=256 * 1024, unstaged_bytes_max=100_000, cache_bytes_max=0, slowed_ms_max=1
    )
    journal, log = await rig.open_topic()

    def before(call, path):
        if call == "create" and path.parent.name == "orders":
            raise OSError(28, "No space left on device")

    rig.disk.before = before
    await append(log, [bytes(40_000)])
    await journal.rotate()
    await append(log, [bytes(40_000)])
    assert await append(log, [bytes(10_000)] * 2) == [None, None]
    with pytest.raises(Unavailable, match="wait to be moved"):
        await append(log, [b"x"])


async def test_a_segment_is_synced_in_pieces_and_at_its_end(without_cache, append, read):
    rig = without_cache
    rig.settings = JournalSettings(file_bytes=16 << 20, cache_bytes_max=0)
    journal, log = await rig.open_topic()
    bodies = [b"%d" % number + bytes(1 << 20) for number in range(10)]
    for body in bodies:
        await append(log, [body])
    await journal.rotate()
    await journal.stage_now()
    left = rig.disk.after_power_loss(lambda: False)
    rig.kill()
    rig.disk = MemoryDisk(left)
    _, log = await rig.open_topic()
    assert await read(log) == list(enumerate(bodies))
