"""Appending, committing, reading back, restarting."""

import asyncio

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Conflict, Corrupt, DanubeError, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FsyncPolicy
from pydanube.log import OffsetGone

OTHER = TopicName("default", "payments")


def bodies(count, size=10):
    return [b"%d:" % number + bytes(size) for number in range(count)]


async def test_offsets_are_dense_from_zero_and_given_at_once(rig):
    _, log = await rig.open_topic()
    offsets = [log.append(b"x", append_ms=1, done=lambda error: None) for _ in range(5)]
    assert offsets == [0, 1, 2, 3, 4]
    assert (log.next_offset, log.committed_end) == (5, 0)


async def test_nothing_is_readable_before_it_is_committed(rig, append):
    _, log = await rig.open_topic()
    log.append(b"x", append_ms=1, done=lambda error: None)
    assert log.read(0, messages_max=10, bytes_max=100) == []
    await append(log, [b"y"])
    assert [row[:2] for row in log.read(0, messages_max=10, bytes_max=100)] == [(0, b"x"), (1, b"y")]


async def test_a_read_ends_where_the_committed_part_ends(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"x"])
    log.append(b"y", append_ms=1, done=lambda error: None)
    assert [row[:2] for row in log.read(0, messages_max=10, bytes_max=100)] == [(0, b"x")]


async def test_everybody_is_told_in_the_order_of_appends_then_the_topic_once_per_group(rig):
    told = []
    finished = asyncio.Event()

    def committed():
        told.append("committed")
        finished.set()

    _, log = await rig.open_topic(on_committed=committed)
    for number in range(3):
        log.append(b"x", append_ms=1, done=lambda error, number=number: told.append((number, error)))
    await finished.wait()
    assert told == [(0, None), (1, None), (2, None), "committed"]
    assert log.committed_end == 3


async def test_a_callback_that_raises_does_not_keep_the_others_from_hearing(rig, append):
    _, log = await rig.open_topic()
    reported = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: reported.append(context["exception"])
    )

    def broken(error):
        raise ValueError("a bug of the caller")

    log.append(b"x", append_ms=1, done=broken)
    assert await append(log, [b"y"]) == [None]
    assert [str(error) for error in reported] == ["a bug of the caller"]


async def test_a_body_may_be_empty_or_larger_than_what_is_joined(rig, append, read):
    _, log = await rig.open_topic()
    large = [b"", b"a" * 40_000, b"b", b"c" * 50_000, b""]
    await append(log, large)
    _, log = await rig.restart()
    assert await read(log) == list(enumerate(large))


async def test_a_killed_journal_comes_back_with_everything_acknowledged(rig, append, read):
    _, log = await rig.open_topic()
    await append(log, bodies(200))
    _, log = await rig.restart()
    assert (log.start_offset, log.next_offset, log.committed_end) == (0, 200, 200)
    assert await read(log) == list(enumerate(bodies(200)))


async def test_offsets_go_on_after_a_restart(rig, append, read):
    journal, log = await rig.open_topic()
    await append(log, [b"a", b"b"])
    await journal.close()
    _, log = await rig.restart()
    assert log.append(b"c", append_ms=1, done=lambda error: None) == 2
    await append(log, [b"d"])
    _, log = await rig.restart()
    assert await read(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


async def test_synced_appends_survive_a_power_cut(rig, append, read):
    _, log = await rig.open_topic()
    await append(log, bodies(50))
    left = rig.disk.after_power_loss(lambda: False)
    rig.kill()
    rig.disk = MemoryDisk(left)
    _, log = await rig.open_topic()
    assert await read(log) == list(enumerate(bodies(50)))


@pytest.mark.parametrize("policy", [FsyncPolicy.INTERVAL, FsyncPolicy.NEVER])
async def test_a_group_without_always_is_acknowledged_unsynced(rig, append, policy):
    _, log = await rig.open_topic(fsync=policy)
    await append(log, [b"x"])
    left = rig.disk.after_power_loss(lambda: False)
    rig.kill()
    rig.disk = MemoryDisk(left)
    _, log = await rig.open_topic()
    assert log.next_offset == 0


async def test_the_interval_policy_syncs_by_itself(rig, append, read):
    rig.settings = type(rig.settings)(file_bytes=256 * 1024, sync_interval_ms=1)
    synced = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch(call, path):
        if call == "fdatasync":
            loop.call_soon_threadsafe(synced.set)

    _, log = await rig.open_topic(fsync=FsyncPolicy.INTERVAL)
    rig.disk.before = watch
    await append(log, [b"x"])
    await synced.wait()


async def test_one_always_append_makes_earlier_lazy_ones_durable_too(rig, append, read):
    journal, lazy = await rig.open_topic(fsync=FsyncPolicy.NEVER)
    strict = await journal.open_topic(2, OTHER)
    await append(lazy, [b"lazy"])
    await append(strict, [b"strict"])
    left = rig.disk.after_power_loss(lambda: False)
    rig.kill()
    rig.disk = MemoryDisk(left)
    journal = await rig.open()
    lazy = await journal.open_topic(1, TopicName("default", "orders"))
    assert await read(lazy) == [(0, b"lazy")]


async def test_topics_share_the_journal_but_not_their_offsets(rig, append, read):
    journal, first = await rig.open_topic()
    second = await journal.open_topic(2, OTHER)
    await asyncio.gather(append(first, [b"a", b"b"]), append(second, [b"c"]))
    rig.kill()
    journal = await rig.open()
    assert set(journal.recovered) == {1, 2}
    second = await journal.open_topic(2, OTHER)
    assert await journal.forget_unopened() == [1]
    assert await read(second) == [(0, b"c")]


async def test_a_forgotten_topic_stays_forgotten(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"a"])
    rig.kill()
    journal = await rig.open()
    await journal.forget_unopened()
    await journal.close()
    journal = await rig.open()
    assert journal.recovered == {}


