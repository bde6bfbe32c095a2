"""Full disks, failing syncs, short writes: an explicit answer, and nothing acknowledged is lost."""

import asyncio
import errno

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Corrupt, ErrorCode, OutcomeUnknown, Status, Unavailable
from pydanube.kernel.policies import FsyncPolicy, Retention

FULL = [b"%03d" % number + bytes(1000) for number in range(150)]
"""Nearly one journal file."""


def failing(disk, calls, error):
    """Make these calls fail from now on; returns what stops it."""

    def before(call, path):
        if call in calls:
            raise OSError(error, "injected")

    disk.before = before

    def heal():
        disk.before = lambda call, path: None

    return heal


@pytest.mark.parametrize("calls", [{"pwritev"}, {"fdatasync"}])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
async def test_a_failed_write_or_sync_stops_the_journal_for_good(workshop, calls, error):
    journal, log = await workshop.open()
    log.fsync = FsyncPolicy.NEVER
    await workshop.append(log, [b"a"])
    log.fsync = FsyncPolicy.ALWAYS
    heal = failing(workshop.disk, calls, error)
    told = await workshop.append(log, [b"b", b"c"])
    assert [type(error) for error in told] == [OutcomeUnknown, OutcomeUnknown]
    # A client must not take this for "nothing was taken, try again": the bytes may be found after a restart.
    assert {error.status for error in told} == {Status.UNKNOWN}
    heal()
    with pytest.raises(Unavailable) as caught:
        log.append(b"d", append_ms=1, done=lambda error: None)
    assert caught.value.code is ErrorCode.JOURNAL_STOPPED
    assert journal.refusal is not None
    assert await workshop.rows(log) == [(0, b"a")]


async def test_whatever_was_waiting_behind_the_failed_group_is_told_too(workshop):
    _, log = await workshop.open()
    failing(workshop.disk, {"pwritev"}, errno.EIO)
    first = asyncio.create_task(workshop.append(log, [b"a"]))
    await asyncio.sleep(0)
    second = asyncio.create_task(workshop.append(log, [b"b"]))
    told = await first + await second
    assert {error.code for error in told} <= {ErrorCode.OUTCOME_UNKNOWN, ErrorCode.JOURNAL_STOPPED}
    assert (log.next_offset, log.committed_end) == (0, 0)


async def test_an_interval_sync_that_fails_stops_the_journal(workshop):
    workshop.settings = type(workshop.settings)(file_bytes=256 * 1024, sync_interval_ms=1)
    _, log = await workshop.open()
    log.fsync = FsyncPolicy.INTERVAL
    failing(workshop.disk, {"fdatasync"}, errno.EIO)
    assert await workshop.append(log, [b"a"]) == [None]
    told = [None]
    while told == [None]:
        try:
            told = await workshop.append(log, [b"b"])
        except Unavailable as refused:
            told = [refused]
    assert told[0].code in (ErrorCode.OUTCOME_UNKNOWN, ErrorCode.JOURNAL_STOPPED)


async def test_a_stopped_journal_closes_and_the_next_one_has_what_was_acknowledged(workshop):
    journal, log = await workshop.open()
    await workshop.append(log, [b"a"])
    failing(workshop.disk, {"pwritev"}, errno.EIO)
    await workshop.append(log, [b"b"])
    await journal.close()
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"a")]


@pytest.mark.parametrize("size", [1, 7, 511, 4096, 5000])
async def test_short_writes_are_continued(workshop, size):
    workshop.disk.write_bytes_max = size
    _, log = await workshop.open()
    bodies = [b"x" * 900, b"y" * 40_000 if size > 500 else b"y", b"z"]
    assert await workshop.append(log, bodies) == [None] * 3
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == list(enumerate(bodies))


async def test_a_write_without_progress_stops_the_journal_instead_of_spinning(workshop):
    _, log = await workshop.open()
    workshop.disk.write_bytes_max = 0
    [error] = await workshop.append(log, [b"a"])
    assert "no progress" in str(error)


