"""Batches, timed entries, finding a moment, and cursors that are moved."""

import asyncio

import pytest

from pydanube.entries.entry import Kind
from pydanube.kernel.errors import ErrorCode, Rejected, Unavailable
from pydanube.kernel.policies import Retention
from pydanube.log import JournalSettings

BATCHES = [(b"aaaa", 3), (b"bb", 1), (b"cccc", 100), (b"d", 2)]
ROWS = [(0, b"aaaa", 5, False), (3, b"bb", 5, True), (4, b"cccc", 5, True), (104, b"d", 5, False)]


async def append_batches(log):
    for body, count in BATCHES:
        log.append(
            body,
            count=count,
            kind=Kind.BATCH,
            timed=body in (b"bb", b"cccc"),
            append_ms=5,
            done=lambda error: None,
        )
    await committed(log)


async def committed(log):
    future = asyncio.get_running_loop().create_future()
    log.call_when_committed(future.set_result)
    assert await future is None


@pytest.fixture(params=["memory", "restarted", "staged", "staged and restarted"])
async def log(rig, request):
    """A topic with four batches, wherever they may be."""
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0, cursor_delay_ms_max=1)
    journal, log = await rig.open_topic()
    await append_batches(log)
    if "staged" in request.param:
        await journal.stage_now()
        assert log.read(0, messages_max=1, bytes_max=1) is None
    if "restarted" in request.param:
        _, log = await rig.restart()
    return log


@pytest.mark.parametrize(
    ("offset", "first"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (50, 2), (103, 2), (104, 3), (105, 3)]
)
async def test_an_offset_inside_a_batch_gives_the_batch_and_what_follows(log, offset, first):
    assert await log.read_cold(offset, messages_max=1000, bytes_max=1000) == ROWS[first:]


@pytest.mark.parametrize(
    ("offset", "messages_max", "count"),
    [(0, 0, 1), (0, 1, 1), (0, 3, 1), (0, 4, 2), (0, 5, 3), (0, 104, 3), (0, 105, 4), (1, 2, 1), (50, 54, 1)],
)
async def test_the_limit_counts_messages_and_may_be_passed_by_the_last_batch(
    log, offset, messages_max, count
):
    assert len(await log.read_cold(offset, messages_max=messages_max, bytes_max=1000)) == count


@pytest.mark.parametrize(("bytes_max", "count"), [(0, 1), (5, 1), (6, 2), (10, 3), (11, 4)])
async def test_the_limit_of_bytes_counts_bodies_and_lets_one_pass(log, bytes_max, count):
    assert len(await log.read_cold(0, messages_max=1000, bytes_max=bytes_max)) == count


async def append_at(log, times, count=2):
    for time in times:
        log.append(b"x" * 40, count=count, kind=Kind.BATCH, append_ms=time, done=lambda error: None)
    await committed(log)


def expected(times, moment, start, end):
    """The first entry of two messages from `start` on with that time or a later one."""
    found = (2 * number for number, time in enumerate(times) if time >= moment and 2 * number >= start)
    return next(found, end)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_moment_is_found_in_segments_and_in_memory(rig, restarts):
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0)
    journal, log = await rig.open_topic()
    # The clock steps back twice: within a segment, and from one to the next.
    runs = [[10, 20, 30], [25, 15, 40, 40], [35, 50], [60, 55, 70]]
    for run in runs[:-1]:
        await append_at(log, run)
        await journal.stage_now()
    await append_at(log, runs[-1])
    if restarts:
        _, log = await rig.restart()
    times = [time for run in runs for time in run]
    for moment in range(80):
        assert await log.find_time(moment) == expected(times, moment, 0, log.next_offset), moment
    await log.retain(Retention(until_consumed=True), unconsumed_from=14, now_ms=0)
    assert log.start_offset == 14
    for moment in range(80):
        assert await log.find_time(moment) == expected(times, moment, 14, log.next_offset), moment


