"""What a topic remembers of idempotent producers: the pure memory, without a journal."""

import random

import pytest

from pydanube.kernel.errors import Conflict, ErrorCode, Rejected, Status
from pydanube.log.producers import ENTRIES_REMEMBERED, PRODUCERS_REMEMBERED_MAX, TOO_OLD, ProducerMemory


def add_rows(memory, producer_id, sequences, *, offset=0, committed=True):
    """One entry per sequence, at offsets from `offset` on."""
    for number, sequence in enumerate(sequences, offset):
        memory.add(producer_id, sequence, 1, number, committed_end=number if committed else 0)


def test_an_unknown_producer_begins_at_one():
    memory = ProducerMemory()
    assert memory.last_sequence(7) == 0
    assert memory.check(7, 1, 10, committed_end=0) is None


@pytest.mark.parametrize(("sequence", "count"), [(2, 1), (5, 10)])
def test_an_unknown_producer_that_goes_on_is_sent_back_to_its_first_message(sequence, count):
    with pytest.raises(Conflict, match="send again from 1 on") as caught:
        ProducerMemory().check(7, sequence, count, committed_end=0)
    assert caught.value.code is ErrorCode.SEQUENCE_GAP
    assert caught.value.status is Status.FAILED_PRECONDITION


@pytest.mark.parametrize(("sequence", "count"), [(0, 1), (-3, 5), (1, 0)])
def test_what_cannot_be_sequences_is_rejected(sequence, count):
    with pytest.raises(Rejected):
        ProducerMemory().check(7, sequence, count, committed_end=0)


def test_a_batch_sent_again_has_the_offset_it_got_whole_or_in_parts():
    memory = ProducerMemory()
    memory.add(7, 1, 10, 100, committed_end=100)
    memory.add(7, 11, 5, 200, committed_end=200)
    assert memory.last_sequence(7) == 15
    for sequence, count, offset in [(1, 10, 100), (11, 5, 200), (4, 2, 103), (9, 4, 108), (15, 1, 204)]:
        assert memory.check(7, sequence, count, committed_end=300) == offset
    assert memory.check(7, 16, 3, committed_end=300) is None


@pytest.mark.parametrize(("sequence", "count"), [(17, 1), (15, 2), (1, 16), (30, 30)])
def test_a_gap_or_an_overlap_is_refused_with_what_is_expected(sequence, count):
    memory = ProducerMemory()
    memory.add(7, 1, 15, 0, committed_end=0)
    with pytest.raises(Conflict, match=f"sequences {sequence} to .*send again from 16 on") as caught:
        memory.check(7, sequence, count, committed_end=15)
    assert caught.value.code is ErrorCode.SEQUENCE_GAP


def test_the_places_of_old_entries_are_forgotten_but_not_that_they_were_there():
    memory = ProducerMemory()
    add_rows(memory, 7, range(1, 101))
    answers = [memory.check(7, sequence, 1, committed_end=100) for sequence in range(1, 101)]
    assert answers == [TOO_OLD] * (100 - ENTRIES_REMEMBERED) + list(range(100 - ENTRIES_REMEMBERED, 100))


def test_what_is_not_committed_is_remembered_however_much_it_is():
    memory = ProducerMemory()
    add_rows(memory, 7, range(1, 101), committed=False)
    assert [memory.check(7, sequence, 1, committed_end=0) for sequence in range(1, 101)] == list(range(100))


def test_the_producer_that_has_been_silent_longest_is_forgotten_first():
    memory = ProducerMemory()
    for producer_id in range(PRODUCERS_REMEMBERED_MAX):
        memory.add(producer_id, 1, 1, producer_id, committed_end=producer_id)
    memory.add(0, 2, 1, 5000, committed_end=5000)
    memory.add(9999, 1, 1, 5001, committed_end=5001)
    assert len(memory) == PRODUCERS_REMEMBERED_MAX
    assert [memory.last_sequence(producer_id) for producer_id in (0, 1, 2, 9999)] == [2, 0, 1, 1]


def test_a_forgotten_producer_begins_at_one_again():
    memory = ProducerMemory()
    memory.add(7, 1, 5, 0, committed_end=0)
    assert memory.forget(7)
    assert not memory.forget(7)
    assert memory.check(7, 1, 1, committed_end=5) is None


def test_taking_back_restores_whom_an_append_has_pushed_out():
    memory = ProducerMemory()
    for producer_id in range(PRODUCERS_REMEMBERED_MAX):
        memory.add(producer_id, 1, 1, producer_id, committed_end=producer_id)
    before = memory.facts(PRODUCERS_REMEMBERED_MAX)
    end = PRODUCERS_REMEMBERED_MAX
    # Pushes 0 out, then 0 comes back and pushes 1 out, then goes again.
    for number, producer_id in enumerate([5000, 0, *range(5001, 7500)]):
        memory.add(producer_id, 1, 1, end + number, committed_end=end)
    memory.take_back(end)
    assert memory.facts(end) == before


def test_whom_a_caller_forgot_is_not_restored_by_taking_back():
    memory = ProducerMemory()
    for producer_id in range(PRODUCERS_REMEMBERED_MAX + 1):
        memory.add(producer_id, 1, 1, producer_id, committed_end=PRODUCERS_REMEMBERED_MAX)
    memory.forget(0)
    memory.take_back(PRODUCERS_REMEMBERED_MAX)
    assert memory.last_sequence(0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_taking_back_is_as_if_it_had_never_happened(seed):
    dice = random.Random(seed)
    memory, twin = ProducerMemory(4), ProducerMemory(4)
    end = 0
    for _ in range(60):
        offset = end
        for _ in range(dice.randrange(40)):
            count = dice.randint(1, 3)
            producer_id = dice.randrange(6)
            memory.add(producer_id, memory.last_sequence(producer_id) + 1, count, offset, committed_end=end)
            offset += count
        if dice.random() < 0.5:
            memory.take_back(end)
        else:
            end = offset
            twin = ProducerMemory(4)
            for producer_id, sent in memory.facts(end):
                twin.replace(producer_id, sent)
        assert memory.facts(end) == twin.facts(end)
        for producer_id in range(6):
            for sequence in range(1, memory.last_sequence(producer_id) + 1):
                assert memory.check(producer_id, sequence, 1, committed_end=end) == twin.check(
                    producer_id, sequence, 1, committed_end=end
                )