async def fill_until_refused(workshop, log):
    """Append until the disk is full; returns what was acknowledged."""
    acknowledged = []
    for body in FULL * 4:
        try:
            [error] = await workshop.append(log, [body])
        except Unavailable as refused:
            error = refused
        if error is not None:
            assert error.code is ErrorCode.DISK_FULL
            assert "injected" in error.text or "No space" in error.text
            return acknowledged
        acknowledged.append(body)
    raise AssertionError("the disk never got full")


async def test_a_full_disk_refuses_keeps_everything_and_goes_on_when_there_is_space(workshop):
    journal, log = await workshop.open(stages=False)
    workshop.disk.space = 0
    acknowledged = await fill_until_refused(workshop, log)
    assert (log.next_offset, log.committed_end) == (len(acknowledged), len(acknowledged))
    with pytest.raises(Unavailable) as caught:
        log.append(b"x", append_ms=1, done=lambda error: None)
    assert caught.value.code is ErrorCode.DISK_FULL
    workshop.disk.space = None
    while journal.refusal is not None:
        await asyncio.sleep(0.001)
    await workshop.append(log, [b"again"])
    acknowledged.append(b"again")
    assert await workshop.rows(log) == list(enumerate(acknowledged))
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == list(enumerate(acknowledged))


async def test_a_whole_burst_on_a_full_disk_is_taken_back_in_order(workshop):
    journal, log = await workshop.open(stages=False)
    workshop.disk.space = 0
    told = []
    finished = asyncio.Event()
    burst = FULL * 4

    def done(error):
        told.append(error)
        if len(told) == len(burst):
            finished.set()

    for body in burst:
        log.append(body, append_ms=1, done=done)
    await finished.wait()
    count = told.index(next(error for error in told if error is not None))
    assert all(error is None for error in told[:count])
    assert {error.code for error in told[count:]} == {ErrorCode.DISK_FULL}
    assert log.next_offset == log.committed_end == count
    workshop.disk.space = None
    while journal.refusal is not None:
        await asyncio.sleep(0.001)
    assert log.append(b"next", append_ms=1, done=lambda error: None) == count
    await workshop.append(log, [b"last"])
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == list(enumerate([*burst[:count], b"next", b"last"]))


async def test_what_an_idempotent_producer_lost_to_a_full_disk_is_expected_again(workshop):
    journal, log = await workshop.open(stages=False)
    workshop.disk.space = 0
    told = await workshop.append(log, FULL * 4, producer_id=7)
    count = sum(error is None for error in told)
    assert 0 < count < len(told)
    assert log.sequence_of(7) == count
    assert log.check_sequence(7, count, 1) == count - 1
    assert log.check_sequence(7, count + 1, 1) is None
    workshop.disk.space = None
    while journal.refusal is not None:
        await asyncio.sleep(0.001)
    assert await workshop.append(log, [b"next"], producer_id=7) == [None]
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert log.check_sequence(7, count + 1, 1) == count


async def test_what_was_forgotten_and_moved_on_a_full_disk_stays_so(workshop):
    """No file can be written to: the snapshot of the next one says it, against the files before."""
    journal, log = await workshop.open(stages=False)
    await workshop.append(log, [b"a"], producer_id=7)
    log.save_cursor("billing", 0)
    log.save_cursor("audit", 0)
    await workshop.append(log, [b"b"], producer_id=8)
    workshop.disk.space = 0
    await fill_until_refused(workshop, log)
    log.forget_producer(7)
    log.drop_cursor("billing")
    log.reset_cursor("audit", -1)
    workshop.disk.space = None
    while journal.refusal is not None:
        await asyncio.sleep(0.001)
    await workshop.append(log, [b"again"], producer_id=7)
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert log.cursors == {"audit": -1}
    assert (log.sequence_of(7), log.sequence_of(8)) == (1, 1)
    assert log.check_sequence(7, 1, 1) == log.committed_end - 1