async def test_a_moment_in_a_large_segment_is_found_window_by_window(rig, monkeypatch):
    monkeypatch.setattr("pydanube.history.run_reader.SCAN_BYTES", 100_000)
    rig.settings = JournalSettings(file_bytes=4 << 20, cache_bytes_max=0)
    journal, log = await rig.open_topic()
    for number in range(100):
        log.append(bytes(10_000), append_ms=number, done=lambda error: None)
    await committed(log)
    await journal.stage_now()
    for moment in (0, 1, 50, 98, 99, 100):
        assert await log.find_time(moment) == moment


async def test_an_empty_topic_has_no_moment(rig):
    _, log = await rig.open_topic()
    assert await log.find_time(0) == 0


async def test_what_was_taken_back_is_no_moment(rig, append):
    _, log = await rig.open_topic()
    await append_at(log, [10])

    def broken(call, path):
        raise OSError(5, "Input/output error")

    rig.disk.before = broken
    failed = asyncio.get_running_loop().create_future()
    log.append(b"x", append_ms=99, done=failed.set_result)
    await failed
    assert await log.find_time(50) == log.next_offset == 2


async def test_retention_that_takes_the_segment_being_searched_moves_the_search_on(rig):
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0)
    journal, log = await rig.open_topic()
    await append_at(log, [10, 20])
    await journal.stage_now()
    await append_at(log, [30])
    deleted = asyncio.Event()
    loop = asyncio.get_running_loop()
    gates = []

    def before(call, path):
        if call == "read_range" and not gates:
            gates.append(asyncio.run_coroutine_threadsafe(deleted.wait(), loop))
            gates[0].result()

    rig.disk.before = before
    search = asyncio.create_task(log.find_time(15))
    while not gates:
        await asyncio.sleep(0)
    await log.retain(Retention(until_consumed=True), unconsumed_from=4, now_ms=0)
    deleted.set()
    assert await search == 4


@pytest.mark.parametrize("target", [-1, 0, 3, 9])
@pytest.mark.parametrize("rotates", ["never", "before", "after", "both"])
@pytest.mark.parametrize("cut", ["kill", "close"])
async def test_a_moved_cursor_is_where_it_was_moved_to_after_a_restart(rig, append, target, rotates, cut):
    journal, log = await rig.open_topic()
    await append(log, [b"x"] * 10)
    log.save_cursor("billing", 7)
    if rotates in ("before", "both"):
        await journal.rotate()
    await log.move_cursor("billing", target)
    if rotates in ("after", "both"):
        await journal.rotate()
    assert log.cursors == {"billing": target}
    if cut == "close":
        await journal.close()
    _, log = await rig.restart()
    assert log.cursors == {"billing": target}
    log.save_cursor("billing", target + 1)
    assert log.cursors == {"billing": target + 1}


async def test_a_reset_cursor_rides_with_the_next_group(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"x"] * 10)
    log.save_cursor("billing", 7)
    await append(log, [b"x"])
    log.reset_cursor("billing", -1)
    log.save_cursor("billing", 2)
    await append(log, [b"x"])
    _, log = await rig.restart()
    assert log.cursors == {"billing": 2}


async def test_a_cursor_below_nothing_is_rejected(rig):
    _, log = await rig.open_topic()
    with pytest.raises(Rejected):
        log.reset_cursor("billing", -2)


@pytest.mark.parametrize("known", [True, False])
async def test_a_cursor_that_cannot_be_moved_stays(rig, append, known):
    journal, log = await rig.open_topic()
    await append(log, [b"x"] * 10)
    if known:
        log.save_cursor("billing", 7)
    await journal.close()
    with pytest.raises(Unavailable) as caught:
        await log.move_cursor("billing", 2)
    assert caught.value.code is ErrorCode.STOPPING
    assert log.cursors == ({"billing": 7} if known else {})