async def test_a_cursor_survives_and_never_moves_back(rig, append):
    journal, log = await rig.open_topic()
    await append(log, bodies(10))
    log.save_cursor("billing", 7)
    log.save_cursor("billing", 3)
    await journal.close()
    _, log = await rig.restart()
    assert log.cursors == {"billing": 7}


async def test_a_cursor_is_written_without_any_append(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"x"])
    written = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch(call, path):
        if call == "fdatasync":
            loop.call_soon_threadsafe(written.set)

    rig.settings = type(rig.settings)(file_bytes=256 * 1024, sync_interval_ms=1, cursor_delay_ms_max=1)
    _, log = await rig.restart()
    rig.disk.before = watch
    log.save_cursor("billing", 1)
    await written.wait()
    _, log = await rig.restart()
    assert log.cursors == {"billing": 1}


async def test_a_dropped_cursor_stays_dropped(rig, append):
    journal, log = await rig.open_topic()
    log.save_cursor("billing", 0)
    log.save_cursor("audit", 0)
    await append(log, [b"x"])
    log.drop_cursor("billing")
    await journal.close()
    _, log = await rig.restart()
    assert log.cursors == {"audit": 0}


async def test_reading_respects_both_limits_but_always_advances(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"x" * 100] * 10)
    assert len(log.read(2, messages_max=3, bytes_max=10_000)) == 3
    assert len(log.read(2, messages_max=100, bytes_max=250)) == 2
    assert [row[0] for row in log.read(9, messages_max=100, bytes_max=1)] == [9]
    assert log.read(10, messages_max=100, bytes_max=1) == []


async def test_a_batch_takes_as_many_offsets_as_it_has_messages(rig, append):
    _, log = await rig.open_topic()
    assert log.append(b"three", count=3, append_ms=1, done=lambda error: None) == 0
    await append(log, [b"one"])
    assert log.committed_end == 4
    assert [row[:2] for row in log.read(1, messages_max=10, bytes_max=100)] == [(0, b"three"), (3, b"one")]
    _, log = await rig.restart()
    assert [row[:2] for row in log.read(2, messages_max=10, bytes_max=100)] == [(0, b"three"), (3, b"one")]


async def test_too_much_unstaged_is_refused_before_an_offset_is_taken(rig):
    rig.settings = type(rig.settings)(file_bytes=256 * 1024, unstaged_bytes_max=1000)
    journal = await rig.open()
    log = await journal.open_topic(1, OTHER)
    log.append(b"x" * 2000, append_ms=1, done=lambda error: None)
    with pytest.raises(Unavailable) as caught:
        log.append(b"y", append_ms=1, done=lambda error: None)
    assert caught.value.code is ErrorCode.OVERLOADED
    assert log.next_offset == 1


async def test_after_closing_nothing_is_taken(rig, append):
    journal, log = await rig.open_topic()
    told: list[DanubeError | None] = []
    log.append(b"x", append_ms=1, done=told.append)
    await journal.close()
    assert told == [None]
    with pytest.raises(Unavailable) as caught:
        log.append(b"y", append_ms=1, done=told.append)
    assert caught.value.code is ErrorCode.STOPPING


async def test_a_lost_journal_is_noticed(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"x"])
    await journal.close()
    rig.disk = MemoryDisk()
    with pytest.raises(Corrupt, match="missing or empty"):
        await rig.open()


async def test_another_brokers_journal_is_noticed(rig):
    journal = await rig.open()
    await journal.close()
    other = type(rig)()
    journal = await other.open()
    await journal.close()
    rig.disk = MemoryDisk(other.disk.files())
    with pytest.raises(Corrupt, match="belongs to another broker"):
        await rig.open()


async def test_a_journal_with_topics_is_not_taken_by_metadata_that_does_not_know_it(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"x"])
    await journal.close()
    fresh = type(rig)()
    fresh.disk = MemoryDisk(rig.disk.files())
    with pytest.raises(Corrupt, match="does not know this journal"):
        await fresh.open()


async def test_an_owner_with_an_older_epoch_is_refused(rig, append):
    _, log = await rig.open_topic(epoch=3)
    await append(log, [b"x"])
    rig.kill()
    journal = await rig.open()
    with pytest.raises(Conflict, match="epoch 3"):
        await journal.open_topic(1, OTHER, epoch=2)


async def test_progress_of_recovery_is_told_in_the_loop(rig, append):
    journal, log = await rig.open_topic()
    await append(log, bodies(10))
    await journal.close()
    told = []
    await rig.open(progress=lambda done, total: told.append((done, total)))
    assert told == [(256 * 1024, 512 * 1024), (512 * 1024, 512 * 1024)], (
        "the file in use and the one prepared"
    )


async def test_below_the_start_the_reader_is_sent_to_the_start(rig):
    _, log = await rig.open_topic()
    log.start_offset = 5
    with pytest.raises(OffsetGone) as caught:
        log.read(4, messages_max=1, bytes_max=1)
    assert caught.value.start_offset == 5