async def test_a_cursor_is_moved_on_a_full_disk_too(workshop):
    _, log = await workshop.open(stages=False)
    log.save_cursor("billing", 3)
    workshop.disk.space = 0
    await fill_until_refused(workshop, log)
    await log.move_cursor("billing", 1)
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open(stages=False)
    assert log.cursors == {"billing": 1}


async def test_a_full_disk_still_closes_cleanly_with_its_cursors(workshop):
    journal, log = await workshop.open(stages=False)
    workshop.disk.space = 0
    acknowledged = await fill_until_refused(workshop, log)
    log.save_cursor("billing", 9)
    await journal.close()
    workshop.swap(workshop.disk.files())
    workshop.disk.space = 0
    _, log = await workshop.open(stages=False)
    assert log.cursors == {"billing": 9}
    assert await workshop.rows(log) == list(enumerate(acknowledged))


async def test_retention_frees_a_full_disk(workshop):
    journal, log = await workshop.open()
    await workshop.append(log, FULL)
    await journal.stage_now()
    consumed = log.committed_end
    failing(workshop.disk, {"allocate"}, errno.ENOSPC)
    # Keep the stager from giving a file back, so that only the reserve is left.
    workshop.disk.before = _no_new_bytes(workshop.disk)
    kept = await fill_until_refused(workshop, log)
    gone = await log.retain(Retention(until_consumed=True), unconsumed_from=consumed, now_ms=0)
    assert gone >= 1
    assert log.start_offset == consumed
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert log.start_offset == consumed
    assert [body for _, body in await workshop.rows(log)] == kept


def _no_new_bytes(disk):
    def before(call, path):
        if call in {"allocate", "create"}:
            raise OSError(errno.ENOSPC, "injected")

    return before


async def test_an_unreadable_file_is_refused_not_skipped(workshop):
    journal, log = await workshop.open()
    await workshop.append(log, [b"a"])
    await journal.close()
    workshop.swap(workshop.disk.files())
    failing(workshop.disk, {"read"}, errno.EIO)
    with pytest.raises(Corrupt, match="cannot be read"):
        await workshop.open()


async def test_the_first_start_on_a_full_disk_says_so_and_works_later(workshop):
    workshop.disk.space = 0
    with pytest.raises(Unavailable) as caught:
        await workshop.open()
    assert caught.value.code is ErrorCode.DISK_FULL
    workshop.disk = MemoryDisk(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.append(log, [b"a"]) == [None]


async def test_space_that_comes_back_in_the_middle_of_a_burst_leaves_no_gap(workshop):
    """The first of several rotations asked for in one tick fails, the next one would succeed."""
    journal, log = await workshop.open(stages=False)
    failures = 1

    def full_once(call, path):
        nonlocal failures
        if call == "allocate" and failures:
            failures -= 1
            raise OSError(errno.ENOSPC, "injected")

    workshop.disk.before = full_once
    told = await workshop.append(log, FULL * 4)
    count = sum(error is None for error in told)
    assert told[:count] == [None] * count
    assert {error.code for error in told[count:]} == {ErrorCode.DISK_FULL}
    while journal.refusal is not None:
        await asyncio.sleep(0.001)
    await workshop.append(log, [b"next"])
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == list(enumerate([*(FULL * 4)[:count], b"next"]))


async def test_a_finished_deletion_is_durable_in_the_journal_before_its_segments_go(workshop):
    journal, log = await workshop.open()
    await workshop.append(log, [b"a"])
    await journal.stage_now()
    failing(workshop.disk, {"pwritev"}, errno.EIO)
    with pytest.raises(OutcomeUnknown):
        await log.delete()
    workshop.swap(workshop.disk.files())
    await workshop.open()
    workshop.swap(workshop.disk.after_power_loss(lambda: False))
    _, log = await workshop.open()
    assert (log.start_offset, log.next_offset) == (0, 0)
