"""Idempotent producers through the journal: retries, restarts, rotations, failures."""

import asyncio

import pytest

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode
from pydanube.log import JournalSettings
from pydanube.log.producers import ENTRIES_REMEMBERED, PRODUCERS_REMEMBERED_MAX


async def publish(log, producer_id, sequence, count=1):
    """Append and return the offset once it is committed."""
    told: list[DanubeError | None] = []
    offset = log.append(
        b"x", count=count, producer_id=producer_id, sequence=sequence, append_ms=1, done=told.append
    )
    await committed(log)
    assert told == [None]
    return offset


async def committed(log):
    future = asyncio.get_running_loop().create_future()
    log.call_when_committed(future.set_result)
    assert await future is None


def answers(log, producer_id):
    last = log.sequence_of(producer_id)
    return [log.check_sequence(producer_id, sequence, 1) for sequence in range(1, last + 2)]


async def test_a_retry_is_answered_with_the_original_offset(rig):
    _, log = await rig.open_topic()
    assert await publish(log, 7, 1, count=10) == 0
    assert await publish(log, 8, 1, count=2) == 10
    assert await publish(log, 7, 11, count=5) == 12
    assert (log.sequence_of(7), log.sequence_of(8), log.sequence_of(9)) == (15, 2, 0)
    assert log.check_sequence(7, 11, 5) == 12
    assert log.check_sequence(7, 16, 1) is None


async def test_sequence_zero_is_of_no_producer(rig):
    _, log = await rig.open_topic()
    await publish(log, 7, 0)
    assert log.sequence_of(7) == 0
    assert log.check_sequence(7, 0, 5) is None


@pytest.mark.parametrize("sequence", [1, 3, 5, 7])
async def test_an_append_out_of_sequence_takes_nothing(rig, sequence):
    _, log = await rig.open_topic()
    await publish(log, 7, 1, count=5)
    with pytest.raises(Conflict) as caught:
        await publish(log, 7, sequence)
    assert caught.value.code is ErrorCode.SEQUENCE_GAP
    assert log.next_offset == 5


async def test_a_retry_of_what_is_on_its_way_is_told_together_with_it(rig):
    _, log = await rig.open_topic()
    told = []
    log.append(b"x", producer_id=7, sequence=1, append_ms=1, done=lambda error: told.append(("first", error)))
    assert log.check_sequence(7, 1, 1) == 0
    log.call_when_committed(lambda error: told.append(("again", error)))
    log.append(b"y", producer_id=7, sequence=2, append_ms=1, done=lambda error: told.append(("next", error)))
    assert told == []
    await committed(log)
    assert told == [("first", None), ("again", None), ("next", None)]


async def test_what_is_committed_already_is_told_at_once(rig, append):
    _, log = await rig.open_topic()
    told = []
    log.call_when_committed(told.append)
    await append(log, [b"x"])
    log.call_when_committed(told.append)
    assert told == [None, None]


async def test_who_asks_while_a_group_is_being_told_comes_behind_it(rig):
    _, log = await rig.open_topic()
    told = []

    def first(error):
        told.append("first")
        log.call_when_committed(lambda error: told.append("asked"))

    log.append(b"x", append_ms=1, done=first)
    log.append(b"y", append_ms=1, done=lambda error: told.append("second"))
    await committed(log)
    assert told == ["first", "second", "asked"]


async def test_a_group_on_its_way_to_the_writer_is_waited_for(rig):
    _, log = await rig.open_topic()
    told = []
    log.append(b"x", append_ms=1, done=lambda error: told.append("first"))
    log._queue._hand_over()
    log.call_when_committed(lambda error: told.append("asked"))
    assert told == []
    await committed(log)
    assert told == ["first", "asked"]


async def test_a_failed_group_tells_who_waited_for_it(rig):
    _, log = await rig.open_topic()
    await publish(log, 7, 1)

    def broken(call, path):
        raise OSError(5, "Input/output error")

    rig.disk.before = broken
    told = []
    future = asyncio.get_running_loop().create_future()
    log.append(b"y", producer_id=7, sequence=2, append_ms=1, done=told.append)
    log.call_when_committed(told.append)
    log.append(b"z", producer_id=8, sequence=1, append_ms=1, done=future.set_result)
    error = await future
    assert [type(each) for each in told] == [type(error)] * 2
    assert error.code is ErrorCode.OUTCOME_UNKNOWN
    assert (log.sequence_of(7), log.sequence_of(8)) == (1, 0)


@pytest.mark.parametrize("end", ["kill", "close"])
@pytest.mark.parametrize("before_the_end", ["nothing", "rotate", "stage", "stage twice"])
async def test_the_memory_survives_files_that_are_staged_and_recycled(rig, end, before_the_end):
    journal, log = await rig.open_topic()
    for number in range(ENTRIES_REMEMBERED + 9):
        await publish(log, 7, 2 * number + 1, count=2)
        await publish(log, 8, number + 1)
    if before_the_end == "rotate":
        await journal.rotate()
        await publish(log, 8, ENTRIES_REMEMBERED + 10)
    for _ in range({"stage": 1, "stage twice": 2}.get(before_the_end, 0)):
        await journal.stage_now()
    before = {producer_id: answers(log, producer_id) for producer_id in (7, 8, 9)}
    assert before[7][0] == -1
    if end == "close":
        await journal.close()
    _, log = await rig.restart()
    assert {producer_id: answers(log, producer_id) for producer_id in (7, 8, 9)} == before
    assert await publish(log, 7, log.sequence_of(7) + 1) == log.committed_end - 1


async def test_the_memory_of_a_topic_that_is_not_opened_yet_goes_along(rig):
    _, log = await rig.open_topic()
    await publish(log, 7, 1, count=3)
    rig.kill()
    journal = await rig.open()
    await journal.rotate()
    await journal.close()
    _, log = await rig.restart()
    assert log.check_sequence(7, 1, 3) == 0


@pytest.mark.parametrize("rotates", [False, True])
async def test_a_producer_that_was_forgotten_stays_so(rig, rotates):
    journal, log = await rig.open_topic()
    await publish(log, 7, 1, count=3)
    await publish(log, 8, 1)
    log.forget_producer(7)
    if rotates:
        await journal.rotate()
    await publish(log, 8, 2)
    _, log = await rig.restart()
    assert (log.sequence_of(7), log.sequence_of(8)) == (0, 2)
    assert await publish(log, 7, 1) == 5
    _, log = await rig.restart()
    assert log.check_sequence(7, 1, 1) == 5


@pytest.mark.parametrize("before_the_end", ["nothing", "rotate", "stage"])
async def test_too_many_producers_are_the_same_ones_after_a_restart(rig, before_the_end):
    journal, log = await rig.open_topic()
    for producer_id in range(1, PRODUCERS_REMEMBERED_MAX + 50):
        log.append(b"", producer_id=producer_id, sequence=1, append_ms=1, done=lambda error: None)
        if producer_id == 500:
            log.append(b"", producer_id=1, sequence=2, append_ms=1, done=lambda error: None)
    await committed(log)
    known = [log.sequence_of(producer_id) for producer_id in range(PRODUCERS_REMEMBERED_MAX + 50)]
    assert sum(map(bool, known)) == PRODUCERS_REMEMBERED_MAX
    assert known[:3] == [0, 2, 0]
    if before_the_end == "rotate":
        await journal.rotate()
    elif before_the_end == "stage":
        await journal.stage_now()
    _, log = await rig.restart()
    assert [log.sequence_of(producer_id) for producer_id in range(PRODUCERS_REMEMBERED_MAX + 50)] == known


async def test_a_memory_larger_than_a_file_is_carried_from_file_to_file(rig):
    rig.settings = JournalSettings(file_bytes=128 * 1024)
    journal, log = await rig.open_topic()
    for number in range(4):
        for producer_id in range(PRODUCERS_REMEMBERED_MAX):
            log.append(
                b"", producer_id=producer_id, sequence=number + 1, append_ms=1, done=lambda error: None
            )
        await committed(log)
    before = [answers(log, producer_id) for producer_id in range(PRODUCERS_REMEMBERED_MAX)]
    assert all(-1 not in answer for answer in before)
    await journal.stage_now()
    assert await publish(log, 0, 5) == 4 * PRODUCERS_REMEMBERED_MAX
    await journal.stage_now()
    _, log = await rig.restart()
    assert [answers(log, producer_id) for producer_id in range(1, PRODUCERS_REMEMBERED_MAX)] == before[1:]
